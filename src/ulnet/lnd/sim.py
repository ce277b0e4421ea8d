"""The simulator's driver: real headers and payload as bytes, over a fabric that somebody else makes.

What a fabric must offer stands here as protocols; `ulnet.sim` has one. Errors become health statuses by
the rules of the TCP driver.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from ulnet.core.lnd import NiEvent, Upcalls
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.status import HealthStatus
from ulnet.lnd.tcp.errors import connect_status, send_status
from ulnet.nid import NetType, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import HEADER_SIZE, LARGE_HEADER_SIZE, Header, unpack_header

__all__ = ["Arrival", "Carrier", "Frame", "Outlet", "SimLnd", "SimStation", "Station", "Why"]


class Why(NamedTuple):
    """Why a frame failed: a positive errno, a sentence, whether there was no connection, or nothing left."""

    errno: int
    reason: str
    unconnected: bool
    unsent: bool


class Frame:
    """One message on the wire; `token` is the sender's own, the rest of the slots the fabric's."""

    __slots__ = (
        "begins",
        "deadline",
        "end",
        "gone",
        "header",
        "over",
        "payload",
        "ready",
        "size",
        "token",
        "tries",
    )

    def __init__(self, header: bytes, payload: bytes, token: object) -> None:
        self.header = header
        self.payload = payload
        self.token = token
        self.size = len(header) + len(payload)
        self.over = False  # the sender has been told
        self.ready = False  # it is with the receiver's host
        self.gone = False  # it will never arrive
        self.tries = 0
        self.begins = 0.0  # when its first byte leaves
        self.end = 0.0  # when its last byte arrives
        self.deadline = 0.0


class Arrival(Protocol):
    """A frame that arrives: its header is there, its payload follows."""

    source: Nid
    frame: Frame

    def taken(self) -> None:
        """All of it is read: the next one may come."""

    def abandon(self, msg: Msg) -> bool:
        """See `Payload`: the station that it arrived at knows."""

    def refuse(self, why: str) -> None:
        """It breaks the rules: close the connection."""


class Station(Protocol):
    """Who is behind a NID on the fabric."""

    nid: Nid
    timeout: float  # seconds a message may be under way

    def sent(self, frame: Frame, failed: Why | None) -> None:
        """The frame left, or it failed."""

    def returned(self, frame: Frame) -> None:
        """Nothing of the frame left, and nothing will: the path is stuck. In the place of `sent`."""

    def progress(self, nid: Nid, stuck: bool) -> None:
        """What was sent to nid makes no progress, or does again."""

    def broke(self, nid: Nid) -> None:
        """The connection with nid broke, and none is being made."""

    def restarted(self, nid: Nid) -> None:
        """Another life of a node, or another node, is behind nid."""

    def arrived(self, arrival: Arrival) -> None:
        """A header is there."""

    def completed(self, arrival: Arrival) -> None:
        """All of its payload is there."""

    def abandon(self, arrival: Arrival, msg: Msg) -> bool:
        """The payload of msg goes nowhere; False if it does not arrive."""

    def lost(self, arrival: Arrival, errno: int, reason: str) -> None:
        """Its connection broke before it was taken."""

    def device(self, up: bool) -> None:
        """The cable was pulled, or is back."""


class Outlet(Protocol):
    """A station's place on the fabric."""

    def send(self, dest: Nid, frame: Frame) -> None:
        """Carry the frame; `Station.sent` tells later how that went."""

    def close(self) -> None:
        """Leave: connections end, and nothing more is told."""


class Carrier(Protocol):
    """A host's cables."""

    def open(self, station: Station) -> Outlet:
        """A place for a station. Raises LNetError."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call later, outside the caller's stack."""


class _Incoming:
    """A message that arrives: where its payload goes, once the core has said so."""

    __slots__ = ("buffers", "complete", "msg", "wanted")

    def __init__(self) -> None:
        self.wanted = False
        self.complete = False
        self.msg: Msg | None = None
        self.buffers: list[memoryview] = []


