"""What upper layers say and ask: LNetAddPeer, LNetPrimaryNID, LNetPeerDiscovered (spec discovery.md §3, §8).

Upper layers know a node by one NID, and keep what they hold of it under that name. So the name is locked:
discovery finds out the node's other NIDs, but leaves the name alone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from ulnet.control.instance import LNet
from ulnet.core.peer import Peer, PeerFlag, may_be_listed
from ulnet.core.peer_rules import not_of_others
from ulnet.core.status import LNetError
from ulnet.nid import LO_NID, Nid

__all__ = ["ask_discovered", "ask_primary", "name_peer"]

_LOCK = int(PeerFlag.LOCK_PRIMARY)


def name_peer(core: LNet, nids: Sequence[Nid]) -> Peer:
    """Tell that these are NIDs of one node, and lock its primary NID; discovery of it begins.

    That NID is the first on a net of this node, else the first with a route, else the first. Where the node
    was named before, or is configured, it keeps its primary NID. With discovery off nobody can tell whether
    it has rails: then each NID within reach is a peer by itself, and the first of them is answered.
    Raises LNetError and changes nothing: EINVAL, EADDRINUSE (some are this node's own), ENOMEM, ESHUTDOWN.
    """
    core.state.must_run()
    if not nids:
        raise LNetError(errno.EINVAL, "no NID of the peer is given: name one at least")
    for nid in nids:
        if nid != LO_NID and not may_be_listed(nid):
            raise LNetError(errno.EINVAL, f"{nid} cannot name a peer: give the NID of one interface")
    named = [nid for nid in dict.fromkeys(nids) if nid != LO_NID] or [LO_NID]
    own = [nid for nid in named if core.peers.ours(nid)]
    if 0 < len(own) < len(named):
        other = next(nid for nid in named if nid not in own)
        raise LNetError(errno.EADDRINUSE, not_of_others(other, own[0]))
    best = sorted(named, key=lambda nid: _distance(core, nid))
    if core.settings.discovery:
        peer = core.peers.name(best)
    else:
        near = [nid for nid in best if not _distance(core, nid)] or best[:1]
        peer, *_ = [core.peers.name([nid]) for nid in near]
    if not peer.settled and peer.primary_nid != LO_NID:
        core.discover(peer.primary_nid, done=lambda error, found: None)
    return peer


def ask_primary(core: LNet, nid: Nid, *, lock: bool = False, done: Callable[[Nid], None]) -> None:
    """Tell `done` the primary NID of the node that has `nid`; with `lock`, it stays that from then on.

    At once where it is locked or the node was discovered (if need be, again meanwhile); else after its
    discovery, and if that fails, as it is known without. Raises LNetError: EINVAL, ENOMEM, ESHUTDOWN.
    """
    core.state.must_run()

    def tell(error: LNetError | None = None, found: Peer | None = None) -> None:
        peer = found or core.peers.find(nid)
        if peer is not None and lock and core.state.running:
            core.peers.lock(peer)
        done(nid if peer is None else peer.primary_nid)

    peer = core.peers.find(nid)
    if peer is not None and (peer.settled or peer.flags & _LOCK):
        tell(found=peer)
        if not peer.settled:
            core.discover(nid, done=lambda error, found: None)
    else:
        core.discover(nid, done=tell)


def ask_discovered(core: LNet, nid: Nid, *, done: Callable[[bool], None]) -> None:
    """Tell `done` whether discovery knows the node that has `nid`, with all its NIDs.

    At once where it does, and where that node's name is locked, for whose discovery (which begins) nobody
    waits; else after its discovery (spec discovery.md §3). Raises LNetError: EINVAL, ENOMEM, ESHUTDOWN.
    """
    core.state.must_run()
    peer = core.peers.find(nid)
    if peer is not None and peer.settled:
        done(True)
    elif peer is not None and peer.flags & _LOCK:
        core.discover(nid, done=lambda error, found: None)
        done(False)
    else:
        core.discover(nid, done=lambda error, found: done(found is not None and not error and found.settled))


def _distance(core: LNet, nid: Nid) -> int:
    """0 on a net of this node, 1 over routes, 2 out of reach."""
    if nid.net in core.nets:
        return 0
    return 1 if nid.net in core.gateways.table else 2
