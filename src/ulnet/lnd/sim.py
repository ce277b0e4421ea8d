"""The simulator's driver: real headers and payload as bytes, over a fabric that somebody else makes.

What a fabric must offer stands here as protocols; `ulnet.sim` has one. Errors become health statuses by
the rules of the TCP driver.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ulnet.core.msg import Incoming, Msg
from ulnet.core.ni import NI
from ulnet.core.status import HealthStatus
from ulnet.lnd.contract import Inbound, NiEvent, Upcalls
from ulnet.lnd.tcp.errors import connect_status, send_status
from ulnet.nid import NetType, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import HEADER_SIZE, LARGE_HEADER_SIZE, Header, unpack_header

__all__ = ["Arrival", "Carrier", "Frame", "Outlet", "SimLnd", "SimStation", "Station", "Why"]


_SMALL: Final = 16384  # bytes of a frame that is looked at when it is whole


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


class _Rx:
    """The payload of a message that arrives: where it goes, once the core has said so."""

    __slots__ = ("arrival", "buffers", "complete", "incoming", "receiver", "small", "station", "wanted")

    def __init__(self, station: SimStation, arrival: Arrival, receiver: Inbound) -> None:
        self.station = station
        self.arrival = arrival
        self.receiver = receiver
        self.small: Header | None = None  # it is shown when it is whole
        self.wanted = False
        self.complete = False
        self.incoming: Incoming | None = None
        self.buffers: list[memoryview] = []

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """Where the payload goes."""
        assert not self.wanted, "take called twice for one message"
        room = 0
        for view in buffers:
            room += view.nbytes
        assert room == mlen <= rlen
        self.wanted = True
        self.incoming = incoming
        self.buffers = buffers
        if self.complete:
            self.station.read(self)

    def abandon(self, incoming: Incoming) -> bool:
        """The payload goes nowhere, and nobody waits for it; False if it does not arrive."""
        if self.incoming is not incoming or not self.station.awaits(self):
            return False
        self.incoming = None
        self.buffers = []
        return True


class SimStation:
    """One NI on the fabric."""

    def __init__(self, core: Upcalls, ni: NI, carrier: Carrier) -> None:
        self.nid = ni.nid
        self._is_large = ni.nid.is_large
        self.timeout = float(ni.lnd_tunables.timeout) if ni.lnd_tunables is not None else 50.0
        self._core = core
        self._ni = ni
        self.flying: dict[Frame, Msg] = {}  # what the core has handed over and not got back
        self._rx: dict[Arrival, _Rx] = {}
        self._receivers: dict[Nid, Inbound] = {}
        self._headers: dict[Nid, tuple[bytes, Header]] = {}  # the last of each
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
                self._core.completed([msg], status, number, reason)

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
            self._core.completed([msg])
            return
        number, reason, unconnected, msg.unsent = failed
        if not unconnected:
            status = send_status(number)
        elif number == errno.EALREADY:  # the pause after a failed attempt lasts
            number, status = errno.EHOSTUNREACH, HealthStatus.REMOTE_ERROR
        else:
            status = connect_status(number)
        self._core.completed([msg], status, number, reason)

    # Receiving ----------------------------------------------------------------------------------------

    def arrived(self, arrival: Arrival) -> None:
        """A header is there: small messages are looked at when they are whole."""
        frame = arrival.frame
        size = len(frame.header)
        known = self._headers.get(arrival.source)
        if known is not None and known[0] == frame.header:
            hdr = known[1]
        else:
            try:
                if size not in (HEADER_SIZE, LARGE_HEADER_SIZE):
                    raise WireError(f"{size} bytes are no LNet header")
                hdr = unpack_header(frame.header, 0, size == LARGE_HEADER_SIZE)
            except WireError as bad:
                arrival.refuse(str(bad))
                return
            self._headers[arrival.source] = frame.header, hdr
        receiver = self._receivers.get(arrival.source)
        if receiver is None:
            receiver = self._receivers[arrival.source] = self._core.receiver(self._ni, arrival.source)
        if frame.size < _SMALL and hdr.payload_length == len(frame.payload):
            self._deliver(arrival, hdr, receiver)
        else:
            self._begin(arrival, hdr, receiver)

    def _deliver(self, arrival: Arrival, hdr: Header, receiver: Inbound) -> None:
        """A small message: from the buffer that it was read to into its memory."""
        frame = arrival.frame
        if not frame.payload:
            buf = bytearray(frame.header)
            if not receiver.deliver(hdr, frame.header, buf, memoryview(buf), 0, len(buf)):
                self._begin(arrival, hdr, receiver)
            return
        rx = self._rx[arrival] = _Rx(self, arrival, receiver)
        rx.wanted = True
        rx.small = hdr

    def _begin(self, arrival: Arrival, hdr: Header, receiver: Inbound) -> None:
        rx = _Rx(self, arrival, receiver)
        if hdr.payload_length:
            self._rx[arrival] = rx
        refused = receiver.begin(hdr, rx)
        if refused:
            self._rx.pop(arrival, None)
            arrival.refuse("the message breaks LNet's rules")
        elif hdr.payload_length != len(arrival.frame.payload):
            arrival.refuse("its payload has another length than its header tells")

    def awaits(self, rx: _Rx) -> bool:
        """Whether that payload still arrives."""
        return self._rx.get(rx.arrival) is rx

    def completed(self, arrival: Arrival) -> None:
        """The payload is there: into its memory, if that is known."""
        rx = self._rx[arrival]
        hdr = rx.small
        if hdr is None:
            rx.complete = True
            if rx.wanted:
                self.read(rx)
            return
        del self._rx[arrival]
        frame = arrival.frame
        buf = bytearray(frame.header + frame.payload)
        if rx.receiver.deliver(hdr, frame.header, buf, memoryview(buf), 0, len(buf)):
            arrival.taken()
            return
        rx = self._rx[arrival] = _Rx(self, arrival, rx.receiver)
        rx.complete = True
        if rx.receiver.begin(hdr, rx):
            self._rx.pop(arrival, None)
            arrival.refuse("the message breaks LNet's rules")

    def read(self, rx: _Rx) -> None:
        """All of a payload is there, and its place is known."""
        del self._rx[rx.arrival]
        data = rx.arrival.frame.payload
        at = 0
        for view in rx.buffers:
            view[:] = data[at : at + view.nbytes]
            at += view.nbytes
        rx.arrival.taken()
        if rx.incoming is not None:
            rx.receiver.end(rx.incoming)

    def lost(self, arrival: Arrival, errno: int, reason: str) -> None:
        """The payload will never come."""
        rx = self._rx.pop(arrival, None)
        if rx is None or rx.small is not None:
            return
        if not rx.wanted:
            self._core.forget_rx(rx)
        elif rx.incoming is not None:
            rx.receiver.end(rx.incoming, send_status(errno), errno, reason)

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
        for arrival in list(self._rx):
            self.lost(arrival, number, reason)
        for receiver in self._receivers.values():
            receiver.close()
        for frame, msg in list(self.flying.items()):
            if self.flying.pop(frame, None) is not None:
                msg.unsent = False
                self._core.completed([msg], status, number, reason)

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
        ni.batches = True  # as those of the TCP driver: messages that wait together leave together
        ni.lnd_data = SimStation(self._core, ni, self._carrier)

    def shutdown(self, ni: NI) -> None:
        """Leave it, and complete all messages of the NI."""
        assert isinstance(ni.lnd_data, SimStation)
        ni.lnd_data.shut()

    def retune(self, ni: NI, timeout: float) -> None:
        """Messages and connections have so many seconds from now on."""
        assert isinstance(ni.lnd_data, SimStation)
        ni.lnd_data.timeout = timeout

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Queue messages for their next hop."""
        assert isinstance(ni.lnd_data, SimStation)
        for msg in msgs:
            ni.lnd_data.send(msg)
