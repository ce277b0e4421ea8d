"""`udsp add`, `udsp del`, `udsp show` (spec udsp.md §3, §6)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from ulnet.control.instance import LNet
from ulnet.control.policy import Census, Descriptor, Effect, Rule
from ulnet.control.view import View
from ulnet.core.status import LNetError
from ulnet.dlc.documents_policy import Action, UdspView
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model import UdspAdd, UdspDel, UdspShow
from ulnet.nid import NidError

__all__ = ["add_rule", "delete_rules", "show_rules"]

_WHY_NOTHING = "nothing: a pair is one of NIDs on both sides, and a gateway needs the dst that it is for"


def add_rule(core: LNet, request: UdspAdd) -> None:
    """Add a rule, or change its priority and weight. Raises LNetError, DlcError."""
    src, dst, rte = (_read(name, getattr(request, name)) for name in ("src", "dst", "rte"))
    try:
        core.policies.add(
            src=src, dst=dst, rte=rte, priority=request.priority, index=request.idx, weight=request.weight
        )
    except LNetError as refused:
        if refused.errno == errno.EINVAL:
            raise
        text = f"cannot add udsp: {os.strerror(refused.errno)}: {refused.text}"
        # As it is printed today: the one errno without a sign.
        raise DlcError(refused.errno, text, verb="add", entity="udsp", signed=False) from None


def _read(name: str, text: str | None) -> Descriptor | None:
    if text is None:
        return None
    try:
        return Descriptor.parse(text)
    except NidError as bad:
        raise LNetError(errno.EINVAL, f"failed to parse {name} parameter: {bad}") from None


def delete_rules(core: LNet, request: UdspDel) -> None:
    """Delete one rule or all. Raises LNetError(EINVAL, ENOENT)."""
    if request.src is not None or request.dst is not None or request.rte is not None:
        _delete_matching(core, request)
        return
    if request.all and request.idx is None:
        core.policies.clear()
        return
    if request.idx is None or request.all:
        raise LNetError(errno.EINVAL, "Must specify --idx or --all, and not both")
    try:
        core.policies.delete(request.idx)
    except LNetError as refused:
        words = os.strerror(refused.errno)
        raise LNetError(refused.errno, f"cannot del udsp: {words}: {refused.text}") from None


def _delete_matching(core: LNet, request: UdspDel) -> None:
    key = tuple(_read(name, getattr(request, name)) for name in ("src", "dst", "rte"))
    found = [rule for rule in core.policies.rules if rule.key == key]
    if not found:
        what = " ".join(f"{name} {one}" for name, one in zip(("src", "dst", "rte"), key, strict=True) if one)
        raise LNetError(errno.ENOENT, f"cannot del udsp: no rule has {what}: see 'lnetctl udsp show'")
    core.policies.remove(found)


def show_rules(core: View, request: UdspShow) -> Iterator[UdspView | None]:
    """All rules, or one; none if there is no such one, as today. None for a part of what is to be counted."""
    shown = [(at, rule) for at, rule in enumerate(core.policies.rules) if request.idx in (None, at)]
    census = core.policies.census() if request.verbosity and shown else None
    return _views(shown, census)


def _views(shown: Sequence[tuple[int, Rule]], census: Census | None) -> Iterator[UdspView | None]:
    if census is not None:
        yield from census.count()
    for at, rule in shown:
        view = _view(at, rule)
        if census is not None:
            _tell_effect(view, rule, census)
        yield view


def _view(at: int, rule: Rule) -> UdspView:
    view = UdspView(at, _text(rule.src), _text(rule.dst), _text(rule.rte))
    if rule.priority is not None or rule.weight is not None:
        view.action = Action(_number(rule.priority), _number(rule.weight))
    return view


def _tell_effect(view: UdspView, rule: Rule, census: Census) -> None:
    view.effect = _WHY_NOTHING if rule.effect is Effect.NOTHING else rule.effect.value
    if rule.weight is not None and rule.effect is not Effect.NOTHING:
        view.effect += ", and messages in a row"
    view.matches = census.matches[rule]
    overridden = view.matches - census.decides[rule]
    if overridden and rule.effect is not Effect.GATEWAY:
        view.overridden = overridden


def _number(number: int | None) -> int | UnsetType:
    return UNSET if number is None else number


def _text(descriptor: Descriptor | None) -> str | UnsetType:
    return UNSET if descriptor is None else str(descriptor)
