"""lnetctl's words for routes and routers as requests (spec lnetctl.md §1, §2)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from ulnet.cli.lnetctl_options import BadValue, Parsed, number
from ulnet.cli.lnetctl_policy import SaidPlainly
from ulnet.dlc import model
from ulnet.dlc.errors import DlcError
from ulnet.dlc.settings import BUFFERS, ROUTER

__all__ = ["ROUTER_WORDS", "ROUTING_BUILDERS"]

_ROUTER = {one.word or name: name for name, one in ROUTER.items()}
_BUFFERS = {one.word: size for size, one in BUFFERS.items()}
ROUTER_WORDS = ("routing", *_ROUTER, *_BUFFERS)  # what `set` takes beside node-wide settings


def _route_add(parsed: Parsed) -> model.Request:
    net, gateway = _mandatory(parsed)
    hop = parsed.number("hop-count") if parsed.flag("hop-count") else parsed.number("hop")
    priority = parsed.number("priority") or 0
    sensitivity = parsed.number("health_sensitivity")
    if hop is not None and not 1 <= hop <= 255:  # -1, which a request may have, is no number of hops
        raise BadValue(f"hop {hop} is out of range: use 1 to 255, or leave it out")
    return model.RouteAdd(
        net, gateway, -1 if hop is None else hop, priority, 1 if sensitivity is None else sensitivity
    )


def _route_del(parsed: Parsed) -> model.Request:
    return model.RouteDel(*_mandatory(parsed))


def _mandatory(parsed: Parsed) -> tuple[str, str]:
    """Net and gateway; what is missing is told as the real tool does."""
    net, gateway = parsed.text("net"), parsed.text("gateway")
    if not net or not gateway:
        missing = [name for name, text in (("net", net), ("gateway", gateway)) if not text]
        raise SaidPlainly(f"missing mandatory parameters:'{' , '.join(missing)}'\n")
    return net, gateway


def _set(name: str, parsed: Parsed) -> model.Request:
    """A setting of routers; what is no number is refused with the status of the real tool."""
    if len(parsed.operands) != 1:
        text = f"{name} takes one value: write 'lnetctl set {name} VALUE'"
        raise DlcError(errno.EINVAL, text, verb="add", entity=name)
    word = parsed.operands[0]
    try:
        value = number(name, word)
    except BadValue:
        value = -1
    if name == "routing":
        if value not in (0, 1):
            raise _unread(f"cannot parse routing value {word!r}: must be 0 for disable or 1 for enable")
        return model.RoutingSet(bool(value))
    if name in _ROUTER:
        if value < 0:
            raise _unread(f"cannot parse {name} value {word!r}: write a number")
        return model.RouterSet({_ROUTER[name]: value})
    if value < 0:
        raise _unread(f"cannot parse {name} value {word!r}: write a number, 0 for the default")
    return model.BuffersSet(**{_BUFFERS[name]: value})


def _unread(text: str) -> DlcError:
    return DlcError(errno.EPERM, text, verb="parser", entity="set")


ROUTING_BUILDERS: dict[str, Callable[[Parsed], model.Request]] = {
    "route_add": _route_add,
    "route_del": _route_del,
    **{f"set_{name}": partial(_set, name) for name in ROUTER_WORDS},
}
