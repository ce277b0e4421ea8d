"""What configuration may do to peers, asked before anything changes (spec discovery.md §7, lnetctl.md §1)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ulnet.core.peer import Peer, PeerFlag, may_be_peer
from ulnet.core.status import LNetError
from ulnet.nid import NetType, Nid

if TYPE_CHECKING:
    from ulnet.core.peer_table import PeerTable

__all__ = ["check_add", "check_delete", "named", "not_of_others"]

_CONFIGURED = int(PeerFlag.CONFIGURED)
_LOCK = int(PeerFlag.LOCK_PRIMARY)


def named(peer: Peer) -> bool:
    """Whether an upper layer, and no administrator, calls it by its primary NID."""
    return peer.flags & (_LOCK | _CONFIGURED) == _LOCK


def not_of_others(primary: Nid, nid: Nid) -> str:
    """Why a NID of this node cannot be one of a configured peer's."""
    return f"{nid} is a NID of this node: peer {primary} cannot have it; give NIDs of the other node only"


def check_add(table: PeerTable, primary: Nid, nids: Sequence[Nid], multi_rail: bool) -> Peer | None:
    """The peer that is there already, if any. Raises LNetError where it, or its NIDs, cannot be added."""
    for nid in (primary, *nids):
        if not may_be_peer(nid):
            raise LNetError(errno.EINVAL, f"{nid} cannot name a peer: give the NID of one interface")
        if nid.net.type == NetType.BOND:
            raise LNetError(errno.EINVAL, f"{nid} is a peer by itself: name its slaves only")
        if table.ours(nid):
            raise LNetError(errno.EADDRINUSE, not_of_others(primary, nid))
    peer = table.find(primary)
    if peer is not None and peer.configured:
        _check_known(peer, primary, multi_rail)
    elif peer is not None and named(peer):
        code = errno.EEXIST if peer.primary_nid == primary else errno.EALREADY
        raise LNetError(
            code,
            f"{primary} belongs to peer {peer.primary_nid}, whose primary NID an upper layer has locked: "
            "leave it to discovery, or delete that peer with --force first",
        )
    base = peer if peer is not None and peer.configured else None
    nets = dict.fromkeys(base.nets, 1) if base is not None else {primary.net: 1}
    for nid in dict.fromkeys(nids):
        _check_free(table.find(nid), peer, nid)
        if nid == primary or (base is not None and base.owns(nid)):
            continue
        if not multi_rail and nets.get(nid.net):
            raise LNetError(
                errno.ENOTUNIQ,
                f"peer {primary} is not Multi-Rail and has a NID on {nid.net} already: "
                f"{nid} would be its second there; leave out --non_mr or this NID",
            )
        nets[nid.net] = 1
    return peer


def _check_known(peer: Peer, primary: Nid, multi_rail: bool) -> None:
    if peer.primary_nid != primary:
        raise LNetError(
            errno.EEXIST,
            f"{primary} belongs to the configured peer {peer.primary_nid}: "
            "use that primary NID, or delete that peer first",
        )
    if peer.multi_rail != multi_rail:
        kind = "Multi-Rail" if peer.multi_rail else "not Multi-Rail"
        raise LNetError(
            errno.EPERM, f"peer {primary} is configured as {kind}: delete it first to change that"
        )


def _check_free(other: Peer | None, peer: Peer | None, nid: Nid) -> None:
    """Whether a NID may leave the peer that has it, for another one."""
    if other is None or other is peer:
        return
    if other.configured:
        raise LNetError(
            errno.EEXIST,
            f"{nid} belongs to the configured peer {other.primary_nid}: "
            "a NID can be in one peer only; delete it there first",
        )
    if named(other) and other.primary_nid == nid:
        raise LNetError(
            errno.EEXIST,
            f"{nid} is the primary NID of a peer, locked by an upper layer: "
            "delete that peer with --force first",
        )


def check_delete(
    table: PeerTable, primary: Nid, nids: Sequence[Nid], needed_for: Callable[[Peer], str]
) -> Peer:
    """The peer. Raises LNetError where it, or its NIDs, cannot be deleted.

    `needed_for` tells why a peer must stay, "" if it need not.
    """
    if primary.is_any:
        raise LNetError(errno.EINVAL, "the wildcard NID cannot name a peer: give its primary NID")
    peer = table.find(primary)
    if peer is None:
        raise LNetError(errno.ENOENT, f"no peer has the NID {primary}: see 'lnetctl peer show'")
    if peer.primary_nid != primary:
        raise LNetError(
            errno.ENODEV,
            f"{primary} is not the primary NID of its peer: that is {peer.primary_nid}; use it instead",
        )
    for nid in nids:
        other = table.find(nid)
        if other is None:
            raise LNetError(errno.ENOENT, f"peer {primary} has no NID {nid}: see 'lnetctl peer show'")
        if other is not peer:
            raise LNetError(errno.ECHILD, f"{nid} belongs to peer {other.primary_nid}, not to {primary}")
    why = needed_for(peer)
    if why and (not nids or primary in nids):
        raise LNetError(errno.EBUSY, f"peer {primary} cannot be deleted: {why}")
    return peer
