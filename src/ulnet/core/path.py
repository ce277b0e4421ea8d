"""Paths: one way of messages of one kind to one destination, and what all messages there share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.core.msg import ANSWERS, NO_PAYLOAD, Msg
from ulnet.wire.lnet import HEADER_SIZE, Header, MsgType

if TYPE_CHECKING:
    from ulnet.core.event import Event
    from ulnet.core.md import Md
    from ulnet.core.ni import NI, TxQueue
    from ulnet.core.path_load import InFlight
    from ulnet.core.peer import PeerNi
    from ulnet.core.selection.paths import PathSet
    from ulnet.nid import Nid

__all__ = ["LIGHT", "Path", "load_of"]

LIGHT: Final = 4096  # bytes of payload from which a message counts as load where there is no choice of paths
_GET: Final = int(MsgType.GET)
_NO_HEADER: Final = Header(-1)
_MOST_FREE: Final = 256  # messages that a path keeps for the next ones


def load_of(template: Header) -> int:
    """The bytes that a message puts on its path: a GET counts with what it asks for."""
    return HEADER_SIZE + (template.length if template.type == _GET else template.payload_length)


class Path:
    """From a local NI to a next hop, for messages of one kind to one destination.

    `peer_ni` is the next hop, `final` where the header says that the message goes: the same unless a gateway
    passes it on. `ni_by` and `peer_ni_by` name what decided for each. A path that is a mere `hop` carries
    messages whose headers are another's: those that pass through this node, and those of a bonding NI.
    """

    __slots__ = (
        "among",
        "answers",
        "counts",
        "cpt",
        "event",
        "event_hdr",
        "event_md",
        "exact",
        "final",
        "free",
        "hdr",
        "hop",
        "in_flight",
        "joined",
        "joined_by",
        "kind",
        "left",
        "load",
        "loaded",
        "next_nid",
        "next_pid",
        "ni",
        "ni_by",
        "peer_ni",
        "peer_ni_by",
        "prefers",
        "queue",
        "route",
        "size",
        "source",
        "target",
        "template",
        "via",
    )

    def __init__(
        self,
        kind: int,
        ni: NI,
        peer_ni: PeerNi,
        final: PeerNi,
        next_pid: int,
        queue: TxQueue,
        *,
        hop: bool = False,
    ) -> None:
        self.kind: int = kind
        self.answers: bool = kind in ANSWERS
        self.ni: NI = ni
        self.peer_ni: PeerNi = peer_ni
        self.final: PeerNi = final
        self.next_nid: Nid = peer_ni.nid
        self.next_pid: int = next_pid  # a next hop is found by NID and pid
        self.queue: TxQueue = queue
        self.hop: bool = hop
        self.source: Nid | None = None  # the NI that messages here are bound to, as asked for
        self.target: Nid | None = None  # the destination as asked for
        self.exact: bool = False  # to that NID of the peer and no other
        self.via: Nid | None = None  # the gateway, where that is given
        self.cpt: int = 0
        self.route: object = None  # over a gateway: which
        self.ni_by: str = ""
        self.peer_ni_by: str = ""
        self.among: PathSet | None = None  # those that it is one of, where there is a choice
        self.joined: int = 0  # messages not counted yet that joined one before them …
        self.joined_by: tuple[str, str] = ("", "")  # … for these reasons
        self.left: int = 0  # batches that have left by it
        self.free: list[Msg] = []
        self.template: Header | None = None  # of the last message …
        self.hdr: Header = _NO_HEADER  # … and with the NIDs of this path
        self.size: int = 0  # bytes of such a message in the queues
        self.load: int = 0  # and as load
        self.counts: bool = False  # they count as load
        self.loaded: bool = False  # some did
        self.prefers: bool = False  # from now on its destination hears from that NI only
        self.in_flight: InFlight | None = None  # of such messages, where they count as load
        self.event_hdr: Header | None = None  # of their SEND event: with the destination as asked for
        self.event: Event | None = None  # one SEND event for all of one descriptor
        self.event_md: Md | None = None

    def needs(self, count: int) -> int:
        """The credits of its NI that so many messages more take: answers beyond half of all take none."""
        return max(min(count, self.queue.most_answers - self.queue.answers), 0) if self.answers else count

    def header(self, template: Header) -> Header:
        """The header of messages of that template on this path."""
        if self.template is template:
            return self.hdr
        hdr = template.copy()
        hdr.src_nid = self.ni.nid
        hdr.dest_nid = self.final.nid
        self.template = template
        self.hdr = hdr
        self.size = HEADER_SIZE + template.payload_length
        load = load_of(template)
        if load != self.load:
            self.load = load
            self.in_flight = None
        self.counts = self.peer_ni.peer.multi_rail and (
            load > LIGHT + HEADER_SIZE or self.among is not None or self.route is not None
        )
        self.loaded = self.loaded or self.counts
        self.event_hdr = hdr
        if self.target is not None and self.target != hdr.dest_nid:
            self.event_hdr = hdr.copy()
            self.event_hdr.dest_nid = self.target
        self._drop_event()
        return hdr

    def _drop_event(self) -> None:
        self.event = None
        if self.event_md is not None:
            self.event_md.let_go(self.forget)
            self.event_md = None

    def new_msg(self, template: Header) -> Msg:
        """A message of that template: one that has been here before, or a new one."""
        free = self.free
        if free:
            msg = free.pop()
            msg.template = template
        else:
            msg = Msg(template)
            self.take(msg)
            msg.source = self.source
            msg.target = self.target
            msg.cpt = self.cpt
            msg.exact = self.exact
            msg.via = self.via
        msg.hdr = self.header(template)
        return msg

    def take(self, msg: Msg) -> None:
        """msg goes by this path."""
        msg.path = self
        msg.ni = self.ni
        msg.peer_ni = self.peer_ni
        msg.next_nid = self.next_nid
        msg.next_pid = self.next_pid
        if not self.hop:
            msg.hdr = self.header(msg.template)

    def recycle(self, msg: Msg) -> None:
        """msg is over, and all went well: it may be used again."""
        msg.md = None
        msg.payload = NO_PAYLOAD
        msg.in_flight = None
        msg.event = None
        if len(self.free) < _MOST_FREE and msg.attempts is None and not (msg.copied or msg.copy_of):
            self.free.append(msg)

    def recycle_all(self, msgs: list[Msg]) -> None:
        """Keep the messages of ACKs that are over, and all went well."""
        free = self.free
        free += [msg for msg in msgs if msg.attempts is None]
        del free[_MOST_FREE:]

    def share_event(self, event: Event, md: Md) -> None:
        """Share a SEND event among all messages of md as they are now."""
        self._drop_event()
        self.event = event
        self.event_md = md
        md.keep(self.forget)

    def forget(self, md: Md) -> None:
        """md is gone, or has another handle: hold nothing of it."""
        if self.event_md is md:
            self.event_md = self.event = None

    def close(self) -> None:
        """Another path is in its place: hold nothing; what is under way goes on."""
        self._drop_event()
        self.free.clear()
