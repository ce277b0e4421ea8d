"""What an NI that is to be added, and its net, must not be: refusals in words (spec lnetctl.md §1 net)."""

from __future__ import annotations

import errno
from dataclasses import replace

from ulnet.core.lnd import Drivers, Lnd
from ulnet.core.ni import LocalNet
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.nid import LO_NET, LO_NID, Net, Nid

__all__ = ["check_new_ni", "new_net"]


def check_new_ni(state: NodeState, drivers: Drivers, net: Net, nid: Nid, interface: str | None) -> Lnd:
    """The driver of the net. Raises LNetError: EINVAL, EEXIST, EADDRINUSE, EPERM, ENOSPC, ESHUTDOWN."""
    state.must_run()
    if nid.is_any:
        raise LNetError(errno.EINVAL, "the wildcard NID is not that of an interface: give its address")
    if nid.net != net:
        raise LNetError(errno.EINVAL, f"{nid} is not on net {net}: add it to net {nid.net}")
    if net == LO_NET and nid != LO_NID:
        raise LNetError(errno.EINVAL, f"{nid}: the loopback net has one NID only, {LO_NID}")
    lnd = drivers.of(net)
    if nid in state.nis:
        raise LNetError(errno.EEXIST, f"{nid} is configured already: see 'lnetctl net show'")
    peer = state.peers.find(nid)
    if peer is not None and peer.configured:
        raise LNetError(
            errno.EADDRINUSE,
            f"{nid} belongs to the configured peer {peer.primary_nid}: a NID is of one node; "
            "delete it there first",
        )
    local = state.nets.get(net)
    if local is not None and local.bonded:
        raise LNetError(
            errno.EPERM,
            f"net {net} was configured with use_tcp_bonding: it is one NI, {local.nis[0].nid}, and takes no "
            "other; to change its interfaces, delete the net and add it anew with all of them",
        )
    if local is not None and interface is not None and any(ni.interface == interface for ni in local.nis):
        raise LNetError(
            errno.EEXIST,
            f"interface {interface} is in net {net} already: one device carries one NI of a net",
        )
    if len(state.nis) >= state.settings.max_interfaces:
        raise LNetError(
            errno.ENOSPC,
            f"{len(state.nis)} NIs are configured: max_interfaces allows no more; raise it first",
        )
    return lnd


def new_net(net: Net, lnd: Lnd, tunables: NetTunables, *, bonded: bool) -> LocalNet:
    """A net without NIs, with tunables of its own. Raises LNetError(EINVAL): its credits."""
    if tunables.credits < 1 or tunables.peer_credits < 1:
        raise LNetError(
            errno.EINVAL,
            f"net {net} with credits {tunables.credits}, peer_credits {tunables.peer_credits}: "
            "both must be at least 1",
        )
    if tunables.peer_credits > tunables.credits:
        raise LNetError(
            errno.EINVAL,
            f"net {net}: peer_credits {tunables.peer_credits} exceed credits {tunables.credits}; "
            "lower them or raise credits",
        )
    own = NetTunables(peer_timeout=0, peer_credits=0, credits=0) if net == LO_NET else replace(tunables)
    local = LocalNet(net, lnd, own)
    local.bonded = bonded
    return local
