"""What decided a choice, in place of a criterion's name."""

from __future__ import annotations

from typing import Final

from ulnet.core.peer import Peer, PeerFlag

__all__ = [
    "FIRST_OF_EQUALS",
    "NOT_MULTI_RAIL",
    "NOT_TRIED",
    "ONLY_ONE",
    "RESPONSE",
    "SOURCE_GIVEN",
    "kind_of",
]

# What may stand in place of a criterion's name.
ONLY_ONE: Final = "only one"
FIRST_OF_EQUALS: Final = "first of equals"
SOURCE_GIVEN: Final = "source given"
RESPONSE: Final = "response"
NOT_MULTI_RAIL: Final = "peer without Multi-Rail"
NOT_TRIED: Final = "not tried yet"

_KNOWN = int(PeerFlag.CONFIGURED | PeerFlag.DISCOVERED)


def kind_of(peer: Peer) -> str:
    """What `explain` calls it: without discovery nobody knows whether it has rails."""
    if peer.multi_rail:
        return "Multi-Rail peer"
    if peer.flags & _KNOWN:
        return NOT_MULTI_RAIL
    return "peer that was not discovered yet, as one without Multi-Rail"
