"""One direction of a connection: when a message leaves, when it arrives, what becomes of lost ones.

What is lost is sent again after 0.2 s, then 0.4 s…; a message that does not get through within its
sender's time-out breaks the connection. Small messages count as sent once they left; bulk once the other
host has it. A message whose payload nobody takes yet holds up its stream.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.lnd.sim import Frame
    from ulnet.sim.cables import Port
    from ulnet.sim.conn import Conn
    from ulnet.sim.outlet import Outlet

__all__ = ["BULK", "Stream"]

BULK: Final = 1024  # from here on a message goes with the bulk (socklnd's min_bulk)
_ZERO_COPY: Final = 16384  # from here on the sender waits until the other host has it
_FIRST_RETRY: Final = 0.2
_LONGEST_RETRY: Final = 60.0
_STUCK_AFTER: Final = 2  # times that a message is sent again, a path counts as stuck


class _Arrival:
    """A frame that has begun to arrive."""

    __slots__ = ("_stream", "frame", "gone", "source")

    def __init__(self, stream: Stream, frame: Frame) -> None:
        self._stream = stream
        self.frame = frame
        self.source = stream.src.nid
        self.gone = False

    def taken(self) -> None:
        """The next one may come."""
        if not self.gone:
            self.gone = True
            self._stream.taken(self)

    def abandon(self, msg: Msg) -> bool:
        """The payload of msg, which is this one, goes nowhere; False if nobody is to get it any more."""
        return not self.gone and self._stream.dst.station.abandon(self, msg)

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


class Stream:
    """One direction of a connection, for small messages or for bulk."""

    __slots__ = ("arriving", "conn", "dst", "last", "ordered", "queue", "src")

    def __init__(self, conn: Conn, src: Outlet, dst: Outlet) -> None:
        self.conn = conn
        self.src = src
        self.dst = dst
        self.ordered = src.port.params.ordered and dst.port.params.ordered
        self.last = 0.0  # when the frame before arrives
        self.queue: list[Frame] = []  # sent, and not with the receiver yet
        self.arriving: dict[_Arrival, None] = {}  # with the receiver, and not taken yet

    def push(self, frame: Frame) -> None:
        """Send a frame: plan when it leaves and when it arrives."""
        fabric = self.conn.fabric
        scheduler = fabric.scheduler
        src, dst = self.src.port, self.dst.port
        rate = src.params.rate
        takes = frame.size / rate if rate else 0.0
        # Packets of small messages go between those of bulk: they need not wait for it.
        start = frame.begins = scheduler.now if frame.size < BULK else max(scheduler.now, src.tx_free)
        departs = start + takes
        src.tx_free = max(src.tx_free, scheduler.now) + takes
        src.sent += frame.size
        latency = fabric.latency(src, dst)
        arrives = start + latency
        if self.ordered:
            arrives = self.last = max(arrives, self.last)
        frame.end = max(departs + latency, arrives)
        frame.deadline = departs + self.src.station.timeout
        self.queue.append(frame)
        fabric.under_way += 1
        if fabric.note is not None:
            fabric.note(f"send {self.src} > {self.dst.nid} {frame.header.hex()} +{len(frame.payload)}")
        if len(frame.payload) < _ZERO_COPY:
            scheduler.at(departs, self._departed, frame)
        scheduler.at(arrives, self._arrive, frame)

    def _departed(self, frame: Frame) -> None:
        if not (frame.over or frame.gone):
            self.conn.done(self.src, frame)

    def _arrive(self, frame: Frame) -> None:
        if frame.gone:
            return
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
            self._enter(frame, dst)

    def _enter(self, frame: Frame, dst: Port) -> None:
        """It comes in at the rate of the receiver's link, bulk behind what comes in already."""
        scheduler = self.conn.fabric.scheduler
        now = scheduler.now
        rate = dst.params.rate
        takes = frame.size / rate if rate else 0.0
        begins = now if frame.size < BULK else max(now, dst.rx_free)
        dst.rx_free = max(dst.rx_free, now) + takes
        frame.end = max(frame.end, begins + takes)
        if begins > now:
            scheduler.at(begins, self._ready, frame)
        else:
            self._ready(frame)

    def _ready(self, frame: Frame) -> None:
        frame.ready = True
        self._pump()

    def _again(self, frame: Frame, what: Callable[[Frame], None]) -> None:
        """The frame, or what acknowledges it, got lost."""
        scheduler = self.conn.fabric.scheduler
        frame.tries += 1
        if frame.tries == _STUCK_AFTER:
            self.conn.stuck(self.src)
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
            while queue[-1] is not frame:
                self._forget(queue[-1])
        self._forget(frame)

    def withdraw(self) -> list[Frame]:
        """Take out what has not begun to leave."""
        now = self.conn.fabric.scheduler.now
        unbegun = [frame for frame in self.queue if frame.begins > now and not frame.over]
        for frame in unbegun:
            self._forget(frame)
        return unbegun

    def _forget(self, frame: Frame) -> None:
        frame.gone = True
        self.queue.remove(frame)
        self.conn.fabric.under_way -= 1

    def _pump(self) -> None:
        queue = self.queue
        if self.ordered:
            while queue and queue[0].ready and not self.arriving:
                self._deliver(queue.pop(0))
            return
        for frame in [frame for frame in queue if frame.ready]:
            if not frame.gone:
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
        if fabric.meter is not None:
            rate = dst.port.params.rate
            begins = frame.end - frame.size / rate if rate else frame.end
            fabric.meter(dst.port, begins, frame.end, frame.size)
        if fabric.note is not None:
            fabric.note(f"arrive {self.src} > {dst.nid} {frame.header.hex()} +{len(frame.payload)}")
        self._acknowledge(frame)
        arrival = _Arrival(self, frame)
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

    def taken(self, arrival: _Arrival) -> None:
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
        elif not frame.over or self.conn.is_stuck(self.src):
            latency = fabric.latency(self.dst.port, self.src.port)
            fabric.scheduler.at(max(frame.end, fabric.scheduler.now) + latency, self._acknowledged, frame)

    def _acknowledged(self, frame: Frame) -> None:
        if not self.conn.is_open(self.src):
            return
        if self.conn.fabric.blocked(self.dst.port, self.src.port):
            self._again(frame, self._acknowledged)
        else:
            self.conn.moves(self.src)
            self.conn.done(self.src, frame)
