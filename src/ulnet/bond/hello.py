"""What an incoming HELLO does: every case of the bonding design (§7.1) is a row of one table."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["INCOMING", "PeerState", "Reaction", "Stamp", "is_older", "next_incarnation", "stamp_of"]

_WORD: Final = 0xFFFFFFFF
_LATE: Final = 1 << 16  # so far behind, an incarnation is an earlier one and not that of another life


class PeerState(Enum):
    """What is known of a bonding peer."""

    UNKNOWN = "unknown"
    WAITING = "waiting for its HELLO"
    CONNECTED = "connected"


class Stamp(Enum):
    """What its sender last knew of this NI."""

    ZERO = "nothing"
    CURRENT = "its incarnation"
    OTHER = "another incarnation"


class Reaction(NamedTuple):
    """Keep the sender's configuration, answer with a HELLO, go on as `next`."""

    save: bool
    answer: bool
    next: PeerState


_CONNECTED = PeerState.CONNECTED
INCOMING: Final[dict[tuple[PeerState, Stamp], Reaction]] = {
    # It begins the handshake; or this node has restarted since, and the answer tells.
    (PeerState.UNKNOWN, Stamp.ZERO): Reaction(save=True, answer=True, next=_CONNECTED),
    (PeerState.UNKNOWN, Stamp.CURRENT): Reaction(save=True, answer=True, next=_CONNECTED),
    (PeerState.UNKNOWN, Stamp.OTHER): Reaction(save=True, answer=True, next=_CONNECTED),
    # Both began at once: its HELLO set out before ours came.
    (PeerState.WAITING, Stamp.ZERO): Reaction(save=True, answer=False, next=_CONNECTED),
    # The answer.
    (PeerState.WAITING, Stamp.CURRENT): Reaction(save=True, answer=False, next=_CONNECTED),
    # An update for an earlier life of this node; ours, which is under way, brings it up to date.
    (PeerState.WAITING, Stamp.OTHER): Reaction(save=True, answer=False, next=_CONNECTED),
    # It has restarted.
    (PeerState.CONNECTED, Stamp.ZERO): Reaction(save=True, answer=True, next=_CONNECTED),
    # Its configuration has changed.
    (PeerState.CONNECTED, Stamp.CURRENT): Reaction(save=True, answer=False, next=_CONNECTED),
    # What it knows of this node is out of date.
    (PeerState.CONNECTED, Stamp.OTHER): Reaction(save=True, answer=True, next=_CONNECTED),
}


def stamp_of(target: int, incarnation: int) -> Stamp:
    """What a HELLO's target stamp says to an NI of that incarnation."""
    if not target:
        return Stamp.ZERO
    return Stamp.CURRENT if target == incarnation else Stamp.OTHER


def next_incarnation(incarnation: int) -> int:
    """The one after a change: never 0, which means that nothing is known."""
    return incarnation % _WORD + 1


def is_older(incarnation: int, known: int) -> bool:
    """Whether a HELLO with that incarnation was overtaken by the one that is known."""
    return 0 < (known - incarnation) & _WORD < _LATE
