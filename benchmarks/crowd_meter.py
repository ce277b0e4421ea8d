"""What messages to many peers cost: the rate, and the CPU time of both sides."""

from __future__ import annotations

import resource
import time
from typing import NamedTuple

__all__ = ["WARM", "Figures", "Meter"]

WARM = 3  # rounds before anything is measured: the first messages to a peer make what later ones find


class Figures(NamedTuple):
    """Messages a second; CPU µs a message: of this process, of that in the kernel, of the other one.

    `segments` of TCP are all that this network namespace sends for a message.
    """

    rate: float
    cpu: float
    kernel: float
    far: float
    segments: float


class Meter:
    """From now on. `far` is the process id of the other side."""

    __slots__ = ("_began", "_far", "_far_ns", "_kernel", "_segments", "_user")

    def __init__(self, far: int) -> None:
        self._far = far
        self._far_ns = _nanoseconds_of(far)
        self._segments = _segments()
        self._user, self._kernel = _own()
        self._began = time.perf_counter()

    def stop(self, count: int) -> Figures:
        """So many messages were sent and answered since."""
        took = time.perf_counter() - self._began
        user, kernel = _own()
        user, kernel = user - self._user, kernel - self._kernel
        far = (_nanoseconds_of(self._far) - self._far_ns) / 1e9
        segments = (_segments() - self._segments) / count
        scale = 1e6 / count
        return Figures(count / took, (user + kernel) * scale, kernel * scale, far * scale, segments)


def _own() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime


def _nanoseconds_of(process: int) -> int:
    """CPU time of a process with one thread that works; 0 if this system does not tell."""
    try:
        with open(f"/proc/{process}/schedstat") as ran:
            return int(ran.read().split()[0])
    except OSError:
        return 0


def _segments() -> int:
    """Of TCP, that were sent in this network namespace."""
    with open("/proc/net/snmp") as counted:
        names, values = (line.split() for line in counted if line.startswith("Tcp:"))
    return int(values[names.index("OutSegs")])
