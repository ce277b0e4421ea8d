"""`peer add` and `peer del` (spec lnetctl.md §1 peer)."""

from __future__ import annotations

import errno
from collections.abc import Collection

from ulnet.control.instance import LNet
from ulnet.core.status import LNetError
from ulnet.dlc.model import PeerAdd, PeerDel
from ulnet.dlc.protocol import Answer
from ulnet.nid import Nid
from ulnet.node.admin.names import one_nid, read_nids
from ulnet.node.admin.show_peers import peer_of

__all__ = ["add_peer", "check_count", "delete_peer"]

_MOST_NIDS = 128  # of a configured peer, as the kernel's library has it


def add_peer(core: LNet, request: PeerAdd) -> None:
    """Configure a peer, or add NIDs to it. Raises LNetError."""
    nids = read_nids(request.nids)
    if request.primary is None and not nids:
        raise LNetError(
            errno.EINVAL, "no peer is named: give its primary NID with --prim_nid, its other NIDs with --nid"
        )
    primary = _primary(request.primary) if request.primary is not None else nids[0]
    others = [nid for nid in nids if nid != primary]
    known = core.peers.find(primary)
    check_count(
        primary, {primary, *others, *(known.nids() if known is not None and known.configured else ())}
    )
    for nid in (primary, *others):
        _no_gateway(core, nid)
    core.peers.add(primary, others, request.multi_rail, request.lock_primary)


def check_count(primary: Nid, nids: Collection[Nid]) -> None:
    """Refuse to configure a peer with too many NIDs. Raises LNetError(ERANGE)."""
    if len(nids) > _MOST_NIDS:
        rule = f"a configured peer has at most {_MOST_NIDS}; leave some out"
        text = f"peer {primary} would have {len(nids)} NIDs: {rule}"
        raise LNetError(errno.ERANGE, text)


def _no_gateway(core: LNet, nid: Nid) -> None:
    """A learned peer would be deleted to be configured anew, and one that routes lead over cannot be."""
    peer = core.peers.find(nid)
    if peer is not None and not peer.configured and (why := core.gateways.needed_for(peer)):
        raise LNetError(errno.EBUSY, f"{nid} cannot be configured as a peer's: {why}")


def delete_peer(core: LNet, request: PeerDel) -> Answer:
    """Delete NIDs of a peer, or the peer; without primary NID, of the one that has them. Raises LNetError.

    The answer notes what should be known of it.
    """
    nids = read_nids(request.nids)
    if request.primary is not None:
        primary = _primary(request.primary)
    elif nids:
        primary = peer_of(core, nids[0]).primary_nid
    else:
        raise LNetError(
            errno.EINVAL, "no peer is named: give its primary NID with --prim_nid, or its NIDs with --nid"
        )
    peer = core.peers.find(primary)
    core.peers.delete(primary, nids or None, request.force)
    if peer is None or peer.configured:
        return Answer()
    if nids and primary not in nids:
        text = f"peer {primary} was discovered, not configured: what it tells of itself brings such NIDs back"
    else:
        text = f"peer {primary} was discovered, not configured: it comes back with the next message"
    return Answer(notes=[text])


def _primary(text: str) -> Nid:
    """One NID; a range cannot name a peer."""
    if "[" in text or "*" in text:
        raise LNetError(errno.EINVAL, f"{text!r} names several NIDs: a peer has one primary NID")
    return one_nid(text)
