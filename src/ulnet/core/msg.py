"""A message on its way through the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulnet.wire.lnet import pack_header

if TYPE_CHECKING:
    from ulnet.core.event import Event
    from ulnet.core.flow import Flight
    from ulnet.core.health.resend import Attempts
    from ulnet.core.lane import Lane
    from ulnet.core.lnd import Master
    from ulnet.core.md import Md
    from ulnet.core.ni import NI, TxQueue
    from ulnet.core.peer import PeerNi
    from ulnet.core.routing.gate import Transit
    from ulnet.nid import Nid
    from ulnet.wire.lnet import Header

__all__ = ["Msg"]


class Msg:
    """One PUT, GET, ACK or REPLY, going out or coming in.

    `hdr` is complete before an LND sees an outgoing message; `payload` holds its bytes as memoryviews
    of the owner's memory. `sending` tells the direction.
    """

    __slots__ = (
        "attempts",
        "committed",
        "copied",
        "copy_of",
        "cpt",
        "exact",
        "final",
        "flight",
        "hdr",
        "identity",
        "kept_event",
        "lane",
        "master",
        "md",
        "mlength",
        "name",
        "next_nid",
        "next_pid",
        "ni",
        "offset",
        "payload",
        "peer_ni",
        "queued_at",
        "rx",
        "sending",
        "src_spec",
        "target",
        "transit",
        "tx_queue",
        "unsent",
        "via",
    )

    tx_queue: TxQueue  # of its NI, once it has taken a credit there or waits for one

    def __init__(self, hdr: Header, sending: bool) -> None:
        self.hdr = hdr
        self.sending = sending
        self.payload: list[memoryview] = []
        self.md: Md | None = None
        self.ni: NI | None = None
        self.peer_ni: PeerNi | None = None  # next hop of a send, sender of a receive
        self.next_nid: Nid | None = None
        self.next_pid = 0
        self.src_spec: Nid | None = None
        self.target: Nid | None = None  # of our own requests: the destination as the caller named it
        self.mlength = 0
        self.offset = 0
        self.queued_at = 0.0
        self.cpt = 0
        self.exact = False  # goes to that NID of its peer and no other
        self.committed = False  # holds credits
        self.final = False
        self.unsent = False  # set by a driver that fails it: no byte has left, so any other path may be tried
        self.flight: Flight | None = None
        self.attempts: Attempts | None = None  # once it has failed and may set out again
        self.transit: Transit | None = None  # passes through this router, in or out
        self.via: Nid | None = None  # of an answer: the gateway by which its request came
        self.rx: object = None
        self.master: Master | None = None  # that passed it on, and chose its path
        self.kept_event: Event | None = None
        self.lane: Lane | None = None  # whose pool it is from: its header is shared, so never changed
        self.name = b""  # if there is one: its handle, in place of that in its shared header
        self.identity = b""  # of an incoming PUT that is never taken twice
        self.copied = False  # a copy was sent over another path: what becomes of this one is no matter
        self.copy_of: Msg | None = None  # of a PUT whose SEND event is its original's

    @property
    def wmd(self) -> bytes:
        """Its handle on the wire."""
        return self.name or self.hdr.wmd

    def own_header(self) -> None:
        """Its header is shared with no other from now on."""
        hdr = self.hdr = self.hdr.copy()
        if self.name:
            hdr.wmd = self.name
            self.name = b""

    def pack(self, large: bool) -> bytes:
        """Its header on the wire. Raises WireError."""
        if not self.name:
            return pack_header(self.hdr, large)
        hdr = self.hdr.copy()
        hdr.wmd = self.name
        return pack_header(hdr, large)
