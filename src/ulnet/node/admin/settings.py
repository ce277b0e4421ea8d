"""Node-wide settings and their rules (spec lnetctl.md §2)."""

from __future__ import annotations

import errno
from dataclasses import fields, replace

from msgspec import UNSET

from ulnet.control.instance import LNet
from ulnet.core.status import LNetError
from ulnet.core.tunables import GlobalSettings
from ulnet.dlc.documents import Globals
from ulnet.dlc.model import GlobalSet
from ulnet.node.admin.show_node import show_globals
from ulnet.node.admin.state import AdminState

__all__ = ["change_settings", "settings_of"]

_MOST = 2**31 - 1
_RANGES = {
    "numa_range": (0, 2**32 - 1),
    "max_interfaces": (0, _MOST),
    "discovery": (0, 2),  # 2: verify
    "drop_asym_route": (0, 1),
    "retry_count": (0, _MOST),
    "transaction_timeout": (1, _MOST),
    "health_sensitivity": (0, 1000),
    "recovery_interval": (0, _MOST),
    "router_sensitivity": (0, 100),
    "lnd_timeout": (0, _MOST),
    "response_tracking": (0, 3),
    "recovery_limit": (0, _MOST),
    "max_recovery_ping_interval": (1, _MOST),
    "use_tcp_bonding": (0, 1),
    "degraded_below": (0, 90),
}
_READ_ONLY = frozenset({"lnd_timeout", "recovery_interval"})  # accepted from exports, never changed
_FEWEST_INTERFACES = 16


def change_settings(state: AdminState, request: GlobalSet) -> None:
    """Set all values or none. Raises LNetError(EINVAL), and what setting those of additions raises."""
    added = state.settings
    before = {name: added[name].get() for name in added.keys() & request.values.keys()}
    for name in before:
        _check_range(name, request.values[name], (0, added[name].most))
    try:
        for name in before:
            added[name].set(request.values[name])
        _change(state.core, {name: value for name, value in request.values.items() if name not in before})
    except LNetError:
        for name, value in before.items():
            added[name].set(value)
        raise


def settings_of(state: AdminState) -> Globals:
    """What they are."""
    shown = show_globals(state.core)
    for name, setting in state.settings.items():
        setattr(shown, name, setting.get() or UNSET)
    return shown


def _change(core: LNet, values: dict[str, int]) -> None:
    for name, value in values.items():
        if name not in _RANGES:
            raise LNetError(errno.EINVAL, f"{name!r} is no setting of this node: see 'lnetctl global show'")
        _check_range(name, value, _RANGES[name])
    wanted = replace(core.settings, **{n: v for n, v in values.items() if n not in _READ_ONLY})
    if wanted.max_interfaces < _FEWEST_INTERFACES:
        wanted.max_interfaces = GlobalSettings().max_interfaces
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


def _check_range(name: str, value: int, limits: tuple[int, int]) -> None:
    low, high = limits
    if not low <= value <= high:
        raise LNetError(errno.EINVAL, f"{name} {value} is out of range: use {low} to {high}")
