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
from ulnet.lnd.base import is_bare
from ulnet.lnd.contract import Inbound, NiEvent, Upcalls
from ulnet.lnd.tcp.errors import connect_status, send_status
from ulnet.nid import NetType, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import HEADER_SIZE, LARGE_HEADER_SIZE, Header, unpack_header

__all__ = ["Arrival", "Attachment", "Carrier", "Frame", "SimLnd", "SimStation", "Station", "Why"]


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
        "bare",
        "begins",
        "deadline",
        "end",
        "gone",
        "header",
        "over",
        "patience",
        "payload",
        "read",
        "ready",
        "size",
        "token",
        "tries",
    )

    def __init__(self, header: bytes, payload: bytes, token: object) -> None:
        self.header: bytes = header
        self.payload: bytes = payload
        self.token: object = token
        self.size: int = len(header) + len(payload)
        self.bare: bool = False  # nobody acknowledges it
        self.over: bool = False  # the sender has been told
        self.ready: bool = False  # it is with the receiver's host
        self.read: bool = False  # … and was in a buffer that its node has read
        self.gone: bool = False  # it will never arrive
        self.tries: int = 0
        self.begins: float = 0.0  # when its first byte leaves
        self.end: float = 0.0  # when its last byte arrives
        self.deadline: float = 0.0
        self.patience: float = 0.0  # seconds that its sender gave it


class Arrival(Protocol):
    """A frame that arrives: its header is there, its payload follows."""

    source: Nid
    frame: Frame

    def taken(self) -> None:
        """All of it is read: the next one may come."""

    def refuse(self, why: str) -> None:
        """The sender broke the protocol: close the connection."""


class Station(Protocol):
    """The node behind a NID on the fabric."""

    nid: Nid
    timeout: float  # seconds a message may be under way

    def sent(self, frame: Frame, failed: Why | None) -> None:
        """The frame left, or it failed."""

    def waits(self, frame: Frame) -> None:
        """There is no connection for the frame yet."""

    def goes(self, frame: Frame) -> None:
        """There is one now."""

    def returned(self, frame: Frame) -> None:
        """Nothing of the frame left, and nothing will: the path is stuck. In the place of `sent`."""

    def progress(self, nid: Nid, stuck: bool) -> None:
        """What was sent to nid makes no progress, or does again."""

    def broke(self, nid: Nid) -> None:
        """The connection with nid broke, and none is being made."""

    def in_doubt(self, nid: Nid, count: int) -> None:
        """The connection with nid broke, and so many bare frames that had left are perhaps lost with it."""

    def unconnected(self, nid: Nid, errno: int) -> None:
        """An attempt to connect to nid came to nothing."""

    def restarted(self, nid: Nid, heard: bool = True) -> None:
        """Another life of a node, or another node, is behind nid, which was heard or cannot be called."""

    def read(self, source: Nid, frames: list[Frame], rest: bytes) -> int:
        """One buffer has these frames of source, small and whole, and then `rest`, the beginning of another.

        How many of them are done with, from the first on. The others are told of one by one.
        """

    def arrived(self, arrival: Arrival) -> None:
        """A header is there."""

    def completed(self, arrival: Arrival) -> None:
        """All of its payload is there."""

    def lost(self, arrival: Arrival, errno: int, reason: str) -> None:
        """Its connection broke before it was taken."""

    def why_denied(self, nid: Nid) -> str:
        """Why its access lists deny nid to connect; "" if they do not."""

    def device(self, up: bool) -> None:
        """The cable was pulled, or is back."""


class Attachment(Protocol):
    """A station's place on the fabric."""

    def send(self, dest: Nid, frame: Frame) -> None:
        """Carry the frame; `Station.sent` tells later how that went."""

    def verify(self, dest: Nid) -> bool:
        """See whether the node behind dest has begun a new life, and end what goes to the former one.

        Whether there is a connection with it.
        """

    def end_denied(self) -> None:
        """End connections, and attempts to make some, with those that are denied now."""

    def close(self) -> None:
        """Leave: connections end, and nothing more is told."""


class Carrier(Protocol):
    """A host's cables."""

    def open(self, station: Station) -> Attachment:
        """A place for a station. Raises LNetError."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call later, outside the caller's stack."""


