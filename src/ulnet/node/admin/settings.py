"""Node-wide settings and their rules (spec lnetctl.md §2)."""

from __future__ import annotations

import errno
from dataclasses import fields, replace

from ulnet.control.instance import LNet
from ulnet.core.status import LNetError
from ulnet.core.tunables import GlobalSettings
from ulnet.dlc.model import GlobalSet
from ulnet.dlc.settings import READ_ONLY, SETTINGS
from ulnet.node.admin.state import AdminState

__all__ = ["change_settings", "settings_of"]

_FEWEST_INTERFACES = 16


def change_settings(state: AdminState, request: GlobalSet) -> None:
    """Set all values or none. Raises LNetError(EINVAL), and what setting those of additions raises."""
    added = state.settings
    before = {name: added[name].get() for name in added.keys() & request.values.keys()}
    for name in before:
        _check_range(name, request.values[name], 0, added[name].most)
    try:
        for name in before:
            added[name].set(request.values[name])
        _change(state.core, {name: value for name, value in request.values.items() if name not in before})
    except LNetError:
        for name, value in before.items():
            added[name].set(value)
        raise


def settings_of(state: AdminState) -> dict[str, int]:
    """What they are."""
    added = {name: setting.get() for name, setting in state.settings.items()}
    shown = {}
    for name, one in SETTINGS.items():
        value = added.get(name, one.default) if one.added else getattr(state.core.settings, one.name or name)
        if not one.name and not (one.own and value == one.default):
            shown[name] = value
    return shown


def _change(core: LNet, values: dict[str, int]) -> None:
    for name, value in values.items():
        one = SETTINGS.get(name)
        if one is None or one.added or one.name:
            raise LNetError(errno.EINVAL, f"{name!r} is no setting of this node: see 'lnetctl global show'")
        _check_range(name, value, one.least, one.most)
    wanted = replace(core.settings, **{n: v for n, v in values.items() if n not in READ_ONLY})
    if wanted.max_interfaces < _FEWEST_INTERFACES:
        wanted.max_interfaces = SETTINGS["max_interfaces"].default
    if wanted.health_sensitivity == 0:
        if values.get("retry_count", 0) > 0:
            raise LNetError(
                errno.EINVAL,
                f"retry_count {values['retry_count']}: nothing is resent while health_sensitivity is 0; "
                "set that first",
            )
        wanted.retry_count = 0
    if wanted.transaction_timeout <= wanted.retry_count:
        raise LNetError(
            errno.EINVAL,
            f"transaction_timeout {wanted.transaction_timeout} must exceed retry_count {wanted.retry_count}: "
            "raise the one or lower the other",
        )
    discovery, wanted.discovery = wanted.discovery, core.settings.discovery
    for field in fields(GlobalSettings):
        setattr(core.settings, field.name, getattr(wanted, field.name))
    core.settings_changed()
    core.set_discovery(discovery)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise LNetError(errno.EINVAL, f"{name} {value} is out of range: use {low} to {high}")
