"""`fault drop|delay add|del|reset|show` (spec net-fault.md §1, §5)."""

from __future__ import annotations

import errno

from msgspec import UNSET

from ulnet.control.instance import LNet
from ulnet.control.view import View
from ulnet.core.faults import Fault, FaultKind, FaultRule
from ulnet.core.status import HealthStatus, LNetError
from ulnet.dlc.documents_faults import FaultView
from ulnet.dlc.model_faults import FaultAdd, FaultDel, FaultReset, FaultShow
from ulnet.nid import ANY_NID, LO_NET, LO_NID, Net, Nid, NidError
from ulnet.wire.lnet import MsgType

__all__ = ["add_fault", "delete_faults", "reset_faults", "show_faults"]

_EVERY_ADDRESS = 0xFFFFFFFF
_PORTALS = 64
_MESSAGES = {kind.name: 1 << kind for kind in (MsgType.PUT, MsgType.ACK, MsgType.GET, MsgType.REPLY)}
_HEALTH = {status.name.lower(): 1 << status for status in HealthStatus if status}


def add_fault(core: LNet, request: FaultAdd) -> None:
    """Add a rule. Raises LNetError(EINVAL)."""
    core.faults.add(
        Fault(
            kind=FaultKind(request.kind),
            source=_read(request.source),
            dest=_read(request.dest),
            local=_read(request.local_nid),
            portals=_portals(request.portals),
            messages=_mask("message type", _MESSAGES, [name.upper() for name in request.messages]),
            rate=request.rate,
            interval=request.interval,
            latency=request.latency,
            health=_health(request.health_errors),
            random=request.random,
            drop_all=request.drop_all,
        )
    )


def delete_faults(core: LNet, request: FaultDel) -> None:
    """Delete rules. Raises LNetError(EINVAL)."""
    core.faults.delete(FaultKind(request.kind), _read(request.source), _read(request.dest))


def _read(text: str | None) -> Nid:
    """A NID, `*`, or `*@net` for a whole net."""
    if text is None or text == "*":
        return ANY_NID
    address, at, net_text = text.partition("@")
    try:
        if address != "*" or not at:
            return Nid.parse(text)
        net = Net.parse(net_text)
        return LO_NID if net == LO_NET else Nid.of(net, _EVERY_ADDRESS)
    except NidError as bad:
        raise LNetError(errno.EINVAL, f"{bad}; a rule may also name * or *@net") from None


def _portals(numbers: list[int]) -> int:
    for number in numbers:
        if not 0 <= number < _PORTALS:
            raise LNetError(
                errno.EINVAL, f"portal {number} cannot be named by a rule: use 0 to {_PORTALS - 1}"
            )
    return sum(1 << number for number in set(numbers))


def _health(names: list[str]) -> int:
    wanted = [name.lower() for name in names]
    every = sum(_HEALTH.values())
    return every if "random" in wanted else _mask("health error", {**_HEALTH, "random": every}, wanted)


def _mask(what: str, known: dict[str, int], names: list[str]) -> int:
    for name in names:
        if name not in known:
            raise LNetError(errno.EINVAL, f"{name!r} is no {what}: use one of {', '.join(known)}")
    return sum(known[name] for name in set(names))


def reset_faults(core: LNet, request: FaultReset) -> None:
    """Zero the counters of rules."""
    core.faults.reset(FaultKind(request.kind))


def show_faults(core: View, request: FaultShow) -> list[FaultView]:
    """The rules of that kind, the newest first."""
    return [_view(rule) for rule in core.faults.rules(FaultKind(request.kind))]


def _view(rule: FaultRule) -> FaultView:
    fault = rule.fault
    by_type = rule.by_type
    view = FaultView(
        rule_type=fault.kind.value,
        fa_src=_text(fault.source),
        fa_dst=_text(fault.dest),
        fa_ptl_mask=fault.portals,
        fa_msg_mask=fault.messages,
        fs_count=rule.count,
        fs_put=by_type[MsgType.PUT],
        fs_ack=by_type[MsgType.ACK],
        fs_get=by_type[MsgType.GET],
        fs_reply=by_type[MsgType.REPLY],
    )
    if fault.kind is FaultKind.DROP:
        view.da_rate, view.da_interval, view.ds_dropped = fault.rate, fault.interval, rule.struck
    else:
        view.la_rate, view.la_interval, view.ls_delayed = fault.rate, fault.interval, rule.struck
        latency = fault.latency
        view.la_latency = int(latency) if latency == int(latency) else latency
    view.fa_local_nid = UNSET if fault.local.is_any else _text(fault.local)
    view.da_health_error_mask = fault.health or UNSET
    view.da_random = fault.random or UNSET
    view.da_drop_all = fault.drop_all or UNSET
    return view


def _text(nid: Nid) -> str:
    """As it was given."""
    if nid.is_any:
        return "*"
    return f"*@{nid.net}" if nid == Nid.of(nid.net, _EVERY_ADDRESS) else str(nid)
