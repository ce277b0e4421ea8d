"""`peer add` and `peer del` (spec lnetctl.md §1 peer)."""

from __future__ import annotations

import errno

from ulnet.control.instance import LNet
from ulnet.core.status import LNetError
from ulnet.dlc.model import PeerAdd, PeerDel
from ulnet.nid import Nid
from ulnet.node.admin.names import one_nid, read_nids

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
    """Delete NIDs of a peer, or the peer. Raises LNetError."""
    if request.primary is None:
        raise LNetError(errno.EINVAL, "no peer is named: give its primary NID with --prim_nid")
    core.peers.delete(_primary(request.primary), read_nids(request.nids) or None, request.force)


def _primary(text: str) -> Nid:
    """One NID; a range cannot name a peer."""
    if "[" in text or "*" in text:
        raise LNetError(errno.EINVAL, f"{text!r} names several NIDs: a peer has one primary NID")
    return one_nid(text)
