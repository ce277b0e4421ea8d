"""One direction of a connection: when a message leaves, when it arrives, what becomes of lost ones.

What is lost is sent again after 0.2 s, then 0.4 s…; a message that does not get through within its
sender's time-out breaks the connection. Small messages count as sent once they left; large ones once the
other node has read them. A message whose payload nobody takes yet holds up its stream: small ones wait with
the receiver's host for as long as it takes, large ones break the connection after the sender's time-out. A
message that has begun to arrive and does not go on breaks it after the receiver's.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ulnet.lnd.sim import Frame
    from ulnet.nid import Nid
    from ulnet.sim.attachment import Attachment
    from ulnet.sim.cables import Port
    from ulnet.sim.conn import Conn

__all__ = ["BULK", "Stream"]

BULK: Final = 1024  # from here on a message goes with the bulk (socklnd's min_bulk)
_ZERO_COPY: Final = 16384  # from here on the sender waits until the other node has read it
_BUFFER: Final = 256 * 1024  # what a node reads in one go
_FIRST_RETRY: Final = 0.2
_LONGEST_RETRY: Final = 60.0
_STUCK_AFTER: Final = 2  # times that a message is sent again, a path counts as stuck
_LOOKS: Final = 10  # in a time-out: how often a stream that is not read is looked at


class _Arrival:
    """A frame that has begun to arrive."""

    __slots__ = ("_stream", "deadline", "frame", "gone", "latency", "never", "source", "tries")

    def __init__(self, stream: Stream, frame: Frame) -> None:
        self._stream = stream
        self.frame: Frame = frame
        self.source: Nid = stream.src.nid
        self.gone: bool = False
        self.never: bool = False  # its last byte never left: the sender's end came before
        self.latency: float = 0.0  # of what acknowledges it, once it is read
        self.tries: int = 0  # how often the rest of it was sent again
        self.deadline: float = 0.0  # when the receiver gives up, while the rest does not come

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
        if not self.frame.over:
            stream.unheard(self.frame)

    def complete(self) -> None:
        """The last byte is there, unless it got lost."""
        if self.gone:
            return
        stream = self._stream
        if stream.is_held_up(self):
            return
        dst = stream.dst
        scheduler, awake_at = stream.conn.fabric.scheduler, dst.port.host.awake_at
        if scheduler.now < awake_at:
            scheduler.at(awake_at, self.complete)
            return
        dst.port.host.touch()
        dst.station.completed(self)
        if not self.gone:  # nobody reads it yet
            stream.watch(self)


class Stream:
    """One direction of a connection, for small messages or for bulk."""

    __slots__ = ("_read_due", "arriving", "conn", "dst", "last", "ordered", "queue", "src")

    def __init__(self, conn: Conn, src: Attachment, dst: Attachment) -> None:
        self.conn: Conn = conn
        self.src: Attachment = src
        self.dst: Attachment = dst
        self.ordered: bool = src.port.params.ordered and dst.port.params.ordered
        self.last: float = 0.0  # when the frame before arrives
        self.queue: list[Frame] = []  # sent, and not with the receiver yet
        self.arriving: dict[_Arrival, None] = {}  # with the receiver, and not taken yet
        self._read_due = False  # the receiver reads in a moment

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
            fabric.faults["losses"] += 1
            self._again(frame, self._arrive)
        else:
            self._enter(frame, dst)

    def _enter(self, frame: Frame, dst: Port) -> None:
        """The frame comes in at the rate of the receiver's link, bulk behind what comes in already."""
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
        if len(self.queue) == 1 or not self.ordered:
            self._pump()
        elif not self._read_due:  # what follows on its heels is read with it
            self._read_due = True
            fabric = self.conn.fabric
            fabric.scheduler.after(fabric.lateness * fabric.reading(), self._read)

    def _read(self) -> None:
        self._read_due = False
        self._pump()

    def _again(self, frame: Frame, what: Callable[[Frame], None]) -> None:
        """The frame, or what acknowledges it, got lost."""
        scheduler = self.conn.fabric.scheduler
        frame.tries += 1
        if frame.tries == _STUCK_AFTER:
            self.conn.stuck(self.src)
        when = scheduler.now + _pause(frame.tries)
        frame.end = max(frame.end, when)
        if not self.conn.is_open(self.src):  # nobody is left to send it again
            self.drop(frame)
        elif when <= frame.deadline:
            scheduler.at(when, what, frame)
        else:
            scheduler.at(frame.deadline, self._timed_out, frame)

    def _timed_out(self, frame: Frame) -> None:
        self._time_out()
        self.drop(frame)

    def _time_out(self) -> None:
        """The sender gives up."""
        src = self.src
        why = f"timed out: {self.dst.nid} took none of our data for {src.station.timeout:g} s"
        self.conn.close(src, errno.ETIMEDOUT, why)

    def drop(self, frame: Frame) -> None:
        """The frame is lost, and in order nothing behind it arrives."""
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
        scheduler, awake_at = self.conn.fabric.scheduler, self.dst.port.host.awake_at
        if scheduler.now < awake_at:
            scheduler.at(awake_at, self._pump)
            return
        if self.ordered:
            while queue and queue[0].ready and not self.arriving:
                if len(queue) == 1 or not self._read_together():
                    self._deliver(queue.pop(0))
            return
        for frame in [frame for frame in queue if frame.ready]:
            if not frame.gone:
                queue.remove(frame)
                self._deliver(frame)

    def _read_together(self) -> bool:
        """Show the receiver the small messages that are there, in one buffer; whether it took any."""
        conn, dst, queue = self.conn, self.dst, self.queue
        fabric = conn.fabric
        now = fabric.scheduler.now
        frames: list[Frame] = []
        room = _BUFFER
        for frame in queue:
            room -= frame.size
            if not frame.ready or frame.end > now or frame.size >= _ZERO_COPY or room < 0:
                break
            frames.append(frame)
        count = len(frames)
        if count < 2 or not conn.is_open(dst):
            return False
        for frame in frames:
            if not frame.read:
                self._is_there(frame)
        rest = b""
        if count < len(queue) and queue[count].ready:  # the buffer ends somewhere in the next message
            rest = queue[count].header + queue[count].payload[:_ZERO_COPY]
            rest = rest[: int(len(rest) * fabric.reading())]
        dst.port.host.touch()
        taken = dst.station.read(self.src.nid, frames, rest)
        for frame in frames[:taken]:
            if not frame.gone:
                queue.remove(frame)
                fabric.under_way -= 1
        return taken > 0

    def _is_there(self, frame: Frame) -> None:
        """The receiver's host has a frame: count it, and acknowledge a small one."""
        fabric, dst = self.conn.fabric, self.dst
        frame.read = True
        dst.port.received += frame.size
        if fabric.meter is not None:
            rate = dst.port.params.rate
            begins = frame.end - frame.size / rate if rate else frame.end
            fabric.meter(dst.port, begins, frame.end, frame.size)
        if fabric.note is not None:
            fabric.note(f"arrive {self.src} > {dst.nid} {frame.header.hex()} +{len(frame.payload)}")
        if len(frame.payload) < _ZERO_COPY:
            self._acknowledge(frame, 0.0)

    def _deliver(self, frame: Frame) -> None:
        conn, dst = self.conn, self.dst
        fabric = conn.fabric
        fabric.under_way -= 1
        if not conn.is_open(dst):
            conn.reset(self.src, dst)
            self.unheard(frame)
            return
        if not frame.read:
            self._is_there(frame)
        arrival = _Arrival(self, frame)
        if len(frame.payload) >= _ZERO_COPY and not fabric.blocked(dst.port, self.src.port):
            arrival.latency = fabric.latency(dst.port, self.src.port)
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
        frame = arrival.frame
        if len(frame.payload) >= _ZERO_COPY:
            frame.deadline = max(frame.deadline, fabric.scheduler.now + self.src.station.timeout)
            self._acknowledge(frame, arrival.latency)
        self.pump_soon()

    # Who does not go on ---------------------------------------------------------------------------------

    def cut_off(self) -> None:
        """The sender's end is closed: what has not left of what arrives never will."""
        rate = self.src.port.params.rate
        now = self.conn.fabric.scheduler.now
        for arrival in self.arriving:
            frame = arrival.frame
            if frame.begins + (frame.size / rate if rate else 0.0) > now:
                arrival.never = True

    def is_held_up(self, arrival: _Arrival) -> bool:
        """Whether the rest of a message does not come: it is sent again, until one side gives up."""
        conn, src, dst = self.conn, self.src, self.dst
        if not arrival.never and not conn.fabric.blocked(src.port, dst.port):
            return False
        scheduler = conn.fabric.scheduler
        now = scheduler.now
        frame = arrival.frame
        if not arrival.tries and frame.size < _ZERO_COPY and frame.end < now:
            return False  # its host has had all of it for some time
        conn.fabric.faults["losses"] += 1
        if not arrival.tries:
            arrival.deadline = now + dst.station.timeout
        sends = conn.is_open(src)
        until = min(arrival.deadline, frame.deadline) if sends and not frame.over else arrival.deadline
        if now < until:
            arrival.tries += 1
            if arrival.tries == _STUCK_AFTER and sends and not frame.over:
                conn.stuck(src)
            when = until if arrival.never else now + _pause(arrival.tries)
            scheduler.at(min(when, until), arrival.complete)
        elif until < arrival.deadline:
            self._time_out()
            if not arrival.gone:  # the reset gets lost as the payload did
                scheduler.at(arrival.deadline, arrival.complete)
        else:
            timeout = dst.station.timeout
            why = f"timed out: {src.nid} sent no more of a message that it had begun for {timeout:g} s"
            conn.close(dst, errno.ETIMEDOUT, why)
        return True

    def unheard(self, frame: Frame) -> None:
        """The receiver's end is closed, and nothing acknowledges the frame: perhaps the reset gets lost."""
        if self.conn.is_open(self.src):
            frame.tries = 0
            self._again(frame, self._ask_again)

    def _ask_again(self, frame: Frame) -> None:
        """The sender has heard nothing of a closed end: it sends again, which another reset answers."""
        conn, src, dst = self.conn, self.src, self.dst
        if not conn.is_open(src):
            return
        if conn.fabric.blocked(src.port, dst.port):
            conn.fabric.faults["losses"] += 1
        else:
            conn.reset(src, dst)
        self._again(frame, self._ask_again)

    def watch(self, arrival: _Arrival) -> None:
        """The receiver does not read an arrival: look again when the sender's time is up."""
        timeout = self.src.station.timeout
        until = self.conn.fabric.scheduler.now + timeout
        self.conn.fabric.scheduler.at(until, self._overdue, arrival)

    def _overdue(self, arrival: _Arrival) -> None:
        """Nothing read an arrival in its sender's time-out: the connection breaks if the sender waits."""
        if arrival.gone or not self.conn.is_open(self.src):
            return
        scheduler = self.conn.fabric.scheduler
        if self._is_waited_for(arrival.frame) or (
            self.ordered
            and any(self._is_waited_for(frame) for frame in self.queue if frame.deadline <= scheduler.now)
        ):
            self._time_out()
        else:
            pause = max(self.src.station.timeout / _LOOKS, 0.1)
            scheduler.after(pause, self._overdue, arrival)

    @staticmethod
    def _is_waited_for(frame: Frame) -> bool:
        """Whether its sender waits until it is read."""
        return not frame.over and len(frame.payload) >= _ZERO_COPY

    def pump_soon(self) -> None:
        """The next one may be delivered."""
        if self.queue:
            self.conn.fabric.scheduler.after(0.0, self._pump)

    def _acknowledge(self, frame: Frame, latency: float) -> None:
        """Tell the sender; `latency` is what was drawn for that, 0 if nothing was."""
        fabric = self.conn.fabric
        frame.tries = 0
        if not self.conn.is_open(self.src):
            return
        if fabric.blocked(self.dst.port, self.src.port):
            fabric.faults["losses"] += 1
            self._again(frame, self._acknowledged)
        elif not frame.over or self.conn.is_stuck(self.src):
            latency = latency or fabric.latency(self.dst.port, self.src.port)
            fabric.scheduler.at(max(frame.end, fabric.scheduler.now) + latency, self._acknowledged, frame)

    def _acknowledged(self, frame: Frame) -> None:
        if not self.conn.is_open(self.src):
            return
        fabric = self.conn.fabric
        if fabric.blocked(self.dst.port, self.src.port):
            fabric.faults["losses"] += 1
            self._again(frame, self._acknowledged)
        else:
            self.conn.moves(self.src)
            self.conn.done(self.src, frame)


def _pause(tries: int) -> float:
    """Seconds until something is sent again that was sent so often before."""
    return min(_FIRST_RETRY * (1 << min(tries - 1, 20)), _LONGEST_RETRY)
