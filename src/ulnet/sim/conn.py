"""A connection between two NIDs: reliable and in order, like TCP; it breaks by silence or by a reset.

What is lost is sent again after 0.2 s, then 0.4 s…; a message that does not get through within its
sender's time-out breaks the connection. Small messages and bulk have a stream each, as with typed socklnd
connections, so that the small ones overtake. Small ones count as sent once they left; bulk once the
other host has it. A message whose payload nobody takes yet holds up its stream.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ulnet.lnd.sim import Frame
    from ulnet.nid import Nid
    from ulnet.sim.cables import Fabric
    from ulnet.sim.outlet import Outlet

__all__ = ["Conn"]

_BULK: Final = 1024  # from here on a message goes with the bulk (socklnd's min_bulk)
_ZERO_COPY: Final = 16384  # from here on the sender waits until the other host has it
_FIRST_RETRY: Final = 0.2
_LONGEST_RETRY: Final = 60.0
_FIRST_SYN_RETRY: Final = 1.0
_NO_NEIGHBOUR: Final = 3.0  # seconds until an address that nobody has counts as unreachable


class SimArrival:
    """A frame that has begun to arrive."""

    __slots__ = ("_stream", "frame", "gone", "source")

    def __init__(self, stream: _Stream, frame: Frame) -> None:
        self._stream = stream
        self.frame = frame
        self.source = stream.src.nid
        self.gone = False

    def taken(self) -> None:
        """The next one may come."""
        if not self.gone:
            self.gone = True
            self._stream.taken(self)

    def refuse(self, why: str) -> None:
        """Close the connection, because the peer breaks the rules."""
        if not self.gone:
            stream = self._stream
            stream.conn.close(stream.dst, errno.EPROTO, f"{stream.src.nid} breaks the protocol: {why}")

    def lost(self, number: int, why: str) -> None:
        """The connection broke."""
        self.gone = True
        stream = self._stream
        del stream.arriving[self]
        stream.conn.fabric.under_way -= 1
        if not stream.dst.closed:
            stream.dst.port.host.touch()
            stream.dst.station.lost(self, number, why)

    def complete(self) -> None:
        """The last byte is there."""
        if not self.gone:
            dst = self._stream.dst
            dst.port.host.touch()
            dst.station.completed(self)


class _Stream:
    """One direction of a connection, for small messages or for bulk."""

    __slots__ = ("arriving", "conn", "dst", "last", "ordered", "queue", "src")

    def __init__(self, conn: Conn, src: Outlet, dst: Outlet) -> None:
        self.conn = conn
        self.src = src
        self.dst = dst
        self.ordered = src.port.params.ordered and dst.port.params.ordered
        self.last = 0.0  # when the frame before arrives
        self.queue: deque[Frame] = deque()  # sent, and not with the receiver yet
        self.arriving: dict[SimArrival, None] = {}  # with the receiver, and not taken yet

    def push(self, frame: Frame) -> None:
        """Send a frame: plan when it leaves and when it arrives."""
        fabric = self.conn.fabric
        scheduler = fabric.scheduler
        src, dst = self.src.port, self.dst.port
        out, into = src.params.rate, dst.params.rate
        start = max(scheduler.now, src.tx_free)
        departs = src.tx_free = start + (frame.size / out if out else 0.0)
        src.sent += frame.size
        latency = fabric.latency(src, dst)
        arrives = max(start + latency, dst.rx_free)
        if self.ordered:
            arrives = max(arrives, self.last)
        frame.end = dst.rx_free = max(departs + latency, arrives + (frame.size / into if into else 0.0))
        self.last = arrives
        frame.deadline = departs + self.src.station.timeout
        self.queue.append(frame)
        fabric.under_way += 1
        if fabric.note is not None:
            fabric.note(f"send {self.src} > {self.dst.nid} {frame.header.hex()} +{len(frame.payload)}")
        if len(frame.payload) < _ZERO_COPY:
            scheduler.at(departs, self._departed, frame)
        scheduler.at(arrives, self._arrive, frame)

    def _departed(self, frame: Frame) -> None:
        if not frame.over:
            self.conn.done(self.src, frame)

    def _arrive(self, frame: Frame) -> None:
        conn = self.conn
        if not conn.is_open(self.src) and not frame.over:
            self.drop(frame)
            return
        fabric = conn.fabric
        src, dst = self.src.port, self.dst.port
        loss = 1 - (1 - src.params.loss) * (1 - dst.params.loss)
        if fabric.blocked(src, dst) or (loss and fabric.random() < loss):
            self._again(frame, self._arrive)
        else:
            frame.ready = True
            self._pump()

    def _again(self, frame: Frame, what: Callable[[Frame], None]) -> None:
        """The frame, or what acknowledges it, got lost."""
        scheduler = self.conn.fabric.scheduler
        frame.tries += 1
        when = scheduler.now + min(_FIRST_RETRY * 2 ** (frame.tries - 1), _LONGEST_RETRY)
        frame.end = max(frame.end, when)
        if not self.conn.is_open(self.src):  # nobody is left to send it again
            self.drop(frame)
        elif when <= frame.deadline:
            scheduler.at(when, what, frame)
        else:
            scheduler.at(frame.deadline, self._timed_out, frame)

    def _timed_out(self, frame: Frame) -> None:
        src = self.src
        why = f"timed out: {self.dst.nid} took none of our data for {src.station.timeout:g} s"
        self.conn.close(src, errno.ETIMEDOUT, why)
        self.drop(frame)

    def drop(self, frame: Frame) -> None:
        """It never arrives, and in order nothing behind it does."""
        queue = self.queue
        if frame not in queue:
            return
        if self.ordered:
            while queue.pop() is not frame:
                self.conn.fabric.under_way -= 1
        else:
            queue.remove(frame)
        self.conn.fabric.under_way -= 1

    def _pump(self) -> None:
        queue = self.queue
        if self.ordered:
            while queue and queue[0].ready and not self.arriving:
                self._deliver(queue.popleft())
            return
        for frame in [frame for frame in queue if frame.ready]:
            queue.remove(frame)
            self._deliver(frame)

    def _deliver(self, frame: Frame) -> None:
        conn, dst = self.conn, self.dst
        fabric = conn.fabric
        fabric.under_way -= 1
        if not conn.is_open(dst):
            conn.reset(self.src, dst)
            return
        dst.port.received += frame.size
        if fabric.note is not None:
            fabric.note(f"arrive {self.src} > {dst.nid} {frame.header.hex()} +{len(frame.payload)}")
        self._acknowledge(frame)
        arrival = SimArrival(self, frame)
        dst.port.host.touch()
        if not frame.payload:
            dst.station.arrived(arrival)
            return
        self.arriving[arrival] = None
        fabric.under_way += 1
        dst.station.arrived(arrival)
        if frame.end > fabric.scheduler.now:
            fabric.scheduler.at(frame.end, arrival.complete)
        else:
            arrival.complete()

    def taken(self, arrival: SimArrival) -> None:
        """The receiver has read a frame."""
        del self.arriving[arrival]
        fabric = self.conn.fabric
        fabric.under_way -= 1
        self.pump_soon()

    def pump_soon(self) -> None:
        """The next one may be delivered."""
        if self.queue:
            self.conn.fabric.scheduler.after(0.0, self._pump)

    def _acknowledge(self, frame: Frame) -> None:
        fabric = self.conn.fabric
        frame.tries = 0
        if fabric.blocked(self.dst.port, self.src.port):
            self._again(frame, self._acknowledged)
        elif not frame.over:
            latency = fabric.latency(self.dst.port, self.src.port)
            fabric.scheduler.at(max(frame.end, fabric.scheduler.now) + latency, self._acknowledged, frame)

    def _acknowledged(self, frame: Frame) -> None:
        if not self.conn.is_open(self.src):
            return
        if self.conn.fabric.blocked(self.dst.port, self.src.port):
            self._again(frame, self._acknowledged)
        else:
            self.conn.done(self.src, frame)


class Conn:
    """One connection, and what waits for it; `a` is who calls."""

    __slots__ = (
        "_flying",
        "_peers",
        "_started",
        "_streams",
        "_tries",
        "_waiting",
        "a",
        "b",
        "dest",
        "fabric",
    )

    def __init__(self, fabric: Fabric, a: Outlet, dest: Nid) -> None:
        self.fabric = fabric
        self.a = a
        self.b: Outlet | None = None  # once it is established; a NID that calls itself is both
        self.dest = dest
        self._peers: dict[Outlet, Outlet | None] = {a: None}  # of each side that has it open
        self._waiting: list[Frame] = []
        self._flying: dict[Outlet, dict[Frame, None]] = {a: {}}  # whose fate the sender does not know
        self._streams: dict[tuple[Outlet, bool], _Stream] = {}
        self._started = 0.0
        self._tries = 0

    def is_open(self, side: Outlet) -> bool:
        """Whether that side has it open."""
        return side in self._peers

    @property
    def established(self) -> bool:
        """Whether there is another side."""
        return self.b is not None

    def send(self, side: Outlet, frame: Frame) -> None:
        """Send a frame, or let it wait for the connection."""
        if not self.established:
            self._waiting.append(frame)
            self.fabric.under_way += 1
            return
        self._flying[side][frame] = None
        self._stream(side, frame.size >= _BULK).push(frame)

    def _stream(self, side: Outlet, bulk: bool) -> _Stream:
        stream = self._streams.get((side, bulk))
        if stream is None:
            other = self.b if side is self.a else self.a
            assert other is not None
            stream = self._streams[side, bulk] = _Stream(self, side, other)
        return stream

    def done(self, side: Outlet, frame: Frame) -> None:
        """The frame left, or is with the other host."""
        if self._flying[side].pop(frame, frame) is None:
            side.report(frame, None)

    # Connecting ---------------------------------------------------------------------------------------

    def dial(self) -> None:
        """Begin to connect."""
        fabric, port = self.fabric, self.a.port
        self._started = fabric.scheduler.now
        there = port.switch.ports.get(_address(self.dest))
        latency = fabric.latency(port, there or port)
        fabric.scheduler.after(4 * latency, self._handshake)

    def _handshake(self) -> None:
        a, fabric = self.a, self.fabric
        if not self.is_open(a) or self.established:
            return
        port = a.port
        there = port.switch.ports.get(_address(self.dest))
        waited = fabric.scheduler.now - self._started
        if not port.live:
            self._dial_failed(errno.ENETUNREACH, f"the network of {a.nid} is down")
        elif there is None:
            if waited < _NO_NEIGHBOUR:
                fabric.scheduler.after(_NO_NEIGHBOUR - waited + 1e-6, self._handshake)
            else:
                self._dial_failed(errno.EHOSTUNREACH, f"no route to {self.dest}: no host has that address")
        elif fabric.blocked(port, there) or fabric.blocked(there, port):
            self._call_again(waited)
        else:
            self._reached(port.switch.outlets.get(self.dest))

    def _call_again(self, waited: float) -> None:
        timeout = self.a.station.timeout
        if waited >= timeout:
            self._dial_failed(errno.ETIMEDOUT, f"timed out after {timeout:g} s: {self.dest} does not answer")
            return
        pause = min(_FIRST_SYN_RETRY * 2**self._tries, timeout - waited)
        self._tries += 1
        self.fabric.scheduler.after(max(pause, 1e-6), self._handshake)

    def _reached(self, b: Outlet | None) -> None:
        if b is None:
            self._dial_failed(errno.ECONNREFUSED, f"connection refused: nobody is {self.dest} there")
            return
        other = b.conns.get(self.a.nid)
        waiting = self._waiting
        self._waiting = []
        self._establish(b)
        if other is not None and other is not self:
            if other.established:
                other.close(b, errno.ESTALE, f"{self.a.nid} has been restarted")
            else:
                for frame in other.give_up():
                    self.fabric.under_way -= 1
                    self.send(b, frame)
        for frame in waiting:
            self.fabric.under_way -= 1
            self.send(self.a, frame)

    def _establish(self, b: Outlet) -> None:
        a = self.a
        self.b = b
        self._peers = {a: b, b: a}
        self._flying.setdefault(b, {})
        a.connected(self.dest, self)
        b.connected(a.nid, self)
        if self.fabric.note is not None:
            self.fabric.note(f"connect {a} > {b}")

    def give_up(self) -> list[Frame]:
        """Stop calling: the other side called first. What waits is handed back."""
        self._peers.clear()
        waiting, self._waiting = self._waiting, []
        return waiting

    def _dial_failed(self, number: int, why: str) -> None:
        if self.fabric.note is not None:
            self.fabric.note(f"unconnected {self.a} > {self.dest} {number}")
        self.a.dial_failed(self.dest, why)
        self._end(self.a, number, why, unconnected=True)

    # The end ------------------------------------------------------------------------------------------

    def close(self, side: Outlet, number: int, why: str, tell_peer: bool = True) -> None:
        """One side closes; the other hears of it if it can. What had left may still arrive on a shutdown."""
        if not self.is_open(side):
            return
        peer = self._peers[side]
        if self.fabric.note is not None:
            self.fabric.note(f"close {side} {self.dest if side is self.a else self.a.nid} {number}")
        if tell_peer and peer is not None:
            self.reset(peer, side)
        self._end(side, number, why, unconnected=peer is None)

    def reset(self, side: Outlet, by: Outlet) -> None:
        """A reset is on its way to `side`."""
        latency = self.fabric.latency(by.port, side.port)
        self.fabric.scheduler.after(latency, self._reset_arrived, side, by)

    def _reset_arrived(self, side: Outlet, by: Outlet) -> None:
        if self.is_open(side) and not self.fabric.blocked(by.port, side.port):
            side.port.host.touch()
            self.close(side, errno.ECONNRESET, f"{by.nid} reset the connection", tell_peer=False)

    def _end(self, side: Outlet, number: int, why: str, unconnected: bool) -> None:
        del self._peers[side]
        far = self.dest if side is self.a else self.a.nid
        if side.conns.get(far) is self:
            del side.conns[far]
        waiting, self._waiting = self._waiting, []
        self.fabric.under_way -= len(waiting)
        flying = self._flying[side]
        streams = list(self._streams.values())
        for stream in streams:
            if stream.src is side:
                for frame in list(stream.queue):
                    if not frame.over or number == errno.ETIMEDOUT:
                        stream.drop(frame)
        for frame in (*waiting, *flying):
            side.report(frame, (number, why, unconnected))
        flying.clear()
        for stream in streams:
            if stream.dst is side:
                for arrival in list(stream.arriving):
                    if not arrival.gone:
                        arrival.lost(number, why)
                stream.pump_soon()


def _address(nid: Nid) -> str:
    return str(nid).partition("@")[0]
