"""`load:` of NIs and peer NIs: `net show --load` and `peer show --load`, which the real tool has not."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from ulnet.dlc.documents_counters import ByteCounts

__all__ = ["NiLoad", "PathLoad", "PeerNiLoad"]


class NiLoad(ByteCounts):
    """Bytes, credits of all its CPTs' queues, messages that wait for one, and `choices` by what decided them.

    `state` is that of its state machine; `resends` counts by the status of the failure; `degraded` says
    why it is that: by its device, by the rate that was measured.
    """

    max_tx_credits: int
    available_tx_credits: int
    min_tx_credits: int
    waiting: int
    choices: dict[str, int]
    state: str
    down_events: int
    up_events: int
    resends: dict[str, int]
    degraded: dict[str, str] | UnsetType = UNSET


class PathLoad(Struct):
    """From one local NI: bytes sent and not confirmed, and bytes per second as observed (0: not known)."""

    outstanding: int
    rate: int


class PeerNiLoad(ByteCounts):
    """Messages that wait for its credits, choices, and its paths by local NID; the others as above.

    `connects` counts attempts to connect that failed: `addr_err` (no host answers for the address),
    `unreachable` (nothing came back), `connect_rej` (the host or its LNet refused), `connect_err` (others).
    """

    waiting: int
    choices: dict[str, int]
    paths: dict[str, PathLoad]
    state: str
    resends: dict[str, int]
    connects: dict[str, int] | UnsetType = UNSET
