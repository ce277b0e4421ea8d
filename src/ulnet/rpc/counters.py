"""What clients count, and what servers count of each method."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

__all__ = ["ClientCounters", "MethodCounters", "ServerCounters"]

_BUCKETS: Final = 24  # the last one begins at 4 s


@dataclass(slots=True)
class ClientCounters:
    """What a client counts."""

    calls: int = 0
    repeated: int = 0  # requests that were sent again
    busy: int = 0  # times that the server sent one away
    timeouts: int = 0
    sessions: int = 0
    malformed: int = 0  # frames that are none, or that are about nothing that is under way


@dataclass(slots=True)
class MethodCounters:
    """Of one method. `latency_us[i]` counts service times below 2**i microseconds that are in none before."""

    calls: int = 0  # that have ended
    errors: int = 0
    overdue: int = 0  # whose deadline went by
    given_up: int = 0  # by their clients
    resent: int = 0  # repetitions that came while the call ran
    repeated: int = 0  # repetitions that were answered from memory
    latency_us: list[int] = field(default_factory=lambda: [0] * _BUCKETS)

    def took(self, seconds: float) -> None:
        """A handler took that long."""
        self.latency_us[min(int(seconds * 1e6).bit_length(), _BUCKETS - 1)] += 1

    def told(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass(slots=True)
class ServerCounters:
    """Of a server, beside those of its methods."""

    malformed: int = 0  # frames that are none
    refused: int = 0
    busy: int = 0  # requests that were sent away for later
    old: int = 0  # requests whose call had ended long ago
