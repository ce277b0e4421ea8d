"""Messages: what goes out (`Msg`), and what comes in and is not whole yet (`Incoming`)."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from ulnet.wire.lnet import NO_WMD, MsgType, pack_header

if TYPE_CHECKING:
    from ulnet.core.event import Event
    from ulnet.core.lnd import Master, Payload
    from ulnet.core.md import Md
    from ulnet.core.ni import NI
    from ulnet.core.path import Path
    from ulnet.core.path_load import InFlight
    from ulnet.core.peer import PeerNi
    from ulnet.core.selection.paths import PathSet
    from ulnet.nid import Nid
    from ulnet.wire.lnet import Header

__all__ = ["ANSWERS", "NO_PAYLOAD", "Attempts", "Incoming", "Msg", "Transit"]

ANSWERS: Final = (int(MsgType.ACK), int(MsgType.REPLY))
NO_PAYLOAD: Final[list[memoryview]] = []
_PUT: Final = int(MsgType.PUT)
_GET: Final = int(MsgType.GET)
_FIRST_PAUSE: Final = 0.1  # seconds before a pair is tried again
_LONGEST_PAUSE: Final = 5.0


class Attempts:
    """What a message that failed remembers: its attempts, the pairs that it took, when it gives up."""

    __slots__ = ("count", "deadline", "failure", "forsaken", "last", "pause", "tried", "well")

    def __init__(self, deadline: float) -> None:
        self.count: int = 0
        self.deadline: float = deadline
        self.pause: float = 0.0  # before the last attempt
        self.last: tuple[NI, PeerNi] | None = None  # where it failed, until another path is chosen
        self.tried: list[tuple[NI, PeerNi]] = []
        self.failure: tuple[int, str] = (0, "")  # of the last copy of a PUT that failed for good
        self.forsaken: bool = False  # the peer that may have it has begun a new life
        self.well: Msg | None = None  # the PUT itself, copied on suspicion, until its path is lost

    def pause_after(self, ni: NI, pni: PeerNi) -> float:
        """Seconds to wait after a failure on that pair."""
        if (ni, pni) not in self.tried:
            return 0.0
        return min(max(self.pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)


class Msg:
    """One PUT, GET, ACK or REPLY that goes out.

    `template` is its header without NIDs; `hdr` is that with the NIDs of its path, and is shared by all
    messages of that template on that path: nobody changes it. `wmd` is the message's own handle, in place of
    that in the header. `payload` holds its bytes as memoryviews of the owner's memory.
    """

    __slots__ = (
        "attempts",
        "committed",
        "copied",
        "copy_of",
        "cpt",
        "event",
        "exact",
        "hdr",
        "in_flight",
        "master",
        "md",
        "next_nid",
        "next_pid",
        "ni",
        "path",
        "payload",
        "peer_ni",
        "queued_at",
        "source",
        "target",
        "template",
        "transit",
        "unconnected",
        "unsent",
        "via",
        "wmd",
    )

    def __init__(self, template: Header) -> None:
        self.template: Header = template
        self.hdr: Header = template
        self.wmd: bytes = NO_WMD
        self.payload: list[memoryview] = NO_PAYLOAD
        self.md: Md | None = None
        self.path: Path | None = None
        self.ni: NI | None = None  # of its path
        self.peer_ni: PeerNi | None = None  # its next hop
        self.next_nid: Nid | None = None
        self.next_pid: int = 0
        self.source: Nid | None = None  # the NI that it is bound to, as asked for
        self.target: Nid | None = None  # the destination as asked for
        self.cpt: int = 0
        self.exact: bool = False  # goes to that NID of its peer and no other
        self.via: Nid | None = None  # the gateway that it goes over, where that is given
        self.committed: bool = False  # holds credits of its path, or waits for them
        self.queued_at: float = 0.0
        self.unconnected: bool = False  # its driver has no connection for it: it holds no credit of its NI
        self.unsent: bool = False  # its driver fails it, and no byte has left: any other path may be tried
        self.in_flight: InFlight | None = None  # its load on the path
        self.attempts: Attempts | None = None  # once it has failed and may set out again
        self.transit: Transit | None = None  # passes through this router
        self.master: Master | None = None  # that passed it on, and chose its path
        self.event: Event | None = None  # of a REPLY: what the owner of its memory hears
        self.copied: bool = False  # a copy was sent over another path: what becomes of this one is no matter
        self.copy_of: Msg | None = None  # of a PUT whose SEND event is its original's

    @property
    def awaits_answer(self) -> bool:
        """Whether an ACK or a REPLY will tell of its delivery."""
        kind = self.hdr.type
        return kind == _GET or (kind == _PUT and self.wmd is not NO_WMD)

    def pack(self, large: bool) -> bytes:
        """Its header on the wire. Raises WireError."""
        hdr = self.hdr
        if self.wmd is hdr.wmd or self.wmd == hdr.wmd:
            return pack_header(hdr, large)
        hdr = hdr.copy()
        hdr.wmd = self.wmd
        return pack_header(hdr, large)


class Incoming:
    """One message that comes in: under way into memory, waiting for memory, or on its way through a router.

    `rx` is what its driver gave with its header.
    """

    __slots__ = (
        "answers",
        "ended",
        "hdr",
        "hop",
        "identity",
        "md",
        "mlength",
        "next_nid",
        "ni",
        "offset",
        "peer_ni",
        "rx",
        "transit",
    )

    def __init__(self, hdr: Header, ni: NI, peer_ni: PeerNi, next_nid: Nid) -> None:
        self.hdr: Header = hdr
        self.ni: NI = ni
        self.peer_ni: PeerNi = peer_ni  # who sent it
        self.next_nid: Nid = next_nid  # the next hop that it came by
        self.hop: PeerNi = peer_ni  # the peer NI of that
        self.answers: PathSet | None = None  # the paths of its ACK, where they are known
        self.md: Md | None = None
        self.mlength: int = 0
        self.offset: int = 0
        self.rx: Payload | None = None
        self.transit: Transit | None = None
        self.identity: bytes = b""  # of a PUT that is never taken twice
        self.ended: bool = False


class Transit:
    """A message that passes through this router: where it came from, and what it holds."""

    __slots__ = (
        "beside",
        "buffer",
        "cpt",
        "deadline",
        "from_nid",
        "from_router",
        "has_credit",
        "hdr",
        "held_for",
        "left",
        "ni",
        "rx",
        "sender",
        "why",
    )

    def __init__(
        self, ni: NI, sender: PeerNi, hdr: Header, from_nid: Nid, rx: Payload | None, cpt: int
    ) -> None:
        self.ni: NI = ni
        self.sender: PeerNi = sender
        self.hdr: Header = hdr
        self.from_nid: Nid = from_nid
        self.rx: Payload | None = rx
        self.cpt: int = cpt
        self.from_router: bool = False  # whether its sender is a router, too, or says so
        self.beside: bool = False  # its buffer is none of its pool's count: of gateways always
        self.has_credit: bool = False  # of its sender; and it has a buffer, or waits for one
        self.buffer: bytearray | None = None
        self.held_for: Nid = hdr.dest_nid  # under which its pool counts that buffer
        self.left: bool = False  # gave everything back
        self.deadline: float = inf  # nobody waits for it after that
        self.why: str = ""  # it could not be sent on
