"""Bonding NIs and their peers as `net show` and `peer show` print them. The real tool has none."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

__all__ = ["BondPathView", "BondPeerView", "BondView"]


class BondView(Struct):
    """`bond:` of a local NI: what was configured, then how it is; mappings are by slave or server."""

    mode: str
    policy: str | UnsetType = UNSET
    failback: str | UnsetType = UNSET
    weights: str | UnsetType = UNSET
    keepalive: float | UnsetType = UNSET
    bds: dict[int, str] | UnsetType = UNSET
    active: str | UnsetType = UNSET
    slave_status: dict[str, str] | UnsetType = UNSET
    server_status: dict[str, str] | UnsetType = UNSET
    incarnation: int | UnsetType = UNSET
    failovers: int | UnsetType = UNSET
    keepalives: int | UnsetType = UNSET
    lookups: int | UnsetType = UNSET
    registered: int | UnsetType = UNSET
    lookups_served: int | UnsetType = UNSET


class BondPathView(Struct):
    """A path: rates are in bytes per second."""

    local: str
    remote: str
    status: str
    weight: int | float
    rate: int


class BondPeerView(Struct):
    """`bond:` of a peer NI."""

    state: str
    incarnation: int
    version: int
    mode: str | UnsetType = UNSET
    active: str | UnsetType = UNSET
    paths: list[BondPathView] | UnsetType = UNSET
