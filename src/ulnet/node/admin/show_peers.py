"""Peers and peer NIs as documents (spec lnetctl.md §5 peer show)."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import islice

from msgspec import UNSET

from ulnet.control.view import View
from ulnet.core.peer import Peer, PeerFlag, PeerNi
from ulnet.core.status import LNetError
from ulnet.dlc.documents import NidItem, PeerNiHealth, PeerNiView, PeerView, TrafficStats, UdspInfo
from ulnet.dlc.documents_counters import read_counters
from ulnet.dlc.model import PeerList, PeerShow
from ulnet.nid import LO_NID, NetType, Nid
from ulnet.node.admin.bonds import bond_of_peer
from ulnet.node.admin.names import one_nid, read_nids
from ulnet.node.admin.show_load import load_of_peer_ni
from ulnet.node.admin.show_nets import message_counts, policy_of

__all__ = ["export_peers", "list_peers", "peer_of", "show_peers"]

_ABOUT = int(PeerFlag.CONFIGURED | PeerFlag.LOCK_PRIMARY)
_MOST_NIDS = 128  # of one list, as today


def show_peers(core: View, request: PeerShow) -> Iterator[PeerView | None]:
    """All peers, or those that have the NIDs; None for a part of one. Raises LNetError(EINVAL, ENOENT).

    Pages (`count` peers, whose primary NIDs come behind `after`) are in the order of NIDs, which stays as it
    is while peers come and go: none is left out or shown twice, and `after` may be gone.
    """
    chosen = _peers(core)
    if request.nids:
        chosen = list(dict.fromkeys(peer_of(core, nid) for nid in read_nids(request.nids)))
    if request.count or request.after is not None:
        last = b"" if request.after is None else one_nid(request.after)
        behind = [peer for peer in chosen if peer.primary_nid > last]
        chosen = nsmallest(request.count or len(behind), behind, key=lambda peer: peer.primary_nid)
    kept = chosen if request.strangers else (None if _is_stranger(core, peer) else peer for peer in chosen)
    return _views(core, kept, request.verbosity, request.load)


def list_peers(core: View, request: PeerList) -> Iterator[NidItem]:
    """Their primary NIDs."""
    return (NidItem(str(peer.primary_nid)) for peer in _peers(core) if not peer.gone)


def export_peers(core: View, backup: bool) -> Iterator[PeerView | None]:
    """What an export tells of peers: bonding finds its own again by itself. None for a part of one.

    A backup has the configured ones alone. A peer that was learned may not be known whole, and configuration
    holds against discovery.
    """
    peers = [peer for peer in _peers(core) if peer.primary_nid.net.type != NetType.BOND]
    return _backup(peers) if backup else _views(core, peers, 3, False)


def _backup(peers: list[Peer]) -> Iterator[PeerView]:
    for peer in peers:
        if not peer.configured or peer.gone:
            continue
        view = PeerView(str(peer.primary_nid), peer.multi_rail)
        if peer.flags & PeerFlag.LOCK_PRIMARY:  # nothing else tells of the lock
            view.peer_state = int(PeerFlag.LOCK_PRIMARY)
        view.peer_ni = [PeerNiView(str(pni.nid)) for pni in peer.nis()]
        yield view


def _peers(core: View) -> list[Peer]:
    return [peer for peer in core.peers if peer.primary_nid != LO_NID]


def peer_of(core: View, nid: Nid) -> Peer:
    """The peer that has a NID. Raises LNetError(ENOENT)."""
    peer = core.peers.find(nid)
    if peer is None:
        raise LNetError(
            errno.ENOENT, f"no peer has the NID {nid}: 'lnetctl peer show' without --nid lists all"
        )
    return peer


def _is_stranger(core: View, peer: Peer) -> bool:
    """Whether it is known by messages alone that name it as their source, which others may have invented.

    Nothing comes from such a peer itself, nothing was sent there, and nothing in this node is about it.
    """
    if peer.flags & _ABOUT or peer.heard or not peer.idle or core.gateways.is_gateway(peer):
        return False
    return not any(
        any(pni.stats.sent) or any(pni.health_stats.by_status) or pni.health_stats.connects
        for pni in peer.members.values()
    )


def _views(core: View, peers: Iterable[Peer | None], verbosity: int, load: bool) -> Iterator[PeerView | None]:
    """A step for each peer NI: a peer may have thousands. Who came or left meanwhile is left out.

    A NID that went from one peer to another is shown once, or not at all if the other was shown already.
    """
    shown: set[Nid] = set()
    for peer in peers:
        if peer is None or peer.gone:
            yield None
            continue
        view = PeerView(str(peer.primary_nid), peer.multi_rail)
        if verbosity >= 3:
            view.peer_state = peer.flags
        if peer.differences:
            view.differences = list(peer.differences)
        nis = [pni for pni in peer.nis() if pni.nid not in shown]
        shown.update(pni.nid for pni in nis)
        view.peer_ni = []
        for pni in nis:
            if core.peers.find_ni(pni.nid) is pni:
                view.peer_ni.append(_peer_ni(core, pni, verbosity, load))
                yield None
        yield view


def _peer_ni(core: View, pni: PeerNi, verbosity: int, load: bool) -> PeerNiView:
    view = PeerNiView(str(pni.nid), state=core.routing.aliveness(pni))
    if verbosity >= 1:
        view.max_ni_tx_credits = pni.max_tx_credits
        view.available_tx_credits = pni.tx_credits
        view.min_tx_credits = pni.min_tx_credits
        view.tx_q_num_of_buf = pni.tx_queued_bytes
        view.available_rtr_credits = pni.rtr_credits
        view.min_rtr_credits = pni.min_rtr_credits
        view.refcount = pni.refs
        view.statistics = read_counters(TrafficStats, pni)
        view.bond = bond_of_peer(core, pni) or UNSET
    if verbosity >= 2:
        view.sent_stats, view.received_stats, view.dropped_stats = message_counts(pni.stats)
        view.health_stats = read_counters(PeerNiHealth, pni)
    if verbosity >= 4:
        view.udsp_info = _policy(pni)
    if load:
        view.load = load_of_peer_ni(pni)
    return view


def _policy(pni: PeerNi) -> UdspInfo:
    info = policy_of(pni)
    if pni.turn_lengths:
        info.turns = {str(nid): weight for nid, weight in islice(pni.turn_lengths.items(), _MOST_NIDS)}
    if pni.preferred_gateways:
        info.gateways = {f"NID-{at}": str(one) for at, one in enumerate(pni.preferred_gateways[:_MOST_NIDS])}
    if pni.preferred_nids:
        names = sorted(map(str, pni.preferred_nids))[:_MOST_NIDS]
        info.sources = {f"NID-{at}": name for at, name in enumerate(names)}
    return info
