"""Which local NI sends to which peer NI: round robin over the usable pairs (spec selection.md §2, §3).

The message has a source or not, and the destination is a multi-rail peer or not; a response always
goes back along the path of its request.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import Peer, PeerNi
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.wire.lnet import PING_PORTAL, MsgType

__all__ = ["choose"]


def choose(state: NodeState, msg: Msg, dest: PeerNi) -> tuple[NI, PeerNi]:
    """The pair for msg to the node behind `dest`. Raises LNetError: EINVAL (source), EHOSTUNREACH."""
    if msg.src_spec is not None:
        return _from_given_source(state, msg, dest)
    if msg.hdr.type in (MsgType.ACK, MsgType.REPLY):
        return _best_ni(state, dest), dest
    if dest.peer.multi_rail:
        return _best_pair(state, dest.peer, dest)
    return _towards_single_rail(state, msg, dest), dest


def _from_given_source(state: NodeState, msg: Msg, dest: PeerNi) -> tuple[NI, PeerNi]:
    src = msg.src_spec
    assert src is not None
    ni = state.nis.get(src)
    if ni is None or not ni.active:
        raise LNetError(errno.EINVAL, f"source NID {src} is not one of this node's: see 'lnetctl net show'")
    if ni.net.net != dest.nid.net:
        raise _no_route(state, dest)
    if not dest.peer.multi_rail and dest.preferred is None and msg.hdr.type in (MsgType.PUT, MsgType.GET):
        dest.preferred = src
    return ni, dest


def _towards_single_rail(state: NodeState, msg: Msg, dest: PeerNi) -> NI:
    """A peer without multi-rail always hears from the same NI; pings do not mind."""
    is_ping = msg.hdr.portal == PING_PORTAL
    if dest.preferred is not None and not is_ping:
        ni = state.nis.get(dest.preferred)
        if ni is not None and ni.active:
            return ni
    ni = _best_ni(state, dest)
    if not is_ping:
        dest.preferred = ni.nid
    return ni


def _best_ni(state: NodeState, dest: PeerNi) -> NI:
    net = state.nets.get(dest.nid.net)
    ni = _next_ni(net.nis) if net is not None else None
    if ni is None:
        raise _no_route(state, dest)
    return ni


def _best_pair(state: NodeState, peer: Peer, dest: PeerNi) -> tuple[NI, PeerNi]:
    best: tuple[tuple[int, int, int], NI, PeerNi] | None = None
    for peer_net in peer.nets.values():
        local = state.nets.get(peer_net.net)
        if local is None:
            continue
        ni = _next_ni(local.nis)
        if ni is None:
            continue
        key = (ni.fatal, peer_net.seq, local.seq)
        if best is None or key < best[0]:
            best = (key, ni, min(peer_net.nis, key=_sequence))
    if best is None:
        raise _no_route(state, dest)
    return best[1], best[2]


def _next_ni(nis: Iterable[NI]) -> NI | None:
    best: NI | None = None
    for ni in nis:
        if ni.active and (best is None or (ni.fatal, ni.seq) < (best.fatal, best.seq)):
            best = ni
    return best


def _sequence(pni: PeerNi) -> int:
    return pni.seq


def count_choice(ni: NI, pni: PeerNi) -> None:
    """Advance the sequence numbers, so that the next choice falls on others."""
    peer = pni.peer
    peer.seq += 1
    pni.net.seq = pni.seq = peer.seq
    ni.net.seq += 1
    ni.seq = ni.net.seq


def _no_route(state: NodeState, dest: PeerNi) -> LNetError:
    nets = ", ".join(str(net) for net in state.nets) or "none"
    return LNetError(
        errno.EHOSTUNREACH,
        f"no route to {dest.nid}: this node is on {nets}; add a net on {dest.nid.net} or a route to it",
    )
