"""What must hold in every LNet at any time, and what must hold when nothing is under way.

Each function looks at one instance and answers with a sentence about what is wrong, or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from ulnet.core.portal import MatchEntry
from ulnet.nid import LO_NID

if TYPE_CHECKING:
    from ulnet.core.instance import LNet
    from ulnet.core.msg import Msg
    from ulnet.core.peer import Peer, PeerNi

__all__ = [
    "at_rest",
    "credits_in_use",
    "credits_of_peers",
    "forgotten_memory",
    "memory",
    "nis",
    "now_and_then",
    "peers",
    "quickly",
    "responses",
]

_MOST_STRANGERS: Final = 65536  # NIDs of peers that nobody configured


def quickly(core: LNet) -> str:
    """What is cheap enough to be looked at after every event."""
    stats = core.stats
    if stats.msgs_alloc < 0 or stats.rst_alloc < 0:
        return f"{stats.msgs_alloc} messages and {stats.rst_alloc} awaited responses are counted"
    if stats.drops["finalized twice"]:
        return "a message was finalized twice"
    return nis(core)


def now_and_then(core: LNet) -> str:
    """All that must hold at any time."""
    return peers(core) or credits_of_peers(core) or memory(core) or responses(core)


def at_rest(core: LNet) -> str:
    """What must hold once nothing is under way: all credits, references and counts are back."""
    looks = (_counts_at_rest(core), _nis_at_rest(core), _peers_at_rest(core), _router_at_rest(core))
    return next(filter(None, chain.from_iterable(looks)), "")


# At any time ------------------------------------------------------------------------------------------


def nis(core: LNet) -> str:
    """Each NI's credits and queues agree: a queue is short of credits by what waits in it."""
    for ni in core.nis.values():
        if ni.tx_credits > ni.max_tx_credits:
            return f"NI {ni.nid} has {ni.tx_credits} of {ni.max_tx_credits} credits"
        if ni.refs < 0:
            return f"NI {ni.nid} has {ni.refs} users"
        for queue in ni.tx_queues:
            if (queue.waiting or queue.credits < 0) and len(queue.waiting) != max(0, -queue.credits):
                return f"NI {ni.nid}: {len(queue.waiting)} messages wait for {queue.credits} credits"
    return ""


def peers(core: LNet) -> str:
    """Peer, peer net, peer NI and the table agree, both ways; no NID is in two peers."""
    owner: dict[object, Peer] = {}
    strangers = 0
    for peer in core.peers:
        if peer.primary_nid not in peer.members:
            return f"peer {peer.primary_nid} does not have its own primary NID"
        seen = 0
        for net, peer_net in peer.nets.items():
            if peer_net.peer is not peer or peer_net.net != net or not peer_net.nis:
                return f"peer {peer.primary_nid}: its net {net} is empty, or another's"
            for pni in peer_net.nis:
                seen += 1
                if pni.nid in owner:
                    return f"{pni.nid} is in peer {owner[pni.nid].primary_nid} and in {peer.primary_nid}"
                owner[pni.nid] = peer
                wrong = _misplaced(core, peer, pni)
                if wrong or pni.net is not peer_net:
                    return wrong or f"{pni.nid} is in net {net} and says otherwise"
        if seen != len(peer.members):
            return f"peer {peer.primary_nid} has {seen} NIs for {len(peer.members)} NIDs"
        strangers += 0 if peer.configured else seen
    if len(owner) != len(list(core.peers.nis())):
        return f"{len(list(core.peers.nis()))} peer NIs are known, {len(owner)} of them in a peer"
    if strangers > _MOST_STRANGERS:
        return f"{strangers} NIDs of peers that nobody configured"
    return ""


def _misplaced(core: LNet, peer: Peer, pni: PeerNi) -> str:
    if pni.peer is not peer or pni.nid.net != pni.net.net or pni.nid not in peer.members:
        return f"{pni.nid} of peer {peer.primary_nid} says that it is elsewhere"
    if core.peers.find_ni(pni.nid) is not pni:
        return f"{pni.nid} of peer {peer.primary_nid} is not found under its NID"
    return ""


def credits_of_peers(core: LNet) -> str:
    """Each peer NI's credits and queue agree."""
    for pni in core.peers.nis():
        if pni.tx_credits > pni.max_tx_credits or pni.refs < 1 or pni.tx_queued_bytes < 0:
            return (
                f"{pni.nid}: {pni.tx_credits} of {pni.max_tx_credits} credits, {pni.refs} references, "
                f"{pni.tx_queued_bytes} bytes queued"
            )
        if len(pni.tx_queue) != max(0, -pni.tx_credits):
            return f"{pni.nid}: {len(pni.tx_queue)} messages wait for {pni.tx_credits} credits"
        if any(msg.peer_ni is not pni for msg in pni.tx_queue):
            return f"{pni.nid}: a message of another waits in its queue"
        if pni.flows and any(core.nis.get(ni.nid) is not ni for ni in pni.flows):
            return f"{pni.nid}: the flow from an NI that is gone is kept"
    return ""


