"""Failures as health status, errno and sentence, in tables (spec wire-o2iblnd.md §1.4, §2, §6)."""

from __future__ import annotations

import errno as e
from enum import Enum
from typing import Final, NamedTuple

from ulnet.core.status import HealthStatus, errno_text
from ulnet.lnd.contract import NiEvent
from ulnet.lnd.o2ib.verbs import CmEvent, DeviceEvent
from ulnet.wire.o2ib import Reason

__all__ = [
    "CM_FAILURES",
    "CM_REASONS",
    "DEVICE_EVENTS",
    "REACTIONS",
    "Failure",
    "Phase",
    "Reaction",
    "aborted",
    "connect_status",
    "why_unconnected",
]


class Failure(NamedTuple):
    """Why a connection ended: a positive errno, and a sentence."""

    errno: int
    reason: str


class Phase(Enum):
    """What a transmit was doing when its connection ended."""

    QUEUED = "waited to be posted"
    SENDING = "was posted and not completed"
    WAITING = "awaited its answer"


# How a transmit ends in each phase: when its connection timed out, and when it ended otherwise.
_ABORTED: Final = {
    Phase.QUEUED: (HealthStatus.LOCAL_TIMEOUT, HealthStatus.REMOTE_ERROR),
    Phase.SENDING: (HealthStatus.NETWORK_TIMEOUT, HealthStatus.REMOTE_DROPPED),
    Phase.WAITING: (HealthStatus.REMOTE_TIMEOUT, HealthStatus.REMOTE_DROPPED),
}

_OWN: Final = frozenset({e.ENETDOWN, e.ESHUTDOWN})  # connections that end by what happens here

# The errno of an attempt to connect that failed.
CM_FAILURES: Final = {
    CmEvent.ADDR_ERROR: e.EHOSTUNREACH,
    CmEvent.ROUTE_ERROR: e.EHOSTUNREACH,
    CmEvent.UNREACHABLE: e.ENETDOWN,
    CmEvent.CONNECT_ERROR: e.ENOTCONN,
    CmEvent.DISCONNECTED: e.ECONNRESET,
}

# Calls that fail, by their errno. All others failed by what the peer said (docs/compatibility.md).
_CONNECT: Final = {
    e.EHOSTUNREACH: HealthStatus.NETWORK_TIMEOUT,
    e.ETIMEDOUT: HealthStatus.NETWORK_TIMEOUT,
    e.ECONNREFUSED: HealthStatus.REMOTE_DROPPED,
    e.ENETDOWN: HealthStatus.LOCAL_DROPPED,
    e.ENOTCONN: HealthStatus.LOCAL_DROPPED,
}

# What the core hears of a device; what is not here is told to the log alone.
DEVICE_EVENTS: Final = {
    DeviceEvent.DEVICE_FATAL: NiEvent.FATAL,
    DeviceEvent.PORT_ERR: NiEvent.FATAL,
    DeviceEvent.DEVICE_REMOVAL: NiEvent.FATAL,
    DeviceEvent.PORT_ACTIVE: NiEvent.RECOVERED,
}


class Reaction(Enum):
    """What the side that called does about a refusal."""

    FAIL = "what waits fails"
    WAIT = "the peer calls: wait for that, then call again"
    VERSION = "call again with the version in the refusal"
    STAMP = "call again with the incarnation in the refusal"
    FRAGMENTS = "call again with as many fragments as the refusal allows"
    DEPTH = "call again with the queue depth that the refusal allows"


REACTIONS: Final = {
    Reason.CONN_RACE: (Reaction.WAIT, e.EALREADY),
    Reason.NO_RESOURCES: (Reaction.FAIL, e.ECONNREFUSED),
    Reason.FATAL: (Reaction.FAIL, e.ECONNREFUSED),
    Reason.CONN_UNCOMPAT: (Reaction.VERSION, e.EPROTONOSUPPORT),
    Reason.CONN_STALE: (Reaction.STAMP, e.ESTALE),
    Reason.RDMA_FRAGS: (Reaction.FRAGMENTS, e.EMSGSIZE),
    Reason.MSG_QUEUE_SIZE: (Reaction.DEPTH, e.EMSGSIZE),
    Reason.INVALID_SRV_ID: (Reaction.FAIL, e.EHOSTUNREACH),
    Reason.EARLY: (Reaction.FAIL, e.ECONNREFUSED),
}
_NO_LISTENER: Final = 8
_STALE: Final = 10
# Refusals of the connection manager itself, by its reason; all others are FAIL and ECONNREFUSED.
CM_REASONS: Final = {
    _NO_LISTENER: (Reaction.FAIL, e.EHOSTUNREACH),
    _STALE: (Reaction.STAMP, e.ESTALE),
}


def aborted(phase: Phase, errno: int) -> HealthStatus:
    """The health status of a transmit whose connection ended with that errno."""
    if errno == e.EACCES:  # an access list here, which denies the peer
        return HealthStatus.REMOTE_ERROR
    if phase is Phase.QUEUED and errno in _OWN:
        return HealthStatus.LOCAL_ERROR
    return _ABORTED[phase][errno != e.ETIMEDOUT]


def connect_status(errno: int, of_device: bool = False) -> HealthStatus:
    """The health status of what waited for a connection that could not be made, by its peer or a device."""
    others = HealthStatus.LOCAL_DROPPED if of_device else HealthStatus.REMOTE_ERROR
    return _CONNECT.get(errno, others)


def why_unconnected(errno: int, peer: str, service: int) -> str:
    """The sentence for a connection that never came up."""
    if errno == e.EHOSTUNREACH:
        return (
            f"{peer} cannot be reached: no RDMA device answers at that address, or nothing listens at "
            f"service {service}; is LNet up there, on an RDMA interface?"
        )
    if errno == e.ENETDOWN:
        return f"{peer} does not answer: check cables, switches and the subnet manager between"
    return f"connecting to {peer} failed: {errno_text(errno)}"
