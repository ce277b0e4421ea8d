"""What is measured, and the clock that all competitors share."""

from __future__ import annotations

import json
import os
import resource
import time
from dataclasses import asdict, dataclass, replace
from typing import Literal

HEADER_BYTES = 72  # what LNet puts before each message; plain sockets carry as much
LONGEST = 32  # times a work's count: no run has more messages
CONGESTION = b"reno"  # BBR, a common default, paces loopback down to less than half

TOUCH = "ULNET_BENCH_TOUCH"  # KiB that the C program touches for each message, in its environment

# One-way; each answered with a header; headers answered with payload; there and back, one at a time.
Kind = Literal["stream", "ack", "get", "roundtrip"]


def payload_of(size: int) -> bytes:
    """Memory as a program's own: of `bytes(size)` most pages are one page of zeros until they are written."""
    return b"\x01" * size


@dataclass(frozen=True, slots=True)
class Work:
    """One measurement: `count` messages of `size` bytes after `warmup` of them."""

    name: str
    title: str
    kind: Kind
    size: int
    count: int
    warmup: int
    window: int = 8  # messages not answered yet, for kinds "ack" and "get"

    def to_json(self) -> str:
        """For the other process's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Work:
        """The reverse of `to_json`."""
        return cls(**json.loads(text))

    def shorter(self, factor: int) -> Work:
        """The same with that many times fewer messages."""
        return replace(self, count=max(self.count // factor, self.window))

    def lasting(self, seconds: float, wall: float, count: int) -> Work:
        """The same with as many messages as take so long, where `count` took `wall` seconds."""
        likely = int(count * seconds / wall) if wall > 0 else self.count
        return replace(self, count=max(min(likely, LONGEST * self.count), count))

    @property
    def asked(self) -> int:
        """Payload of what the driving side sends."""
        return 0 if self.kind == "get" else self.size

    @property
    def answered(self) -> int:
        """Payload of what comes back."""
        return self.size if self.kind in ("get", "roundtrip") else 0


WORKS = [
    Work("bulk-stream", "1 MiB one-way", "stream", 1 << 20, 2048, 64),
    Work("bulk-ack", "1 MiB acknowledged, window 8", "ack", 1 << 20, 2048, 64),
    Work("bulk-get", "1 MiB fetched, window 8", "get", 1 << 20, 2048, 64),
    Work("128k-stream", "128 KiB one-way", "stream", 1 << 17, 8192, 256),
    Work("16k-stream", "16 KiB one-way", "stream", 1 << 14, 32768, 1024),
    Work("small-stream", "64 bytes one-way", "stream", 64, 200_000, 5_000),
    Work("small-ack", "64 bytes, each acknowledged, window 256", "ack", 64, 60_000, 3_000, window=256),
    Work("small-roundtrip", "64 bytes there and back", "roundtrip", 64, 10_000, 1_000),
]


def cpu_of(work: Work, driving: bool) -> int:
    """Round trips are measured across CPUs: each process has one of its own if it can (else -1)."""
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[driving] if work.kind == "roundtrip" and len(cpus) > 1 else -1


def pin(work: Work, driving: bool) -> None:
    """Keep this process there."""
    cpu = cpu_of(work, driving)
    if cpu >= 0:
        os.sched_setaffinity(0, {cpu})


@dataclass(slots=True)
class Measured:
    """One process's figures for one run; the driving side has the wall time and latencies."""

    wall: float
    cpu: float
    p50_us: float = 0.0
    p99_us: float = 0.0
    system: float = 0.0  # of `cpu`, what the kernel took
    sleeps: int = 0  # how often it waited for something


class Meter:
    """Wall time and this process's CPU time, all threads and the kernel's part included."""

    __slots__ = ("_cpu", "_usage", "_wall")

    def __init__(self) -> None:
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def stop(self, latencies_ns: list[int] | None = None) -> Measured:
        """The figures since this meter was made."""
        cpu = time.process_time() - self._cpu
        wall = time.perf_counter() - self._wall
        usage = resource.getrusage(resource.RUSAGE_SELF)
        system = usage.ru_stime - self._usage.ru_stime
        sleeps = usage.ru_nvcsw - self._usage.ru_nvcsw
        p50 = p99 = 0
        if latencies_ns:
            latencies_ns.sort()
            p50 = latencies_ns[len(latencies_ns) // 2]
            p99 = latencies_ns[len(latencies_ns) * 99 // 100]
        return Measured(wall, cpu, p50 / 1000, p99 / 1000, system, sleeps)
