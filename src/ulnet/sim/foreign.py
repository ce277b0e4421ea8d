"""Nodes that are not ours: scripted, hostile, replayed from captures, or of the generation before multi-rail.

A foreign node speaks bytes: it gets headers and payloads as they are on the wire, and sends what it is told,
right or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ulnet.lnd.sim import Arrival, Attachment, Frame, Why
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import (
    HEADER_SIZE,
    LARGE_HEADER_SIZE,
    NO_WMD,
    PING_MATCH_BITS,
    PING_PORTAL,
    Header,
    MsgType,
    pack_header,
    unpack_header,
)
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

if TYPE_CHECKING:
    from ulnet.sim.cables import Host

__all__ = ["ForeignNode", "Heard", "SingleRailNode"]


@dataclass(frozen=True, slots=True)
class Heard:
    """A message that a foreign node got: at which of its NIDs, from which, and what."""

    at: Nid
    source: Nid
    hdr: Header
    payload: bytes


class _ForeignNi:
    """One NID of a foreign node."""

    timeout: float = 50.0

    def __init__(self, node: ForeignNode, nid: Nid) -> None:
        self.node = node
        self.nid = nid
        self.attachment: Attachment | None = None

    def sent(self, frame: Frame, failed: Why | None) -> None:
        """Count what did not leave."""
        if failed is not None:
            self.node.failures.append(failed.reason)

    def waits(self, frame: Frame) -> None:
        """A foreign node has no credits."""

    def goes(self, frame: Frame) -> None:
        """A foreign node has no credits."""

    def returned(self, frame: Frame) -> None:
        """A message that the fabric gave back is not sent again."""
        self.node.failures.append("the path is stuck")

    def progress(self, nid: Nid, stuck: bool) -> None:
        """A foreign node does not care."""

    def broke(self, nid: Nid) -> None:
        """A foreign node does not care."""

    def why_denied(self, nid: Nid) -> str:
        """Nobody is."""
        return ""

    def in_doubt(self, nid: Nid, count: int) -> None:
        """A foreign node does not care."""

    def unconnected(self, nid: Nid, errno: int) -> None:
        """A foreign node does not care."""

    def restarted(self, nid: Nid, heard: bool = True) -> None:
        """A foreign node does not care."""

    def read(self, source: Nid, frames: list[Frame], rest: bytes) -> int:
        """A foreign node takes one message at a time."""
        return 0

    def arrived(self, arrival: Arrival) -> None:
        """Wait for the payload, if there is one."""
        if not arrival.frame.payload:
            self.node.take(self, arrival)

    def completed(self, arrival: Arrival) -> None:
        """The message is whole."""
        arrival.taken()
        self.node.take(self, arrival)

    def lost(self, arrival: Arrival, errno: int, reason: str) -> None:
        """The payload will never be taken."""

    def device(self, up: bool) -> None:
        """A foreign node does not care."""


class ForeignNode:
    """Keeps what it gets in `heard`; `on_message`, if given, does the answering."""

    def __init__(
        self, name: str, host: Host, nids: Iterable[Nid], on_message: Callable[[Heard], None] | None = None
    ) -> None:
        self.name = name
        self.host = host
        self.heard: list[Heard] = []
        self.failures: list[str] = []  # why messages did not leave
        self.on_message = on_message
        self._nis = {nid: _ForeignNi(self, nid) for nid in nids}
        self.start()

    def __str__(self) -> str:
        return self.name

    @property
    def nids(self) -> list[Nid]:
        """Its NIDs, in the order they were given."""
        return list(self._nis)

    @property
    def nid(self) -> Nid:
        """The first of them."""
        return self.nids[0]

    def start(self) -> None:
        """Take its places on the fabric."""
        for mouth in self._nis.values():
            mouth.attachment = self.host.open(mouth)

    def kill(self, silent: bool = False) -> None:
        """Leave them."""
        self.host.die(silent)

    def restart(self) -> None:
        """Leave and come back: connections are gone."""
        self.kill()
        self.host.power_on()
        self.start()

    def take(self, mouth: _ForeignNi, arrival: Arrival) -> None:
        """A whole message is there; what is no LNet message closes the connection."""
        frame = arrival.frame
        try:
            hdr = unpack_header(frame.header, 0, len(frame.header) == LARGE_HEADER_SIZE)
        except WireError as bad:
            arrival.refuse(str(bad))
            return
        heard = Heard(mouth.nid, arrival.source, hdr, frame.payload)
        self.heard.append(heard)
        if self.on_message is not None:
            self.on_message(heard)

    def send_bytes(self, via: Nid, to: Nid, data: bytes) -> None:
        """Send bytes as they are, with a header of the ordinary size: recorded, forged or broken ones."""
        attachment = self._nis[via].attachment
        assert attachment is not None
        attachment.send(to, Frame(data[:HEADER_SIZE], data[HEADER_SIZE:], None))

    def send(self, via: Nid, to: Nid, hdr: Header, payload: bytes = b"") -> None:
        """Send a message from one of its NIDs."""
        attachment = self._nis[via].attachment
        assert attachment is not None
        attachment.send(to, Frame(pack_header(hdr, via.is_large or to.is_large), payload, None))


class SingleRailNode(ForeignNode):
    """LNet of the generation before multi-rail.

    Its ping info has neither the multi-rail bit nor a sequence number, and nothing takes pushes. It answers
    to the NID that a request came from (that of a router, where it came over one), from the NID that it came
    to; every NID is another node for it.
    It has `memory` on all other portals: PUTs are acknowledged, GETs answered with zeros.
    """

    def __init__(
        self,
        name: str,
        host: Host,
        nids: Iterable[Nid],
        on_put: Callable[[Heard], None] = lambda heard: None,
    ) -> None:
        super().__init__(name, host, nids, self._answer)
        self._on_put = on_put
        self.puts: list[Heard] = []  # that reached its memory
        self.pushes: int = 0  # that it dropped

    def info(self) -> PingInfo:
        """What it tells of itself; the loopback NI has a status like the others."""
        features = Feature.NI_STATUS | Feature.RTE_DISABLED
        entries = [NiEntry(nid, NiStatus.UP) for nid in self.nids]
        return PingInfo(int(features), LNET_PID, NiStatus.UP, entries)

    def _answer(self, heard: Heard) -> None:
        hdr = heard.hdr
        if hdr.dest_nid != heard.at:
            return
        if hdr.type == MsgType.GET:
            self._reply(heard)
        elif hdr.type == MsgType.PUT and hdr.portal == PING_PORTAL:
            self.pushes += 1
        elif hdr.type == MsgType.PUT:
            self.puts.append(heard)
            self._on_put(heard)
            if hdr.wmd != NO_WMD:
                ack = self._response(heard, MsgType.ACK)
                ack.match_bits = hdr.match_bits
                ack.length = len(heard.payload)
                self.send(heard.at, heard.source, ack)

    def _reply(self, heard: Heard) -> None:
        hdr = heard.hdr
        data = bytes(hdr.length)
        if hdr.portal == PING_PORTAL:
            if hdr.match_bits != PING_MATCH_BITS:
                return
            data = self.info().pack()[: hdr.length]
        reply = self._response(heard, MsgType.REPLY)
        reply.payload_length = len(data)
        self.send(heard.at, heard.source, reply, data)

    @staticmethod
    def _response(heard: Heard, kind: MsgType) -> Header:
        hdr = heard.hdr
        return Header(int(kind), hdr.src_nid, heard.at, hdr.src_pid, hdr.dest_pid, wmd=hdr.wmd)

    def put(self, via: Nid, to: Nid, portal: int, data: bytes, match_bits: int = 0) -> None:
        """Send a PUT that wants no ACK."""
        hdr = Header(
            int(MsgType.PUT), to, via, LNET_PID, LNET_PID, len(data), match_bits=match_bits, portal=portal
        )
        self.send(via, to, hdr, data)

    def ping(self, via: Nid, to: Nid, size: int = 272, wmd: bytes = b"\x01" * 16) -> None:
        """Ask a node for its NIDs; the answer is in `heard`."""
        hdr = Header(
            int(MsgType.GET),
            to,
            via,
            LNET_PID,
            LNET_PID,
            wmd=wmd,
            match_bits=PING_MATCH_BITS,
            portal=PING_PORTAL,
            length=size,
        )
        self.send(via, to, hdr)
