"""What must hold on o2ib nets when nothing is under way: whatever was lent is back, on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulnet.lnd.o2ib.conn import Conn
from ulnet.lnd.o2ib.state import ConnState
from ulnet.sim.verbs import SimDevice, SimPair

if TYPE_CHECKING:
    from ulnet.lnd.o2ib import NiState, O2ibLnd

__all__ = ["rdma_at_rest"]


def rdma_at_rest(driver: O2ibLnd) -> str:
    """Credits, receive buffers and registrations of all o2ib NIs are back; "" or what is wrong."""
    for state in driver.states.values():
        wrong = _of_ni(state)
        if wrong:
            return f"{state.ni.nid}: {wrong}"
    return ""


def _of_ni(state: NiState) -> str:
    if state.in_hand or state.registrations.count:
        return f"{len(state.in_hand)} transmits in hand, memory of {state.registrations.count} registered"
    device = state.device
    assert isinstance(device, SimDevice)
    if device.domains.keys() - {pair.domain for pair in device.pairs}:
        return f"{len(device.domains)} protection domains are left, with {len(device.pairs)} queue pairs"
    keys = [region.key for region in device.regions.values() if region.remote]
    if keys:
        return f"keys {keys} are left, by which peers may write"
    for peer in state.peers.values():
        if peer.queue:
            return f"{len(peer.queue)} transmits wait for a connection with {peer.nid}"
        for conn in peer.conns:
            wrong = _of_conn(conn)
            if wrong:
                return f"connection with {peer.nid}: {wrong}"
    return ""


def _of_conn(conn: Conn) -> str:
    pair, depth = conn.pair, conn.params.queue_depth
    assert isinstance(pair, SimPair)
    other = pair.other
    if not conn.idle or conn.reserved != depth:
        return f"not idle, or {conn.reserved} of {depth} reserved credits"
    if pair.posted or len(pair.free) != pair.shape.receives:
        return f"{pair.posted} messages posted, {len(pair.free)} of {pair.shape.receives} receive buffers"
    there = other.owner if other is not None and other.open else None
    if (
        isinstance(there, Conn)
        and there.state is ConnState.ESTABLISHED
        and conn.credits + there.owed != depth
    ):
        return f"{conn.credits} credits, {there.owed} owed there, of {depth}"
    return ""
