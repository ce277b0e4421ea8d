"""A connection between two NIDs: reliable and in order, like TCP; it breaks by silence or by a reset.

Small messages and bulk have a stream each in both directions, as with typed socklnd connections, so that
the small ones overtake.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from ulnet.lnd.sim import Why
from ulnet.sim.stream import BULK, Stream

if TYPE_CHECKING:
    from ulnet.lnd.sim import Frame
    from ulnet.nid import Nid
    from ulnet.sim.attachment import Attachment
    from ulnet.sim.cables import Fabric

__all__ = ["Conn"]

_FIRST_SYN_RETRY: Final = 1.0
_PATIENCE: Final = 3.0  # seconds for an attempt that is to tell who is there
_NO_NEIGHBOUR: Final = 3.0  # seconds until an address that nobody has counts as unreachable


class Conn:
    """One connection, and what waits for it; `a` is who calls."""

    __slots__ = (
        "_flying",
        "_peers",
        "_started",
        "_streams",
        "_stuck",
        "_tries",
        "_waiting",
        "a",
        "b",
        "beside",
        "dest",
        "fabric",
        "made",
    )

    def __init__(self, fabric: Fabric, a: Attachment, dest: Nid, beside: Conn | None = None) -> None:
        self.fabric: Fabric = fabric
        self.a: Attachment = a
        self.b: Attachment | None = None  # once it is established; a NID that calls itself is both
        self.dest: Nid = dest
        self.beside: Conn | None = beside  # it is one too many unless that one leads to a former life
        self.made: float = 0.0  # when it was established, or that was last seen to be still so
        self._peers: dict[Attachment, Attachment | None] = {a: None}  # of each side that has it open
        self._waiting: list[Frame] = []
        self._flying: dict[Attachment, dict[Frame, None]] = {a: {}}  # whose fate the sender does not know
        self._streams: dict[tuple[Attachment, bool], Stream] = {}
        self._started = 0.0
        self._tries = 0
        self._stuck: dict[Attachment, None] = {}  # the sides that see no progress

    def is_open(self, side: Attachment) -> bool:
        """Whether that side has it open."""
        return side in self._peers

    @property
    def established(self) -> bool:
        """Whether there is another side."""
        return self.b is not None

    def send(self, side: Attachment, frame: Frame) -> None:
        """Send a frame, or let it wait for the connection."""
        if not self.established:
            self._waiting.append(frame)
            self.fabric.under_way += 1
            side.station.waits(frame)
            return
        self._flying[side][frame] = None
        self._stream(side, frame.size >= BULK).push(frame)

    def _stream(self, side: Attachment, bulk: bool) -> Stream:
        stream = self._streams.get((side, bulk))
        if stream is None:
            other = self.b if side is self.a else self.a
            assert other is not None
            stream = self._streams[side, bulk] = Stream(self, side, other)
        return stream

    def done(self, side: Attachment, frame: Frame) -> None:
        """The frame left, or is with the other host."""
        if self._flying[side].pop(frame, frame) is None:
            side.report(frame, None)

    # Progress -----------------------------------------------------------------------------------------

    def is_stuck(self, side: Attachment) -> bool:
        """Whether a side has been told that nothing moves."""
        return side in self._stuck

    def stuck(self, side: Attachment) -> None:
        """What a side sends makes no progress: it is told once, and gets back what has not begun to leave."""
        if self.is_open(side) and side not in self._stuck:
            self._stuck[side] = None
            self._tell(side, stuck=True)
            self.withdraw(side)

    def moves(self, side: Attachment) -> None:
        """The connection makes progress again."""
        if side in self._stuck:
            del self._stuck[side]
            self._tell(side, stuck=False)

    def _tell(self, side: Attachment, stuck: bool) -> None:
        if not side.closed:
            side.port.host.touch()
            side.station.progress(self._far(side), stuck)

    def _far(self, side: Attachment) -> Nid:
        return self.dest if side is self.a else self.a.nid

    def withdraw(self, side: Attachment) -> None:
        """Give back what a side sends and what has not begun to leave."""
        if not self.is_open(side):
            return
        back: list[Frame] = []
        if side is self.a:
            back, self._waiting = self._waiting, []
            self.fabric.under_way -= len(back)
        for (src, _), stream in self._streams.items():
            if src is side:
                for frame in stream.withdraw():
                    del self._flying[side][frame]
                    back.append(frame)
        for frame in back:
            side.give_back(frame)

    # Connecting ---------------------------------------------------------------------------------------

    def dial(self, wait: float = 0.0) -> None:
        """Begin to connect, after so many seconds."""
        fabric, port = self.fabric, self.a.port
        self._started = fabric.scheduler.now + wait
        there = port.switch.ports.get(_address(self.dest))
        latency = fabric.latency(port, there or port)
        fabric.scheduler.after(wait + 4 * latency, self._handshake)

    def _handshake(self) -> None:
        a, fabric = self.a, self.fabric
        if not self.is_open(a) or self.established or a.closed:
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
            self._reached(port.switch.attachments.get(self.dest))

    def _call_again(self, waited: float) -> None:
        self.fabric.faults["calls failed"] += 1
        timeout = self.a.station.timeout if self.beside is None else _PATIENCE
        if waited >= timeout:
            self._dial_failed(errno.ETIMEDOUT, f"timed out after {timeout:g} s: {self.dest} does not answer")
            return
        if self._tries == 1 and self.beside is None:
            self.stuck(self.a)
        pause = min(_FIRST_SYN_RETRY * 2**self._tries, timeout - waited)
        self._tries += 1
        self.fabric.scheduler.after(max(pause, 1e-6), self._handshake)

    def _reached(self, b: Attachment | None) -> None:
        if b is None:
            self._dial_failed(errno.ECONNREFUSED, f"connection refused: nobody is {self.dest} there")
            return
        if b.station.why_denied(self.a.nid):
            self._dial_failed(errno.ECONNRESET, f"{self.dest} closed the connection right after our request")
            return
        other = b.conns.get(self.a.nid)
        if self.beside is not None:
            known = self.a.conns.get(self.dest)
            if known is not self.beside or other is known:
                del self._peers[self.a]
                return
            known.close_former(self.a)
            if not self.is_open(self.a) or self.a.closed or self.dest in self.a.conns:
                return
            other = b.conns.get(self.a.nid)
        waiting, theirs = self._waiting, []
        self._waiting = []
        self._establish(b)
        if other is not None and other is not self:
            if other.established:
                other.close(b, errno.ESTALE, f"{self.a.nid} has been restarted")
            else:
                theirs = other.give_up()
        self._greet(self.a, b, waiting)
        self._greet(b, self.a, theirs)

    def _greet(self, side: Attachment, other: Attachment, waiting: list[Frame]) -> None:
        """The HELLO of the other side is there: what waits leaves, unless it was for a former life."""
        anew = side.port.host.is_new_life(other.nid, other.port.host)
        if anew:
            side.port.host.touch()
            side.station.restarted(other.nid)
        for frame in waiting:
            self.fabric.under_way -= 1
            if anew:  # the core finds out first who is there now
                side.give_back(frame)
            else:
                side.station.goes(frame)
                self.send(side, frame)

    def _establish(self, b: Attachment) -> None:
        a = self.a
        self.b = b
        self.made = self.fabric.scheduler.now
        self._peers = {a: b, b: a}
        self._flying.setdefault(b, {})
        self.moves(a)
        a.connected(self.dest, self)
        b.connected(a.nid, self)
        if self.fabric.note is not None:
            self.fabric.note(f"connect {a} > {b}")

    def give_up(self) -> list[Frame]:
        """Stop calling: the other side called first. What waits is handed back."""
        self._peers.clear()
        self.moves(self.a)
        waiting, self._waiting = self._waiting, []
        return waiting

    def _dial_failed(self, number: int, why: str) -> None:
        if self.fabric.note is not None:
            self.fabric.note(f"unconnected {self.a} > {self.dest} {number}")
        if number != errno.ETIMEDOUT:  # else each attempt was counted
            self.fabric.faults["calls failed"] += 1
        self.a.dial_failed(self.dest, number, why)
        self._end(self.a, number, why, unconnected=True)
        known = self.beside
        if known is not None and self.a.conns.get(self.dest) is known:
            known.close_former(self.a)
            self.a.station.restarted(self.dest, heard=False)

    # The end ------------------------------------------------------------------------------------------

    def close(self, side: Attachment, number: int, why: str, tell_peer: bool = True) -> None:
        """One side closes; the other hears of it if it can. What had left may still arrive on a shutdown."""
        if not self.is_open(side):
            return
        peer = self._peers[side]
        if number not in (errno.ESTALE, errno.ESHUTDOWN):
            self.fabric.faults["connections broken"] += 1
        if self.fabric.note is not None:
            self.fabric.note(f"close {side} {self._far(side)} {number}")
        if tell_peer and peer is not None:
            self.reset(peer, side)
        self._end(side, number, why, unconnected=peer is None)
        far = self._far(side)
        if number not in (errno.ESTALE, errno.ESHUTDOWN) and far not in side.conns and not side.closed:
            side.port.host.touch()
            side.station.broke(far)

    def close_former(self, side: Attachment) -> None:
        """The other side has begun a new life."""
        self.close(side, errno.ESTALE, f"{self._far(side)} has been restarted", tell_peer=False)

    def reset(self, side: Attachment, by: Attachment) -> None:
        """A reset is on its way to `side`."""
        latency = self.fabric.latency(by.port, side.port)
        self.fabric.scheduler.after(latency, self._reset_arrived, side, by)

    def _reset_arrived(self, side: Attachment, by: Attachment) -> None:
        if self.is_open(side) and not self.fabric.blocked(by.port, side.port):
            side.port.host.touch()
            self.close(side, errno.ECONNRESET, f"{by.nid} reset the connection", tell_peer=False)

    def _end(self, side: Attachment, number: int, why: str, unconnected: bool) -> None:
        del self._peers[side]
        far = self._far(side)
        if side.conns.get(far) is self:
            del side.conns[far]
        waiting, self._waiting = self._waiting, []
        self.fabric.under_way -= len(waiting)
        flying = self._flying[side]
        streams = list(self._streams.values())
        doubtful = 0
        for stream in streams:
            if stream.src is side:
                doubtful += sum(frame.over and frame.bare for frame in stream.queue)
                stream.cut_off()
                for frame in list(stream.queue):
                    if not frame.over or number == errno.ETIMEDOUT:
                        stream.drop(frame)
        now = self.fabric.scheduler.now
        for frame in waiting:
            side.report(frame, Why(number, why, unconnected, unsent=True))
        for frame in flying:
            side.report(frame, Why(number, why, unconnected, unsent=frame.begins > now))
        flying.clear()
        if doubtful and not side.closed:
            side.station.in_doubt(far, doubtful)
        self.moves(side)
        for stream in streams:
            if stream.dst is side:
                for arrival in list(stream.arriving):
                    if not arrival.gone:
                        arrival.lost(number, why)
                stream.pump_soon()


def _address(nid: Nid) -> str:
    return str(nid).partition("@")[0]
