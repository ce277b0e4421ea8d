"""The state machines of local NIs, local nets, peers and peer NIs, as tables (documents, HEALTH-fsm).

A table maps (state, input) to (action, next state); an input that is not there changes nothing. The
diagrams in docs/design/health.md are drawn from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

__all__ = [
    "LOCAL_NET",
    "LOCAL_NI",
    "PEER",
    "PEER_NI",
    "Action",
    "NetInput",
    "NetState",
    "NiInput",
    "NiState",
    "PeerInput",
    "PeerNiInput",
    "PeerNiState",
    "PeerState",
]


class Action(Enum):
    """What is done on the way."""

    NOTHING = ""
    REPORT = "log it"
    LEAVE = "waiting messages leave it, ping info tells DOWN, log it"
    RETURN = "ping info tells UP, log it"
    RECOVER = "ping it until it is well"


class NiState(Enum):
    """Of a local NI."""

    INIT = "INIT"
    ACTIVE = "ACTIVE"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"
    DELETING = "DELETING"


class NiInput(Enum):
    """What its driver or an administrator says of a local NI, and what is measured of it."""

    ADDED = "added"
    FATAL = "device failed"
    RECOVERED = "device recovered"
    DEGRADED = "device degraded"
    RESTORED = "device restored"
    SLOW = "carries far less than it should"
    GOOD = "carries as much as it should"
    DELETED = "deleted"


class NetState(Enum):
    """Of a local net."""

    INIT = "INIT"
    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    DELETING = "DELETING"


class NetInput(Enum):
    """What became of the NIs of a local net."""

    NI_USABLE = "an NI is usable"
    ALL_FAILED = "all NIs failed"
    LAST_DELETED = "its last NI is deleted"


class PeerState(Enum):
    """Of a peer; what discovery does meanwhile has a machine of its own."""

    INIT = "INIT"
    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"


class PeerInput(Enum):
    """What became of the paths to a peer."""

    USED = "added, or first message"
    ALL_FAILED = "all paths failed"
    PATH_RECOVERED = "a path recovered"


class PeerNiState(Enum):
    """Of a peer NI."""

    CREATED = "CREATED"
    ACTIVATING = "ACTIVATING"
    CONNECTED = "CONNECTED"
    FAILED = "FAILED"


class PeerNiInput(Enum):
    """What became of the messages to and from a peer NI."""

    POSTED = "message sets out"
    SENT = "message sent"
    HEARD = "message received"
    FAILED = "message failed"


LocalNiTable: TypeAlias = Mapping[tuple[NiState, NiInput], tuple[Action, NiState]]
LocalNetTable: TypeAlias = Mapping[tuple[NetState, NetInput], tuple[Action, NetState]]
PeerTable: TypeAlias = Mapping[tuple[PeerState, PeerInput], tuple[Action, PeerState]]
PeerNiTable: TypeAlias = Mapping[tuple[PeerNiState, PeerNiInput], tuple[Action, PeerNiState]]

LOCAL_NI: LocalNiTable = {
    (NiState.INIT, NiInput.ADDED): (Action.NOTHING, NiState.ACTIVE),
    (NiState.ACTIVE, NiInput.FATAL): (Action.LEAVE, NiState.FAILED),
    (NiState.ACTIVE, NiInput.DEGRADED): (Action.REPORT, NiState.DEGRADED),
    (NiState.ACTIVE, NiInput.SLOW): (Action.REPORT, NiState.DEGRADED),
    (NiState.DEGRADED, NiInput.RESTORED): (Action.REPORT, NiState.ACTIVE),
    (NiState.DEGRADED, NiInput.GOOD): (Action.REPORT, NiState.ACTIVE),
    (NiState.DEGRADED, NiInput.FATAL): (Action.LEAVE, NiState.FAILED),
    (NiState.FAILED, NiInput.RECOVERED): (Action.RETURN, NiState.ACTIVE),
    (NiState.ACTIVE, NiInput.DELETED): (Action.LEAVE, NiState.DELETING),
    (NiState.DEGRADED, NiInput.DELETED): (Action.LEAVE, NiState.DELETING),
    (NiState.FAILED, NiInput.DELETED): (Action.LEAVE, NiState.DELETING),
}
LOCAL_NET: LocalNetTable = {
    (NetState.INIT, NetInput.NI_USABLE): (Action.NOTHING, NetState.ACTIVE),
    (NetState.ACTIVE, NetInput.ALL_FAILED): (Action.REPORT, NetState.INACTIVE),
    (NetState.INACTIVE, NetInput.NI_USABLE): (Action.REPORT, NetState.ACTIVE),
    (NetState.ACTIVE, NetInput.LAST_DELETED): (Action.NOTHING, NetState.DELETING),
    (NetState.INACTIVE, NetInput.LAST_DELETED): (Action.NOTHING, NetState.DELETING),
}
PEER: PeerTable = {
    (PeerState.INIT, PeerInput.USED): (Action.NOTHING, PeerState.ACTIVE),
    (PeerState.ACTIVE, PeerInput.ALL_FAILED): (Action.REPORT, PeerState.INACTIVE),
    (PeerState.INACTIVE, PeerInput.PATH_RECOVERED): (Action.REPORT, PeerState.ACTIVE),
}
PEER_NI: PeerNiTable = {
    (PeerNiState.CREATED, PeerNiInput.POSTED): (Action.NOTHING, PeerNiState.ACTIVATING),
    (PeerNiState.CREATED, PeerNiInput.HEARD): (Action.NOTHING, PeerNiState.CONNECTED),
    (PeerNiState.CREATED, PeerNiInput.FAILED): (Action.RECOVER, PeerNiState.FAILED),
    (PeerNiState.ACTIVATING, PeerNiInput.SENT): (Action.NOTHING, PeerNiState.CONNECTED),
    (PeerNiState.ACTIVATING, PeerNiInput.HEARD): (Action.NOTHING, PeerNiState.CONNECTED),
    (PeerNiState.ACTIVATING, PeerNiInput.FAILED): (Action.RECOVER, PeerNiState.FAILED),
    (PeerNiState.CONNECTED, PeerNiInput.FAILED): (Action.RECOVER, PeerNiState.FAILED),
    (PeerNiState.FAILED, PeerNiInput.SENT): (Action.NOTHING, PeerNiState.CONNECTED),
    (PeerNiState.FAILED, PeerNiInput.HEARD): (Action.NOTHING, PeerNiState.CONNECTED),
    (PeerNiState.FAILED, PeerNiInput.FAILED): (Action.RECOVER, PeerNiState.FAILED),
}
