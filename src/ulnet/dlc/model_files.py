"""Requests that files make and command lines do not (spec lnetctl.md §4; Multi-Rail design, YAML syntax)."""

from __future__ import annotations

import msgspec

from ulnet.dlc.model_bond import BondAdd
from ulnet.dlc.request import BaseRequest, Tunables

__all__ = ["Ip2netsRule", "NetMatch", "PeerRefresh", "PeerRemove"]


class Ip2netsRule(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """NIs on `net` for the interfaces with an address in `ranges`; `interfaces` are names or patterns.

    Without `interfaces` all that match, without `ranges` the named ones, without both the host's first.
    `bond` is added, in place of all that, where the host has an address in `ranges`, or without `ranges`.
    """

    net: str
    interfaces: list[str] = []
    ranges: list[str] = []
    tunables: Tunables = {}
    cpts: str | None = None
    bond: BondAdd | None = None


class NetMatch(BaseRequest, tag="net.match"):
    """Add (or delete) the NIs that ip2nets rules choose among this host's interfaces; each rule all or none.

    `first_wins`: of several rules for one net the first that matches is the only one, as in the section
    `ip2nets` of files. In module strings all that match add up. It is an error when no rule at all matches.
    """

    verb = "add"
    entity = "net"
    rules: list[Ip2netsRule]
    first_wins: bool = False
    delete: bool = False


class PeerRefresh(BaseRequest, tag="peer.refresh"):
    """Make `nids` (and `primary`) the NIDs of a configured peer: what is not named goes, what is new comes.

    Without `primary`, any of the NIDs names the peer. A NID that cannot be had is told by its index.
    """

    verb = "add"
    entity = "peer"
    nids: list[str]
    primary: str | None = None
    multi_rail: bool | None = None
    lock_primary: bool = False


class PeerRemove(BaseRequest, tag="peer.remove"):
    """Take `nids` from a peer; without NIDs left it goes. Those that it does not have are told by index."""

    verb = "del"
    entity = "peer"
    nids: list[str]
    primary: str | None = None
