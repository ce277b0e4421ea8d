"""What one run over several rails is told and tells; the part of it that all players share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

MESSAGE = 1 << 20
WINDOW = 16
BATCH = 8


@dataclass(frozen=True, slots=True)
class Job:
    """One run: a steady stream of `seconds` after `warmup` seconds, then `batches` of eight messages."""

    player: str
    local: list[str]
    remote: list[str]
    rates: list[float]  # bytes a second of each rail, for the scheduler that may know them
    seconds: float
    warmup: float
    batches: int
    size: int = MESSAGE
    window: int = WINDOW

    def to_json(self) -> str:
        """For another process's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The reverse of `to_json`."""
        return cls(**json.loads(text))


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    rate: float  # acknowledged payload bytes a second, once steady
    batches: list[float] = field(default_factory=list)  # seconds from the first put to the last answer
    subflows: int = 0
    paths: dict[str, float] = field(default_factory=dict)  # what the sender took each path's rate for


Run = Callable[[int | None, float | None, int], list[float]]


def drive_all(job: Job, run: Run) -> Outcome:
    """The steady stream, then the batches, each after the rails fell silent."""
    began = time.perf_counter()
    outcome = Outcome(steady(job, began, run(None, job.warmup + job.seconds, job.window)))
    for _ in range(job.batches):
        time.sleep(0.3)
        began = time.perf_counter()
        outcome.batches.append(run(BATCH, None, BATCH)[-1] - began)
    return outcome


def steady(job: Job, began: float, answered: list[float]) -> float:
    """Bytes a second between the first and the last answer of the measured time."""
    start, end = began + job.warmup, began + job.warmup + job.seconds
    inside = [when for when in answered if start <= when <= end]
    if len(inside) < 2:
        raise RuntimeError(f"{len(inside)} messages in {job.seconds} s: too few to tell a rate")
    return (len(inside) - 1) * job.size / (inside[-1] - inside[0])