class _Rx:
    """The payload of a message that arrives: where it goes, once the core has said so."""

    __slots__ = ("arrival", "buffers", "complete", "incoming", "receiver", "station", "wanted")

    def __init__(self, station: SimStation, arrival: Arrival, receiver: Inbound) -> None:
        self.station: SimStation = station
        self.arrival: Arrival = arrival
        self.receiver: Inbound = receiver
        self.wanted: bool = False
        self.complete: bool = False
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
            self.station.fill(self)

    def abandon(self, incoming: Incoming) -> bool:
        """The payload goes nowhere, and nobody waits for it; False if it does not arrive."""
        if self.incoming is not incoming or not self.station.awaits(self):
            return False
        self.incoming = None
        self.buffers = []
        return True

    def unanswered(self) -> None:
        """Who asked hears nothing, as with TCP."""


class SimStation:
    """One NI on the fabric."""

    def __init__(self, core: Upcalls, ni: NI, carrier: Carrier) -> None:
        self.nid: Nid = ni.nid
        self._is_large = ni.nid.is_large
        self.timeout: float = float(ni.timeout)
        self._core = core
        self._ni = ni
        self.flying: dict[Frame, Msg] = {}  # what the core has handed over and not got back
        self._rx: dict[Arrival, _Rx] = {}
        self._receivers: dict[Nid, Inbound] = {}
        self._headers: dict[Nid, tuple[bytes, Header]] = {}  # the last of each
        self._soon = carrier.soon
        self._attachment = carrier.open(self)
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
        frame.bare = is_bare(msg)
        if msg.md is not None and msg.md.timeout is not None:
            frame.patience = msg.md.timeout
        self.flying[frame] = msg
        self._attachment.send(dest, frame)

    def _fail_soon(self, msg: Msg, status: HealthStatus, number: int, reason: str) -> None:
        frame = Frame(b"", b"", msg)
        self.flying[frame] = msg

        def fail() -> None:
            if self.flying.pop(frame, None) is not None:
                msg.unsent = True
                self._core.completed([msg], status, number, reason)

        self._soon(fail)

    def verify(self, nid: Nid) -> bool:
        """See whether the node behind nid has begun a new life."""
        return self._open and self._attachment.verify(nid)

    def waits(self, frame: Frame) -> None:
        """Tell the core."""
        self._core.awaits_connection([self.flying[frame]])

    def goes(self, frame: Frame) -> None:
        """Tell the core."""
        self._core.has_connection([self.flying[frame]])

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

    def in_doubt(self, nid: Nid, count: int) -> None:
        """Tell the core."""
        self._core.in_doubt(self._ni, nid, count)

    def unconnected(self, nid: Nid, errno: int) -> None:
        """Tell the core."""
        self._core.unconnected(self._ni, nid, errno)

    def restarted(self, nid: Nid, heard: bool = True) -> None:
        """Tell the core."""
        self._core.peer_restarted(nid, heard)

    def sent(self, frame: Frame, failed: Why | None) -> None:
        """The wire is done with a frame."""
        msg = self.flying.pop(frame)
        if failed is None:
            self._core.completed([msg])
            return
        number, reason, unconnected, msg.unsent = failed
        if not unconnected:
            status = send_status(number)
        elif number == errno.EACCES:  # our access lists
            status = HealthStatus.REMOTE_ERROR
        elif number == errno.EALREADY:  # the pause after a failed attempt lasts
            number, status = errno.EHOSTUNREACH, HealthStatus.REMOTE_ERROR
        else:
            status = connect_status(number)
        self._core.completed([msg], status, number, reason)

    # Receiving ----------------------------------------------------------------------------------------

    def read(self, source: Nid, frames: list[Frame], rest: bytes) -> int:
        """Messages that lie one behind the other in a buffer: as many as the core takes."""
        buf = bytearray().join([part for frame in frames for part in (frame.header, frame.payload)])
        buf += rest
        view, end = memoryview(buf), len(buf)
        receiver = self._receiver(source)
        known = self._headers.get(source)
        pos = taken = behind = 0  # `behind` the frames that were taken
        while taken < len(frames) and self._open:
            if known is not None:  # perhaps the next message is like the last one, as most are
                pos = receiver.deliver(known[1], known[0], buf, view, pos, end)
            if pos == behind:
                frame = frames[taken]
                if known is not None and known[0] == frame.header:
                    break
                known = self._known(source, frame.header)
                if known is None or known[1].payload_length != len(frame.payload):
                    break
                pos = receiver.deliver(known[1], known[0], buf, view, pos, end)
            if pos == behind:
                break
            while behind < pos:
                behind += frames[taken].size
                taken += 1
            assert behind == pos, "deliver took half of a message"
        return taken

    def _receiver(self, source: Nid) -> Inbound:
        receiver = self._receivers.get(source)
        if receiver is None:
            receiver = self._receivers[source] = self._core.receiver(self._ni, source)
        return receiver

    def _known(self, source: Nid, header: bytes) -> tuple[bytes, Header] | None:
        """The bytes of a header and what they say, kept as the last from source; None: it is none."""
        size = len(header)
        if size not in (HEADER_SIZE, LARGE_HEADER_SIZE):
            return None
        try:
            known = header, unpack_header(header, 0, size == LARGE_HEADER_SIZE)
        except WireError:
            return None
        self._headers[source] = known
        return known

    def arrived(self, arrival: Arrival) -> None:
        """A header is there: small messages are looked at when they are whole."""
        frame = arrival.frame
        if frame.size >= _SMALL:
            self._begin(arrival)
        elif not frame.payload:
            self._take(arrival)

    def _take(self, arrival: Arrival) -> None:
        """A small message, which is whole."""
        if not self.read(arrival.source, [arrival.frame], b""):
            self._begin(arrival)
        elif arrival.frame.payload:
            arrival.taken()

    def _begin(self, arrival: Arrival) -> None:
        frame, source = arrival.frame, arrival.source
        known = self._headers.get(source)
        if known is None or known[0] != frame.header:
            known = self._known(source, frame.header)
            if known is None:
                arrival.refuse(f"{len(frame.header)} bytes that are no LNet header")
                return
        hdr = known[1]
        fits = hdr.payload_length == len(frame.payload)
        rx = _Rx(self, arrival, self._receiver(source))
        rx.complete = fits and frame.size < _SMALL
        if hdr.payload_length:
            self._rx[arrival] = rx
        if rx.receiver.begin(hdr, rx):
            self._rx.pop(arrival, None)
            arrival.refuse("the message breaks LNet's rules")
        elif not fits:
            why = "its payload has another length than its header tells"
            arrival.refuse(why)
            self.lost(arrival, errno.EPROTO, why)

    def awaits(self, rx: _Rx) -> bool:
        """Whether that payload still arrives."""
        return self._rx.get(rx.arrival) is rx

    def completed(self, arrival: Arrival) -> None:
        """The payload is there: into its memory, if that is known."""
        rx = self._rx.get(arrival)
        if rx is None:
            self._take(arrival)
            return
        rx.complete = True
        if rx.wanted:
            self.fill(rx)

    def fill(self, rx: _Rx) -> None:
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
        if rx is None:
            return
        if not rx.wanted:
            self._core.forget_rx(rx)
        elif rx.incoming is not None:
            rx.receiver.end(rx.incoming, send_status(errno), errno, reason)

    # Access lists, the device and the end --------------------------------------------------------------

    def device(self, up: bool) -> None:
        """Tell the core."""
        if self._open:
            self._core.ni_event(self._ni, NiEvent.RECOVERED if up else NiEvent.FATAL)

    def why_denied(self, nid: Nid) -> str:
        """Ask the core."""
        return self._core.why_denied(self._ni, nid)

    def end_denied(self) -> None:
        """Those who are denied now are connected no more."""
        if self._open:
            self._attachment.end_denied()

    def shut(self) -> None:
        """End everything at once."""
        self._open = False
        self._attachment.close()
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
        return HealthStatus.LOCAL_ERROR, errno.ESHUTDOWN, f"the local interface {self.nid} has been shut down"


class SimLnd:
    """A driver for all nets of one type of a node, over the cables of its host."""

    reports_timeout = True

    def __init__(self, core: Upcalls, carrier: Carrier, net_type: NetType = NetType.TCP) -> None:
        self.name = net_type.name.lower()
        self.net_type: int = int(net_type)
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

    def access_changed(self, ni: NI) -> None:
        """Connections with those who are denied now end, also those that are being made."""
        assert isinstance(ni.lnd_data, SimStation)
        ni.lnd_data.end_denied()

    def verify(self, ni: NI, nid: Nid) -> bool:
        """See whether the node behind nid has begun a new life."""
        assert isinstance(ni.lnd_data, SimStation)
        return ni.lnd_data.verify(nid)

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Queue messages for their next hop."""
        assert isinstance(ni.lnd_data, SimStation)
        for msg in msgs:
            ni.lnd_data.send(msg)
