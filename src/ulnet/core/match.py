"""What a header leads to: kept from one message of a connection to the next while nothing has changed."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from ulnet.core.generation import Generation
from ulnet.wire.lnet import Header

if TYPE_CHECKING:
    from ulnet.core.event import Event
    from ulnet.core.lnd import Master
    from ulnet.core.md import Md
    from ulnet.core.peer import PeerNi
    from ulnet.core.portal import Portal
    from ulnet.core.selection.paths import PathSet

__all__ = ["ALWAYS", "Match", "Verdict"]

ALWAYS: Final = Generation()  # of what depends on no peer, or on no portal


class Verdict(Enum):
    """What becomes of a message with that header."""

    TAKE = auto()
    DROP = auto()
    FORWARD = auto()
    REFUSE = auto()  # it breaks the protocol
    DROPPED = auto()  # a notice: the peer has dropped a request of ours


class Match:
    """A header with all that it leads to: sender, memory, the event, the paths of its answer.

    Holds while the sum of its generations is `stamp`: none of them ever falls. `moving` says that each PUT
    lands behind the one before; without `md` the portal is searched for each message.
    """

    __slots__ = (
        "answers",
        "changes",
        "event",
        "handle",
        "hdr",
        "hop",
        "hop_generation",
        "master",
        "md",
        "moving",
        "offset",
        "peer_generation",
        "portal",
        "portal_generation",
        "sender",
        "stamp",
        "verdict",
        "wants_ack",
        "why",
    )

    def __init__(self, hdr: Header, verdict: Verdict, why: str = "", sender: PeerNi | None = None) -> None:
        self.hdr: Header = hdr
        self.verdict: Verdict = verdict
        self.why: str = why  # of a DROP
        self.sender: PeerNi | None = sender
        self.hop: PeerNi | None = sender  # that it came over: its sender, a gateway, or a slave of that
        self.master: Master | None = None  # a bonding NI that it is for
        self.portal: Portal | None = None
        self.md: Md | None = None
        self.handle: int = 0  # of md, when it was matched
        self.moving: bool = False
        self.offset: int = 0
        self.event: Event | None = None  # one for all that are alike
        self.wants_ack: bool = False
        self.answers: PathSet | None = None  # the paths of ACKs or REPLYs to such messages
        self.peer_generation: Generation = ALWAYS
        self.hop_generation: Generation = ALWAYS
        self.portal_generation: Generation = ALWAYS
        self.stamp: int = -1
        self.changes: int = -1  # how many there had been of all generations when it was last found to hold