def memory(core: LNet) -> str:
    """Memory descriptors and match entries refer to each other; nobody has less than no use of them."""
    for handle, md in core.memory.mds.items():
        if md.handle != handle or not md.linked or md.refs < 0:
            return f"memory descriptor {handle}: refs {md.refs}, linked {md.linked}"
        if md.me is not None and (md.me.md is not md or not md.me.linked):
            return f"memory descriptor {handle} and its match entry do not know each other"
        if md.acks_due < 0 or md.replies_due < 0:
            return f"memory descriptor {handle} got more answers than it asked for"
    for me in _entries(core):
        if me.md is not None and core.memory.mds.get(me.md.handle) is not me.md:
            return f"a match entry of portal {me.portal.index} has memory that is gone"
    return ""


def _entries(core: LNet) -> Iterator[MatchEntry]:
    for portal in core.memory.portals:
        if portal is not None:
            yield from portal.entries()


def responses(core: LNet) -> str:
    """As many responses are awaited as are counted."""
    waited = sum(md.deadline_slot >= 0 for md in core.memory.mds.values())
    if waited != core.stats.rst_alloc:
        return f"{waited} memory descriptors await a response, {core.stats.rst_alloc} are counted"
    return ""


def credits_in_use(core: LNet, in_hand: list[Msg]) -> str:
    """Whoever lacks a credit is accounted for: by a message that its driver has (`in_hand`), or that waits.

    Exactly so only while nothing is deferred and no fault rule keeps messages.
    """
    exact = not core.state.work_pending and core.state.faults is None
    holders: Counter[object] = Counter()
    for msg in in_hand:
        holders[msg.ni] += 1
        holders[msg.peer_ni] += 1
    for ni in core.nis.values():
        if ni.nid == LO_NID:
            continue
        for queue in ni.tx_queues:
            for msg in queue.waiting:
                holders[ni] += 1
                holders[msg.peer_ni] += 1
        used = ni.max_tx_credits - ni.tx_credits
        if used < holders[ni] or (exact and used != holders[ni]):
            return f"NI {ni.nid}: {used} credits are in use by {holders[ni]} messages"
    for pni in core.peers.nis():
        used = pni.max_tx_credits - pni.tx_credits
        mine = holders[pni] + len(pni.tx_queue)
        if used < mine or (exact and used != mine):
            return f"{pni.nid}: {used} credits are in use by {mine} messages"
    return ""


# At rest ------------------------------------------------------------------------------------------------


def forgotten_memory(core: LNet) -> str:
    """Memory that was bound for an operation and never unlinked (unless somebody keeps such memory)."""
    forgotten = [md for md in core.memory.mds.values() if md.me is None]
    return f"{len(forgotten)} memory descriptors were bound and never unlinked" if forgotten else ""


def _counts_at_rest(core: LNet) -> Iterator[str]:
    stats = core.stats
    if stats.msgs_alloc:
        yield f"{stats.msgs_alloc} messages never ended"
    if stats.rst_alloc:
        yield f"{stats.rst_alloc} responses are still awaited"
    if core.state.answers:
        yield f"{core.state.answers} answers hold credits"
    if core.state.work_pending:
        yield "work is left undone"
    for md in core.memory.mds.values():
        if md.refs or md.flights:
            yield f"memory descriptor {md.handle} has {md.refs} operations, {len(md.flights)} under way"
    for portal in core.memory.portals:
        if portal is not None and portal.delayed:
            yield f"{len(portal.delayed)} messages wait on portal {portal.index}"


def _nis_at_rest(core: LNet) -> Iterator[str]:
    for ni in core.nis.values():
        if ni.tx_credits != ni.max_tx_credits or ni.refs:
            yield f"NI {ni.nid} has {ni.tx_credits} of {ni.max_tx_credits} credits, {ni.refs} users"
        if sum(queue.credits for queue in ni.tx_queues) != ni.max_tx_credits:
            yield f"NI {ni.nid}: its queues do not have all of its {ni.max_tx_credits} credits"


def _peers_at_rest(core: LNet) -> Iterator[str]:
    for pni in core.peers.nis():
        if pni.tx_credits != pni.max_tx_credits or pni.refs != 1 or pni.tx_queued_bytes or pni.answers:
            yield (
                f"{pni.nid}: {pni.tx_credits} of {pni.max_tx_credits} credits, {pni.refs} references, "
                f"{pni.tx_queued_bytes} bytes queued, {pni.answers} answers"
            )
        if any(flow.outstanding for flow in pni.flows.values()):
            yield f"{pni.nid}: bytes count as outstanding"


def _router_at_rest(core: LNet) -> Iterator[str]:
    gate = core.router.gate
    if len(gate) or gate.pools.in_use:
        yield f"{len(gate)} messages pass through this router, {gate.pools.in_use} buffers are in use"
    for pool in gate.pools:
        if pool.credits != pool.count:
            yield f"a router pool has {pool.credits} of {pool.count} credits"
    for pni in core.peers.nis():
        if pni.nid.net in core.nets and pni.rtr_credits != core.gateways.router_credits(pni.nid.net):
            yield f"{pni.nid} has {pni.rtr_credits} router credits"
