"""A lane: one way to one process, and all that is the same from one message to the next there.

How they are used is told in docs/design/hot-path.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.core.md import Keeper
from ulnet.core.msg import Msg
from ulnet.wire.lnet import MsgType

if TYPE_CHECKING:
    from ulnet.core.event import Event
    from ulnet.core.flow import Flight
    from ulnet.core.md import Md
    from ulnet.core.ni import NI
    from ulnet.core.outlet import Outlet
    from ulnet.core.peer import PeerNi
    from ulnet.core.selection.choice import Choice
    from ulnet.nid import Nid
    from ulnet.wire.lnet import Header

__all__ = ["LIGHT", "NAMED", "Lane", "new_msg"]

LIGHT: Final = 4096  # bytes of payload that do not count as load: they say nothing of a path's rate
NAMED: Final = bytes(16)  # as handle in a shared header: its messages have each their own
_ACK: Final = int(MsgType.ACK)
_PUT: Final = int(MsgType.PUT)


class Lane(Keeper):
    """One way to one process, and its last request: all that ask for the same share `hdr` and `event`."""

    __slots__ = (
        "ack",
        "changes",
        "choice",
        "closed",
        "counted",
        "counted_to",
        "cpt",
        "epoch",
        "event",
        "flew",
        "flight",
        "free",
        "gathered",
        "hdr",
        "hdr_data",
        "heavy",
        "kind",
        "load",
        "match_bits",
        "md",
        "mds",
        "most",
        "next_nid",
        "ni",
        "offset",
        "outlet",
        "paces",
        "pid",
        "pni",
        "portal",
        "queue",
        "request",
        "run",
        "since",
        "slot",
        "source",
        "target",
        "tracked",
        "until",
    )

    def __init__(
        self, choice: Choice, target: Nid, epoch: int, cpt: int, pid: int, source: Nid | None
    ) -> None:
        self.choice = choice
        self.ni: NI = choice[0]
        self.pni: PeerNi = choice[1]
        self.next_nid = self.pni.nid
        self.target = target
        self.source = source  # of answers: the NID that was asked
        self.kind = _PUT if source is None else _ACK  # of all its messages
        self.epoch = epoch
        self.paces = self.pni.peer.paces
        self.changes = self.paces.changes
        self.cpt = cpt
        self.pid = pid  # a next hop is found by NID and pid
        self.closed = False  # another one is in its place
        self.counted = False  # one of several ways: each choice counts at once, each message as load
        self.run = 0  # messages that may join those before them there, without a choice …
        self.most = 0  # … while the credits of `pni` are at most as many and these
        self.counted_to = 0  # what `run` was when those that had joined were counted
        self.request = 0  # that it was filled in for, of those of all these ways
        self.flight: Flight | None = None  # of these messages
        self.free: list[Msg] = []
        self.gathered: list[Msg] | None = None  # asked for since `since`, to be posted together
        self.since = 0.0
        self.queue = self.ni.tx_queues[0]
        self.outlet: Outlet | None = None  # where its driver wants messages of that size
        self.load = 0  # bytes, with the header
        self.heavy = False  # they count as load of the path
        self.flew = False  # some did
        self.md: Md | None = None
        self.mds: set[Md] = set()  # that may have messages in `free`
        self.hdr: Header | None = None
        self.event: Event | None = None
        self.portal = self.match_bits = self.offset = self.hdr_data = 0
        self.ack = False
        self.tracked = False  # its answer is waited for
        self.slot = -1  # of the deadlines: where md is entered, for messages sent …
        self.until = 0.0  # … before that time

    def forget(self, md: Md) -> None:
        if self.md is md:
            self.md = self.hdr = self.event = None
            self.request = 0
        self.mds.discard(md)
        self.free.clear()

    def close(self) -> None:
        """Hold nothing any more; what is under way goes on."""
        self.closed = True
        self.md = self.hdr = self.event = None
        self.request = 0
        self.free.clear()
        for md in self.mds:
            md.let_go(self)
        self.mds.clear()


def new_msg(lane: Lane) -> Msg:
    """One more message for its pool."""
    assert lane.hdr is not None
    msg = Msg(lane.hdr, True)
    msg.lane = lane
    msg.ni = lane.ni
    msg.peer_ni = lane.pni
    msg.next_nid = lane.pni.nid
    msg.next_pid = lane.pid
    msg.cpt = lane.cpt
    msg.committed = True
    msg.tx_queue = lane.queue
    if lane.source is None:
        msg.target = lane.target
    msg.src_spec = lane.source
    return msg
