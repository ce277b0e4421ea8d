"""`peer add` and `peer del` (spec lnetctl.md §1 peer)."""

from __future__ import annotations

import errno

from ulnet.control.instance import LNet
from ulnet.core.status import LNetError
from ulnet.dlc.model import PeerAdd, PeerDel
from ulnet.nid import Nid
from ulnet.node.admin.names import one_nid, read_nids
from ulnet.node.admin.show_peers import peer_of

__all__ = ["add_peer", "delete_peer"]


def add_peer(core: LNet, request: PeerAdd) -> None:
    """Configure a peer, or add NIDs to it. Raises LNetError."""
    nids = read_nids(request.nids)
    if request.primary is None and not nids:
        raise LNetError(
            errno.EINVAL, "no peer is named: give its primary NID with --prim_nid, its other NIDs with --nid"
        )
    primary = _primary(request.primary) if request.primary is not None else nids[0]
    others = [nid for nid in nids if nid != primary]
    core.peers.add(primary, others, request.multi_rail, request.lock_primary)


def delete_peer(core: LNet, request: PeerDel) -> None:
    """Delete NIDs of a peer, or the peer; without primary NID, of the one that has them. Raises LNetError."""
    nids = read_nids(request.nids)
    if request.primary is not None:
        primary = _primary(request.primary)
    elif nids:
        primary = peer_of(core, nids[0]).primary_nid
    else:
        raise LNetError(
            errno.EINVAL, "no peer is named: give its primary NID with --prim_nid, or its NIDs with --nid"
        )
    core.peers.delete(primary, nids or None, request.force)


def _primary(text: str) -> Nid:
    """One NID; a range cannot name a peer."""
    if "[" in text or "*" in text:
        raise LNetError(errno.EINVAL, f"{text!r} names several NIDs: a peer has one primary NID")
    return one_nid(text)
