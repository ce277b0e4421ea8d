"""Plain counters, in the objects that they count (spec lnetctl.md §5, health.md §7)."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Mapping
from typing import Final

from ulnet.wire.lnet import MsgType

__all__ = ["GlobalStats", "HealthStats", "Latency", "MsgStats", "MsgType"]

# Why an attempt to connect failed, by its errno (counters of the Health design); else `connect_err`.
_CONNECT_FAILURES: Final = {
    errno.EHOSTUNREACH: "addr_err",  # no host answers for that address
    errno.EAFNOSUPPORT: "addr_err",
    errno.ENETUNREACH: "unreachable",
    errno.ENETDOWN: "unreachable",  # of o2ib: the connection manager of the peer does not answer
    errno.ETIMEDOUT: "unreachable",
    errno.ECONNREFUSED: "connect_rej",
    errno.ECONNRESET: "connect_rej",  # by its LNet, in the handshake
    errno.EALREADY: "connect_rej",
}
_NONE_FAILED: Final[Mapping[str, int]] = {}


class MsgStats:
    """Messages sent, received and dropped, each a list indexed by MsgType; bytes of payload both ways."""

    __slots__ = ("dropped", "received", "received_bytes", "sent", "sent_bytes")

    def __init__(self) -> None:
        self.sent: list[int] = [0, 0, 0, 0, 0]
        self.received: list[int] = [0, 0, 0, 0, 0]
        self.dropped: list[int] = [0, 0, 0, 0, 0]
        self.sent_bytes: int = 0
        self.received_bytes: int = 0

    def reset(self) -> None:
        """Zero everything."""
        self.__init__()  # type: ignore[misc]


class Latency:
    """A running summary of one kind of delay, in nanoseconds."""

    __slots__ = ("max", "min", "samples", "total")

    def __init__(self) -> None:
        self.samples: int = 0
        self.min: int = 0
        self.max: int = 0
        self.total: int = 0

    def add(self, nsec: int) -> None:
        """Count one sample."""
        if not self.samples or nsec < self.min:
            self.min = nsec
        if nsec > self.max:
            self.max = nsec
        self.samples += 1
        self.total += nsec

    def add_many(self, count: int, total: float, least: float, most: float) -> None:
        """Count samples by their sum and their extremes, in seconds."""
        lowest, highest = int(least * 1e9), int(most * 1e9)
        if not self.samples or lowest < self.min:
            self.min = lowest
        if highest > self.max:
            self.max = highest
        self.samples += count
        self.total += int(total * 1e9)

    @property
    def avg(self) -> int:
        """The mean of all samples, 0 without any."""
        return self.total // self.samples if self.samples else 0


class HealthStats:
    """How often messages of an NI or peer NI ended with each health status, and were resent for it.

    `next_ping` is the time (the node's clock, seconds) before which recovery does not ping it again.
    `connects` counts attempts to connect to a peer NI that failed, by their cause.
    """

    # fmt: off
    __slots__ = ("by_status", "connects", "down_events", "next_ping", "ping_count", "resends", "up_events")
    # fmt: on

    def __init__(self) -> None:
        self.by_status: list[int] = [0] * 11  # indexed by HealthStatus
        self.resends: list[int] = [0] * 11
        self.connects: Mapping[str, int] = _NONE_FAILED
        self.down_events: int = 0  # of its device, for local NIs
        self.up_events: int = 0
        self.ping_count: int = 0
        self.next_ping: float = 0.0

    def unconnected(self, err: int) -> None:
        """An attempt to connect failed with that errno (positive)."""
        cause = _CONNECT_FAILURES.get(err, "connect_err")
        self.connects = {**self.connects, cause: self.connects.get(cause, 0) + 1}

    def reset(self) -> None:
        """Zero what is counted; recovery keeps its pace."""
        self.by_status = [0] * 11
        self.resends = [0] * 11
        self.connects = _NONE_FAILED
        self.down_events = self.up_events = 0


class GlobalStats:
    """Node-wide counters; `drops` tells why, by reason."""

    def __init__(self) -> None:
        self.msgs_alloc: int = 0
        self.msgs_max: int = 0
        self.errors = 0
        self.send_count = 0
        self.resend_count = 0
        self.response_timeout_count = 0
        self.by_status: list[int] = [0] * 11
        self.failed_resends = 0
        self.successful_resends = 0
        self.recv_count = 0
        self.route_count = 0
        self.drop_count = 0
        self.send_length = 0
        self.recv_length = 0
        self.route_length = 0
        self.drop_length = 0
        self.drops: Counter[str] = Counter()

    def reset(self) -> None:
        """Zero them; how many messages live is a state, not a count, and stays."""
        alive = self.msgs_alloc
        self.__init__()  # type: ignore[misc]
        self.msgs_alloc = self.msgs_max = alive
