"""Requests about bonding NIs (docs/wire-bond.md; bonding design §2.2.3, §10)."""

from __future__ import annotations

import msgspec

from ulnet.dlc.request import BaseRequest

__all__ = ["BondAdd", "BondFailover", "BondOptions", "BondSet", "BondSwitch"]


class BondOptions(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Of a bonding NI; None is the default, or what it was. `weights` are in the order of its slaves.

    `mode`: standby or loadbalance; `policy` of the latter: roundrobin, weights, dynamic or congestion;
    `failback`: return or stay; `servers`: NIDs of bonding data servers; `keepalive` in seconds.
    """

    mode: str | None = None
    policy: str | None = None
    failback: str | None = None
    weights: list[int] | None = None
    servers: list[str] | None = None
    keepalive: float | None = None


class BondAdd(BaseRequest, tag="bond.add"):
    """Add a bonding NI on `net` over `slaves`: NIDs and patterns of local NIs, the default slave first."""

    verb = "add"
    entity = "net"
    net: str
    slaves: list[str]
    options: BondOptions = BondOptions()


class BondSet(BaseRequest, tag="bond.set"):
    """Change a bonding NI while it runs: what is given; `slaves` are then all of them."""

    verb = "set"
    entity = "bond"
    nid: str
    slaves: list[str] | None = None
    options: BondOptions = BondOptions()


class BondSwitch(BaseRequest, tag="bond.switch"):
    """Switch a slave on or off."""

    verb = "set"
    entity = "bond"
    nid: str
    slave: str
    on: bool


class BondFailover(BaseRequest, tag="bond.failover"):
    """Make another slave of a standby NI the active one: `slave`, or the next that works."""

    verb = "set"
    entity = "bond"
    nid: str
    slave: str | None = None
