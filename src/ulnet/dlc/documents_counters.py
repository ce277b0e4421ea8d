"""What is counted: the name in documents, the meaning with its unit, and where the core counts it.

A counter is counted in the core and declared here, and stands nowhere else. The name of its metric is made of
that of the field: `send_count` of a node is `lnet_send_total`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter, itemgetter
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

from msgspec import UNSET, Struct, UnsetType

from ulnet.core.stats import MsgType
from ulnet.core.status import HealthStatus as S

__all__ = [
    "ByteCounts",
    "Metric",
    "MsgCounts",
    "NiHealth",
    "PeerNiHealth",
    "Statistics",
    "TrafficStats",
    "metrics_of",
    "read_counters",
]

T = TypeVar("T", bound=Struct)
_ENDED = "health_stats.by_status"  # of an NI or peer NI
_FAILED = "stats.by_status"  # of the node


class Count(NamedTuple):
    """Something that only grows: its meaning, and an attribute or method of what is counted.

    Of a list these places, or all, are added up. Without a path it is the list itself.
    """

    help: str
    path: str
    places: tuple[int, ...] = ()


class Level(Count):
    """Something that also falls."""

    __slots__ = ()


class Metric(NamedTuple):
    """A counter as a metric. `kind` is counter or gauge."""

    name: str
    kind: str
    help: str


@cache
def _declared(view: type[Struct]) -> dict[str, Count]:
    hints = get_type_hints(view, include_extras=True)
    found = {name: [one for one in get_args(hint) if isinstance(one, Count)] for name, hint in hints.items()}
    return {name: declared[0] for name, declared in found.items() if declared}


def metrics_of(view: type[Struct], prefix: str) -> dict[str, Metric]:
    """The counters of a part of a document, by field."""
    return {
        name: Metric(f"{prefix}_{name}", "gauge", one.help)
        if isinstance(one, Level)
        else Metric(f"{prefix}_{name.removesuffix('_count')}_total", "counter", one.help)
        for name, one in _declared(view).items()
    }


def read_counters(view: type[T], counted: object, *others: object) -> T:
    """A part of a document with its counters as they are now, and its other fields."""
    get, places = _reader(view)
    values = zip(get(counted), places, strict=True)  # the fields without counter come last
    return view(*[value if type(value) is int else _number(value, some) for value, some in values], *others)


@cache
def _reader(view: type[Struct]) -> tuple[Callable[[Any], Any], list[tuple[int, ...]]]:
    declared = _declared(view).values()
    places = [one.places for one in declared]
    if any(one.path for one in declared):
        return attrgetter(*(one.path for one in declared)), places
    return itemgetter(*(some[0] for some in places)), places


def _number(value: Any, places: tuple[int, ...]) -> int:
    if isinstance(value, list):
        return sum([value[place] for place in places]) if places else sum(value)
    return int(value() if callable(value) else value)


class TrafficStats(Struct):
    """`statistics:` of an NI or peer NI."""

    send_count: Annotated[int, Count("messages sent", "stats.sent")]
    recv_count: Annotated[int, Count("messages received", "stats.received")]
    drop_count: Annotated[int, Count("messages dropped", "stats.dropped")]
    put_egress_samples: Annotated[int, Count("PUTs whose leaving was timed", "latency_egress.samples")]
    put_egress_min_nsec: Annotated[int, Level("ns until a PUT has left, at least", "latency_egress.min")]
    put_egress_max_nsec: Annotated[int, Level("ns until a PUT has left, at most", "latency_egress.max")]
    put_egress_avg_nsec: Annotated[int, Level("ns until a PUT has left, mean", "latency_egress.avg")]
    get_rtt_samples: Annotated[int, Count("GETs of which the REPLY was timed", "latency_get.samples")]
    get_rtt_min_nsec: Annotated[int, Level("ns from a GET to its REPLY, at least", "latency_get.min")]
    get_rtt_max_nsec: Annotated[int, Level("ns from a GET to its REPLY, at most", "latency_get.max")]
    get_rtt_avg_nsec: Annotated[int, Level("ns from a GET to its REPLY, mean", "latency_get.avg")]
    put_ack_samples: Annotated[int, Count("PUTs of which the ACK was timed", "latency_ack.samples")]
    put_ack_min_nsec: Annotated[int, Level("ns from a PUT to its ACK, at least", "latency_ack.min")]
    put_ack_max_nsec: Annotated[int, Level("ns from a PUT to its ACK, at most", "latency_ack.max")]
    put_ack_avg_nsec: Annotated[int, Level("ns from a PUT to its ACK, mean", "latency_ack.avg")]


class ByteCounts(Struct):
    """What the real tool does not print of an NI or peer NI; names as of the node."""

    send_length: Annotated[int, Count("bytes sent", "stats.sent_bytes")]
    recv_length: Annotated[int, Count("bytes received", "stats.received_bytes")]


class MsgCounts(Struct):
    """Messages by type."""

    put: Annotated[int, Count("PUTs", "", (MsgType.PUT,))]
    get: Annotated[int, Count("GETs", "", (MsgType.GET,))]
    reply: Annotated[int, Count("REPLYs", "", (MsgType.REPLY,))]
    ack: Annotated[int, Count("ACKs", "", (MsgType.ACK,))]
    hello: Annotated[int, Count("HELLOs", "", (MsgType.HELLO,))]


class NiHealth(Struct, rename={"health_value": "health value", "no_route": "no route"}):
    """`health stats:` of an NI."""

    fatal_error: Annotated[int, Level("1: its device has failed", "fatal")]
    health_value: Annotated[int, Level("health, 1000 at best", "health")]
    interrupts: Annotated[int, Count("messages interrupted", _ENDED, (S.LOCAL_INTERRUPT,))]
    dropped: Annotated[int, Count("messages dropped here", _ENDED, (S.LOCAL_DROPPED,))]
    aborted: Annotated[int, Count("messages aborted here", _ENDED, (S.LOCAL_ABORTED,))]
    no_route: Annotated[int, Count("messages without a way", _ENDED, (S.LOCAL_NO_ROUTE,))]
    # Drivers for tcp cannot tell at which end it was: a time-out is one of either.
    timeouts: Annotated[int, Count("messages timed out", _ENDED, (S.LOCAL_TIMEOUT, S.NETWORK_TIMEOUT))]
    error: Annotated[int, Count("messages failed here otherwise", _ENDED, (S.LOCAL_ERROR,))]
    ping_count: Annotated[int, Count("recovery pings", "health_stats.ping_count")]
    next_ping: Annotated[int, Level("when recovery pings again, s", "health_stats.next_ping")]


class PeerNiHealth(Struct, rename={"health_value": "health value", "network_timeout": "network timeout"}):
    """`health stats:` of a peer NI."""

    health_value: Annotated[int, Level("health, 1000 at best", "health")]
    dropped: Annotated[int, Count("messages dropped there", _ENDED, (S.REMOTE_DROPPED,))]
    timeout: Annotated[int, Count("messages timed out there", _ENDED, (S.REMOTE_TIMEOUT,))]
    error: Annotated[int, Count("messages failed there otherwise", _ENDED, (S.REMOTE_ERROR,))]
    network_timeout: Annotated[int, Count("messages timed out on the way", _ENDED, (S.NETWORK_TIMEOUT,))]
    ping_count: Annotated[int, Count("recovery pings", "health_stats.ping_count")]
    next_ping: Annotated[int, Level("when recovery pings again, s", "health_stats.next_ping")]


class Statistics(Struct):
    """Counters of the node."""

    msgs_alloc: Annotated[int, Level("messages there are now", "stats.msgs_alloc")]
    msgs_max: Annotated[int, Level("messages there were at most", "stats.msgs_max")]
    rst_alloc: Annotated[int, Level("answers awaited now", "memory.count_awaited")]
    errors: Annotated[int, Count("messages that failed", "stats.errors")]
    send_count: Annotated[int, Count("messages sent", "stats.send_count")]
    resend_count: Annotated[int, Count("messages sent again", "stats.resend_count")]
    response_timeout_count: Annotated[int, Count("answers overdue", "stats.response_timeout_count")]
    local_interrupt_count: Annotated[int, Count("messages interrupted here", _FAILED, (S.LOCAL_INTERRUPT,))]
    local_dropped_count: Annotated[int, Count("messages dropped here", _FAILED, (S.LOCAL_DROPPED,))]
    local_aborted_count: Annotated[int, Count("messages aborted here", _FAILED, (S.LOCAL_ABORTED,))]
    local_no_route_count: Annotated[int, Count("messages without a way here", _FAILED, (S.LOCAL_NO_ROUTE,))]
    local_timeout_count: Annotated[int, Count("messages timed out here", _FAILED, (S.LOCAL_TIMEOUT,))]
    local_error_count: Annotated[int, Count("messages failed otherwise here", _FAILED, (S.LOCAL_ERROR,))]
    remote_dropped_count: Annotated[int, Count("messages dropped there", _FAILED, (S.REMOTE_DROPPED,))]
    remote_error_count: Annotated[int, Count("messages failed otherwise there", _FAILED, (S.REMOTE_ERROR,))]
    remote_timeout_count: Annotated[int, Count("messages timed out there", _FAILED, (S.REMOTE_TIMEOUT,))]
    network_timeout_count: Annotated[
        int, Count("messages timed out on the way", _FAILED, (S.NETWORK_TIMEOUT,))
    ]
    failed_resends: Annotated[int, Count("messages sent again in vain", "stats.failed_resends")]
    successful_resends: Annotated[int, Count("messages sent again that arrived", "stats.successful_resends")]
    recv_count: Annotated[int, Count("messages received", "stats.recv_count")]
    route_count: Annotated[int, Count("messages passed on", "stats.route_count")]
    drop_count: Annotated[int, Count("messages dropped", "stats.drop_count")]
    send_length: Annotated[int, Count("bytes sent", "stats.send_length")]
    recv_length: Annotated[int, Count("bytes received", "stats.recv_length")]
    route_length: Annotated[int, Count("bytes passed on", "stats.route_length")]
    drop_length: Annotated[int, Count("bytes dropped", "stats.drop_length")]
    differences: int | UnsetType = UNSET  # between peers as configured and as they say they are
    drops: dict[str, int] | UnsetType = UNSET  # dropped messages by reason, where there are any
