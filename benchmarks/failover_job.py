"""One run while a rail fails: what it is told, what each message met, and what that comes to."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise

MESSAGE = 1 << 20
WINDOW = 8
TIMEOUT = 1  # seconds: ulnet's LND time-out, and what its caller gives a message
AGAIN = 0.02  # seconds until the program sends again what was reported as failed
GRACE = 30.0  # seconds after the stream: a killed peer may take a good part of it to start on a busy machine


@dataclass(frozen=True, slots=True)
class Job:
    """A stream for `seconds`; what is under way then has `grace` seconds more."""

    player: str
    local: list[str]
    remote: list[str]
    seconds: float
    grace: float = GRACE

    def to_json(self) -> str:
        """For another process's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The reverse of `to_json`."""
        return cls(**json.loads(text))


@dataclass(slots=True)
class Outcome:
    """When each message was first sent and when answered (None: never), by the machine's monotonic clock."""

    began: list[float] = field(default_factory=list)
    ended: list[float | None] = field(default_factory=list)
    reported: int = 0  # messages that the program was told had failed, and sent again, each counted once
    faulted: float = 0.0
    over: float = 0.0  # when no new message was sent any more
    restarted: float = 0.0
    on_default: list[tuple[float, bool]] = field(
        default_factory=list
    )  # changes of the active slave, in standby

    def begin(self) -> int:
        """A message sets out; its number."""
        self.began.append(time.monotonic())
        self.ended.append(None)
        return len(self.began) - 1

    def end(self, number: int) -> None:
        """It is acknowledged."""
        self.ended[number] = time.monotonic()

    @property
    def lost(self) -> int:
        """Messages without an answer at the end of the grace, though what was reported is sent again."""
        return self.ended.count(None)

    def answers(self, since: float, until: float) -> list[float]:
        """When messages were acknowledged, in that time."""
        return sorted(end for end in self.ended if end is not None and since <= end <= until)

    def goodput(self, since: float, until: float) -> float:
        """Acknowledged bytes a second."""
        return len(self.answers(since, until)) * MESSAGE / (until - since)

    def gap(self, capacity: float, until: float | None = None) -> float:
        """Seconds, from the fault on, in which less than half of `capacity` came through."""
        end = self.over if until is None else until
        times = [self.faulted, *self.answers(self.faulted, end), end]
        most = 2 * MESSAGE / capacity
        return sum(late - early for early, late in pairwise(times) if late - early > most)

    def stall(self) -> float:
        """How long at most, from the fault on, the oldest message was the same one; inf if it is lost."""
        longest, heads = 0.0, self.faulted
        for end in self.ended:
            if end is None:
                return float("inf")
            if end > heads:
                longest, heads = max(longest, end - heads), end
        return longest

    def returned(self, repaired: float) -> float:
        """Seconds from then until the default slave was the active one again; inf if it was not."""
        return (
            min((when for when, so in self.on_default if so and when >= repaired), default=float("inf"))
            - repaired
        )

    def reconnected(self) -> float:
        """Seconds from the peer's return to the first answer."""
        return min(self.answers(self.restarted, float("inf")), default=float("inf")) - self.restarted
