"""lnetctl's words about health: words become a request (spec lnetctl.md §1, health.md §6)."""

from __future__ import annotations

from collections.abc import Callable

from ulnet.cli.lnetctl_options import BadValue, Parsed, names_of
from ulnet.dlc import model

__all__ = ["HEALTH_BUILDERS"]


def _peer_set(parsed: Parsed) -> model.Request:
    if parsed.flag("state"):
        raise BadValue("--state cannot be set: states follow from what happens; 'peer show -v 3' shows them")
    return model.PeerSet(names_of(parsed.text("nid")), parsed.flag("all"), parsed.number("health", 1000))


def _debug_peer(parsed: Parsed) -> model.Request:
    nid = parsed.text("nid")
    if not nid:
        raise BadValue("--nid must be specified")
    return model.PeerDebug(nid)


HEALTH_BUILDERS: dict[str, Callable[[Parsed], model.Request]] = {
    "peer_set": _peer_set,
    "debug_peer": _debug_peer,
}
