"""lnetctl's words about health: words become a request (spec lnetctl.md §1, health.md §6)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from ulnet.cli.lnetctl_options import BadValue, Parsed, names_of
from ulnet.dlc import model
from ulnet.dlc.errors import DlcError
from ulnet.dlc.tunables import TUNABLES

__all__ = ["HEALTH_BUILDERS"]

_MOST_HEALTH = 1000
_MOST_SECONDS = 2**31 - 1


def _net_set(parsed: Parsed) -> model.Request:
    given = {
        name: _number(parsed, model.NetSet, name.replace("_", "-"), one.most)
        for name, one in TUNABLES.items()
        if "net set" in one.words
    }
    return model.NetSet(
        nids=names_of(parsed.text("nid")),
        all=parsed.flag("all"),
        cpts=parsed.text("cpt"),
        health=_number(parsed, model.NetSet, "health", _MOST_HEALTH),
        drain=_number(parsed, model.NetSet, "drain", 1),
        net=parsed.text("net"),
        lnd_timeout=_number(parsed, model.NetSet, "lnd-timeout", _MOST_SECONDS),
        tunables={name: value for name, value in given.items() if value is not None},
    )


def _peer_set(parsed: Parsed) -> model.Request:
    if parsed.flag("state"):
        text = "--state cannot be set: states follow from what happens; 'peer show -v 3' shows them"
        raise DlcError(errno.EINVAL, text, verb=model.PeerSet.verb, entity=model.PeerSet.entity)
    return model.PeerSet(
        nids=names_of(parsed.text("nid")),
        all=parsed.flag("all"),
        health=_number(parsed, model.PeerSet, "health", _MOST_HEALTH),
    )


def _debug_peer(parsed: Parsed) -> model.Request:
    nid = parsed.text("nid")
    if not nid:
        text = "--nid must be specified"
        raise DlcError(errno.EINVAL, text, verb=model.PeerDebug.verb, entity=model.PeerDebug.entity)
    return model.PeerDebug(nid)


def _number(parsed: Parsed, request: type[model.Request], name: str, most: int) -> int | None:
    try:
        value = parsed.number(name)
    except BadValue as bad:
        raise DlcError(errno.EINVAL, str(bad), verb=request.verb, entity=request.entity) from None
    if value is not None and not 0 <= value <= most:
        text = f"--{name} {value} is out of range: use 0 to {most}"
        raise DlcError(errno.EINVAL, text, verb=request.verb, entity=request.entity)
    return value


HEALTH_BUILDERS: dict[str, Callable[[Parsed], model.Request]] = {
    "net_set": _net_set,
    "peer_set": _peer_set,
    "debug_peer": _debug_peer,
}
