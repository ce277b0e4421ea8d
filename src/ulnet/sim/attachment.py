"""A station's place on the fabric: its connections, and the pause after a failed attempt to connect.

The rules are those of the TCP driver: one connection for a pair of NIDs, made on first use; whoever
comes anew has been restarted; after a failure the next attempt waits 1 s, then 2 s, up to 60 s. A message
waits for an attempt that is near, and cuts a long pause short if its owner gave it a time-out.
"""

from __future__ import annotations

import errno
from math import ceil
from typing import TYPE_CHECKING, Final

from ulnet.lnd.sim import Why
from ulnet.sim.conn import Conn

if TYPE_CHECKING:
    from ulnet.lnd.sim import Frame, Station
    from ulnet.nid import Nid
    from ulnet.sim.cables import Fabric, Port

__all__ = ["Attachment"]

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_BRIEF: Final = 0.5  # seconds that every message waits for an attempt
_SURE: Final = 1.0  # seconds in which who was connected has no other life


class _Pause:
    """A pause: no attempt to connect before `until`."""

    __slots__ = ("seconds", "until", "why")

    def __init__(self, seconds: float, until: float, why: str) -> None:
        self.seconds = seconds
        self.until = until
        self.why = why

    def wait(self, now: float, patience: float) -> float:
        """How long a message waits for the next attempt that it may wait for; negative: for none."""
        until = self.until
        if patience > 0:
            until = min(until, until - self.seconds + _BRIEF)
        wait = max(until - now, 0.0)
        return wait if wait <= max(_BRIEF, patience) else -1.0


class Attachment:
    """Where one NI meets the wire."""

    __slots__ = ("_pauses", "closed", "conns", "fabric", "nid", "port", "station")

    def __init__(self, fabric: Fabric, port: Port, station: Station) -> None:
        self.fabric: Fabric = fabric
        self.port: Port = port
        self.station: Station = station
        self.nid: Nid = station.nid
        self.closed: bool = False
        self.conns: dict[Nid, Conn] = {}
        self._pauses: dict[Nid, _Pause] = {}

    def __str__(self) -> str:
        return f"{self.port.host.name}:{self.nid}"

    def send(self, dest: Nid, frame: Frame) -> None:
        """Carry a frame to a NID on the same switch."""
        conn = self.conns.get(dest)
        if conn is None:
            pause = self._pauses.get(dest)
            now = self.fabric.scheduler.now
            wait = pause.wait(now, frame.patience) if pause is not None else 0.0
            if pause is not None and wait < 0:
                left = max(ceil(pause.until - now), 1)
                why = f"no attempt before {left} s have passed; the last one ended so: {pause.why}"
                self._refuse(frame, errno.EALREADY, f"no connection to {dest} and {why}")
                return
            denied = self.station.why_denied(dest)
            if denied:
                self._refuse(frame, errno.EACCES, denied)
                return
            conn = self.conns[dest] = Conn(self.fabric, self, dest)
            conn.dial(wait)
        conn.send(self, frame)

    def verify(self, dest: Nid) -> bool:
        """See whether the node behind dest has begun a new life, and end what goes to the former one.

        Whether there is a connection with it.
        """
        conn = self.conns.get(dest)
        if conn is None:
            self._pauses.pop(dest, None)
            return False
        if not conn.established:
            conn.withdraw(self)
            return False
        if not self.port.live:
            conn.close_former(self)
            return False
        if self.fabric.scheduler.now - conn.made >= _SURE:
            conn.made = self.fabric.scheduler.now
            Conn(self.fabric, self, dest, beside=conn).dial()
        return True

    def _refuse(self, frame: Frame, number: int, why: str) -> None:
        """There is to be no connection for the frame: its sender hears so soon."""
        self.fabric.under_way += 1
        failed = Why(number, why, unconnected=True, unsent=True)
        self.fabric.scheduler.after(0.0, self._refused, frame, failed)

    def _refused(self, frame: Frame, failed: Why) -> None:
        self.fabric.under_way -= 1
        self.report(frame, failed)

    def end_denied(self) -> None:
        """End connections, and attempts to make some, with those that are denied now."""
        for dest, conn in list(self.conns.items()):
            denied = self.station.why_denied(dest)
            if denied:
                conn.close(self, errno.EACCES, denied)

    def report(self, frame: Frame, failed: Why | None) -> None:
        """Tell the station how a frame fared."""
        if not self.closed and not frame.over:
            scheduler, awake_at = self.fabric.scheduler, self.port.host.awake_at
            if scheduler.now < awake_at:
                scheduler.at(awake_at, self.report, frame, failed)
                return
            frame.over = True
            self.port.host.touch()
            self.station.sent(frame, failed)

    def give_back(self, frame: Frame) -> None:
        """Nothing of a frame has left: the station may send it another way."""
        if not self.closed:
            frame.over = True
            self.port.host.touch()
            self.station.returned(frame)

    def withdraw(self) -> None:
        """Give back all that has not begun to leave."""
        for conn in list(self.conns.values()):
            conn.withdraw(self)

    def dial_failed(self, dest: Nid, number: int, why: str) -> None:
        """The next attempt waits, longer each time."""
        self.port.host.touch()
        self.station.unconnected(dest, number)
        before = self._pauses.get(dest)
        seconds = min(before.seconds * 2, _LONGEST_PAUSE) if before is not None else _FIRST_PAUSE
        self._pauses[dest] = _Pause(seconds, self.fabric.scheduler.now + seconds, why)

    def connected(self, dest: Nid, conn: Conn) -> None:
        """A connection is up: it is used from now on."""
        self.conns[dest] = conn
        self._pauses.pop(dest, None)

    def close(self, tell_peers: bool = True, dies: bool = False) -> None:
        """Leave the fabric; the station is told nothing more. `dies`: so does its host."""
        if self.closed:
            return
        self.closed = True
        if not dies:
            self.fabric.faults["NIs removed"] += 1
        self.port.switch.attachments.pop(self.nid, None)
        self.port.host.attachments.pop(self, None)
        for conn in list(self.conns.values()):
            conn.close(self, errno.ESHUTDOWN, f"{self.nid} has been shut down", tell_peer=tell_peers)
        self._pauses.clear()
