"""Requests about health values and recovery (spec health.md §6, lnetctl.md §1)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ulnet.dlc.request import BaseRequest, Tunables

__all__ = ["NetSet", "PeerDebug", "PeerSet", "RecoveryShow"]

_Health = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class NetSet(BaseRequest, tag="net.set"):
    """Change `nids`, or `all` NIs but `0@lo`: CPTs, health, tunables; or the time-out of net type `net`.

    `lnd_timeout` is in seconds; 0 derives it from the transaction timeout. `drain` 1: nothing new leaves by
    them, and peers send elsewhere, until it is 0 again. Of `tunables` those that are `live` may be given; one
    of a net holds for all of its NIs.
    """

    verb = "set"
    entity = "net"
    nids: list[str] = []
    all: bool = False
    cpts: str | None = None
    health: _Health | None = None
    drain: Annotated[int, msgspec.Meta(ge=0, le=1)] | None = None
    net: str | None = None
    lnd_timeout: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    tunables: Tunables = {}


class PeerSet(BaseRequest, tag="peer.set"):
    """Change the health of peer NIs, or of `all`."""

    verb = "set"
    entity = "peer"
    nids: list[str] = []
    all: bool = False
    health: _Health | None = None


class RecoveryShow(BaseRequest, tag="recovery.show"):
    """The local NIs or peer NIs under recovery."""

    verb = "debug"
    entity = "recovery"
    local: bool = False
    peer: bool = False


class PeerDebug(BaseRequest, tag="peer.debug"):
    """Put what the node knows of a peer into its log."""

    verb = "debug"
    entity = "peer"
    nid: str