class SimStation:
    """One NI on the fabric."""

    def __init__(self, core: Upcalls, ni: NI, carrier: Carrier) -> None:
        self.nid = ni.nid
        self._is_large = ni.nid.is_large
        self.timeout = float(ni.lnd_tunables.timeout) if ni.lnd_tunables is not None else 50.0
        self._core = core
        self._ni = ni
        self.flying: dict[Frame, Msg] = {}  # what the core has handed over and not got back
        self._incoming: dict[Arrival, _Incoming] = {}
        self._soon = carrier.soon
        self._outlet = carrier.open(self)
        self._open = True

    # Sending ------------------------------------------------------------------------------------------

    def send(self, msg: Msg) -> None:
        """Put the message's bytes on the wire."""
        dest = msg.next_nid
        assert dest is not None
        if not self._open:
            self._fail_soon(msg, *self._shut_failure())
            return
        try:
            header = msg.pack(self._is_large or (dest[0] != 0 and dest.is_large))
        except WireError as bad:
            self._fail_soon(msg, HealthStatus.LOCAL_ERROR, errno.EINVAL, str(bad))
            return
        payload = b"".join(msg.payload)
        assert len(payload) == msg.hdr.payload_length, "a header that tells another length than its payload's"
        frame = Frame(header, payload, msg)
        self.flying[frame] = msg
        self._outlet.send(dest, frame)

    def _fail_soon(self, msg: Msg, status: HealthStatus, number: int, reason: str) -> None:
        frame = Frame(b"", b"", msg)
        self.flying[frame] = msg

        def fail() -> None:
            if self.flying.pop(frame, None) is not None:
                msg.unsent = True
                self._core.finalize(msg, status, number, reason)

        self._soon(fail)

    def returned(self, frame: Frame) -> None:
        """The wire gives a frame back."""
        self._core.take_back(self.flying.pop(frame))

    def progress(self, nid: Nid, stuck: bool) -> None:
        """Tell the core."""
        if stuck:
            self._core.path_stalled(self._ni, nid)
        else:
            self._core.path_moving(self._ni, nid)

    def broke(self, nid: Nid) -> None:
        """Tell the core."""
        self._core.path_lost(self._ni, nid)

    def restarted(self, nid: Nid) -> None:
        """Tell the core."""
        self._core.peer_restarted(nid)

    def sent(self, frame: Frame, failed: Why | None) -> None:
        """The wire is done with a frame."""
        msg = self.flying.pop(frame)
        if failed is None:
            self._core.finalize(msg, HealthStatus.OK)
            return
        number, reason, unconnected, msg.unsent = failed
        if not unconnected:
            status = send_status(number)
        elif number == errno.EALREADY:  # the pause after a failed attempt lasts
            number, status = errno.EHOSTUNREACH, HealthStatus.REMOTE_ERROR
        else:
            status = connect_status(number)
        self._core.finalize(msg, status, number, reason)

    # Receiving ----------------------------------------------------------------------------------------

    def arrived(self, arrival: Arrival) -> None:
        """Show the header to the core."""
        frame = arrival.frame
        size = len(frame.header)
        try:
            if size not in (HEADER_SIZE, LARGE_HEADER_SIZE):
                raise WireError(f"{size} bytes are no LNet header")
            hdr = unpack_header(frame.header, 0, size == LARGE_HEADER_SIZE)
        except WireError as bad:
            arrival.refuse(str(bad))
            return
        if hdr.payload_length:
            self._incoming[arrival] = _Incoming()
        self._show(arrival, hdr)

    def _show(self, arrival: Arrival, hdr: Header) -> None:
        refused = self._core.parse(self._ni, hdr, arrival.source, arrival)
        if refused:
            self._incoming.pop(arrival, None)
            arrival.refuse("the message breaks LNet's rules")
        elif hdr.payload_length != len(arrival.frame.payload):
            arrival.refuse("its payload has another length than its header tells")

    def recv(self, rx: object, msg: Msg | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """Where the payload of an arrival goes."""
        arrival = cast(Arrival, rx)
        incoming = self._incoming[arrival]
        assert not incoming.wanted, "recv called twice for one message"
        room = 0
        for view in buffers:
            room += view.nbytes
        assert room == mlen <= rlen
        incoming.wanted = True
        incoming.msg = msg
        incoming.buffers = buffers
        if incoming.complete:
            self._take(arrival, incoming)

    def abandon(self, arrival: Arrival, msg: Msg) -> bool:
        """The payload of msg goes nowhere, and nobody waits for it."""
        incoming = self._incoming.get(arrival)
        if incoming is None or incoming.msg is not msg:
            return False
        incoming.msg = None
        incoming.buffers = []
        return True

    def completed(self, arrival: Arrival) -> None:
        """The payload is there: into its memory, if that is known."""
        incoming = self._incoming[arrival]
        incoming.complete = True
        if incoming.wanted:
            self._take(arrival, incoming)

    def _take(self, arrival: Arrival, incoming: _Incoming) -> None:
        del self._incoming[arrival]
        data = arrival.frame.payload
        at = 0
        for view in incoming.buffers:
            view[:] = data[at : at + view.nbytes]
            at += view.nbytes
        arrival.taken()
        if incoming.msg is not None:
            self._core.finalize(incoming.msg, HealthStatus.OK)

    def lost(self, arrival: Arrival, errno: int, reason: str) -> None:
        """The payload will never come."""
        incoming = self._incoming.pop(arrival, None)
        if incoming is None:
            return
        if not incoming.wanted:
            self._core.forget_rx(arrival)
        elif incoming.msg is not None:
            self._core.finalize(incoming.msg, send_status(errno), errno, reason)

    # The device and the end ---------------------------------------------------------------------------

    def device(self, up: bool) -> None:
        """Tell the core."""
        if self._open:
            self._core.ni_event(self._ni, NiEvent.RECOVERED if up else NiEvent.FATAL)

    def shut(self) -> None:
        """End everything at once."""
        self._open = False
        self._outlet.close()
        status, number, reason = self._shut_failure()
        for arrival in list(self._incoming):
            self.lost(arrival, number, reason)
        for frame, msg in list(self.flying.items()):
            if self.flying.pop(frame, None) is not None:
                msg.unsent = False
                self._core.finalize(msg, status, number, reason)

    def _shut_failure(self) -> tuple[HealthStatus, int, str]:
        return HealthStatus.LOCAL_ERROR, errno.ESHUTDOWN, f"{self.nid} has been shut down"


class SimLnd:
    """A driver for all nets of one type of a node, over the cables of its host."""

    reports_timeout = True

    def __init__(self, core: Upcalls, carrier: Carrier, net_type: NetType = NetType.TCP) -> None:
        self.name = net_type.name.lower()
        self.net_type = int(net_type)
        self._core = core
        self._carrier = carrier

    def startup(self, ni: NI) -> None:
        """Take the NI's place on the fabric. Raises LNetError."""
        ni.lnd_data = SimStation(self._core, ni, self._carrier)

    def shutdown(self, ni: NI) -> None:
        """Leave it, and finalize all messages of the NI."""
        assert isinstance(ni.lnd_data, SimStation)
        ni.lnd_data.shut()

    def retune(self, ni: NI, timeout: float) -> None:
        """Messages and connections have so many seconds from now on."""
        assert isinstance(ni.lnd_data, SimStation)
        ni.lnd_data.timeout = timeout

    def send(self, ni: NI, msg: Msg) -> None:
        """Queue msg for its next hop."""
        assert isinstance(ni.lnd_data, SimStation)
        ni.lnd_data.send(msg)

    def recv(
        self, ni: NI, rx: object, msg: Msg | None, buffers: list[memoryview], mlen: int, rlen: int
    ) -> None:
        """Where the payload of the arrival `rx` goes."""
        assert isinstance(ni.lnd_data, SimStation)
        ni.lnd_data.recv(rx, msg, buffers, mlen, rlen)
