"""Values in LNet selftest's messages: services, sessions, counters, parameters (spec selftest.md §2)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "ANY_SESSION",
    "BULK_LEN",
    "FEATURES",
    "RAILS_KNOWN",
    "BatchOp",
    "BulkBytes",
    "BulkPages",
    "Check",
    "Direction",
    "FrameworkCounters",
    "LnetCounters",
    "PingParameters",
    "RpcCounters",
    "Service",
    "SessionId",
]

BULK_LEN: Final = 0x1  # bulk has any length, and an offset
FEATURES: Final = BULK_LEN  # all that there are
RAILS_KNOWN: Final = 0x31534C4941524C55  # "ULRAILS1", in bytes of a reply that kernel nodes do not use
_U64_MAX: Final = (1 << 64) - 1


class Service(IntEnum):
    """Services: the match bits of their requests."""

    DEBUG = 0
    MAKE_SESSION = 1
    REMOVE_SESSION = 2
    BATCH = 3
    TEST = 4
    QUERY_STAT = 5
    JOIN = 6
    RAILS = 9  # ours alone: nodes that have it say so by RAILS_KNOWN
    BRW = 11
    PING = 12


class BatchOp(IntEnum):
    """What to do with a batch."""

    RUN = 1
    STOP = 2
    QUERY = 3


class Direction(IntEnum):
    """Where the data of a brw go, as its client sees it."""

    READ = 1
    WRITE = 2


class Check(IntEnum):
    """How data of a brw are checked by the side that gets them."""

    NONE = 1
    SIMPLE = 2
    FULL = 3
    DISCARD = 4


class SessionId(NamedTuple):
    """Who made a session (a NID of 64 bits), and when (milliseconds)."""

    nid: int
    stamp: int


ANY_SESSION: Final = SessionId(_U64_MAX, -1)


class FrameworkCounters(NamedTuple):
    """What a node counts of its session."""

    running_ms: int = 0
    active_batches: int = 0
    zombie_sessions: int = 0
    brw_errors: int = 0
    ping_errors: int = 0


class RpcCounters(NamedTuple):
    """What a node counts of requests; bulk in bytes."""

    errors: int = 0
    rpcs_sent: int = 0
    rpcs_rcvd: int = 0
    rpcs_dropped: int = 0
    rpcs_expired: int = 0
    bulk_get: int = 0
    bulk_put: int = 0


class LnetCounters(NamedTuple):
    """What LNet counts on a node (spec wire-lnet.md §8)."""

    msgs_alloc: int = 0
    msgs_max: int = 0
    errors: int = 0
    send_count: int = 0
    recv_count: int = 0
    route_count: int = 0
    drop_count: int = 0
    send_length: int = 0
    recv_length: int = 0
    route_length: int = 0
    drop_length: int = 0


class PingParameters(NamedTuple):
    """Of a ping test."""

    size: int = 0
    flags: int = 0


class BulkPages(NamedTuple):
    """Of a brw test without BULK_LEN: whole pages."""

    direction: int
    pages: int
    check: int


class BulkBytes(NamedTuple):
    """Of a brw test with BULK_LEN."""

    direction: int
    check: int
    length: int
    offset: int
