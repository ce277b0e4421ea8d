"""What must hold in every LNet at any time, and what must hold when nothing is under way.

Each function looks at one instance and answers with a sentence about what is wrong, or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.nid import LO_NID
from ulnet.nid.nid import NET_BY_NID

if TYPE_CHECKING:
    from ulnet.control.instance import LNet
    from ulnet.core.msg import Msg
    from ulnet.core.ni import TxQueue
    from ulnet.core.peer import Peer, PeerNi
    from ulnet.nid import Net

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
]

_MOST_STRANGERS: Final = 65536  # NIDs of peers that nobody configured


def quickly(core: LNet) -> str:
    """What is cheap enough to be looked at after every event."""
    stats = core.stats
    if stats.msgs_alloc < 0:
        return f"{stats.msgs_alloc} messages are counted"
    if stats.drops.get("finalized twice"):
        return "a message was finalized twice"
    return nis(core)


def now_and_then(core: LNet) -> str:
    """All that must hold at any time."""
    return peers(core) or credits_of_peers(core) or memory(core)


def at_rest(core: LNet) -> str:
    """What must hold once nothing is under way: all credits, references and counts are back."""
    return _counts_at_rest(core) or _nis_at_rest(core) or _peers_at_rest(core) or _router_at_rest(core)


# At any time ------------------------------------------------------------------------------------------


def nis(core: LNet) -> str:
    """Each NI's credits and queues agree: a queue is short of credits by what waits in it.

    By more, where messages whose connection came up had to have theirs at once. By less, while it is
    deferred to serve who waits: a message has given its credit back until it has a connection.
    """
    exact = not core.state.work_pending
    for ni in core.nis.values():
        if ni.tx_credits > ni.max_tx_credits:
            return f"NI {ni.nid} has {ni.tx_credits} of {ni.max_tx_credits} credits"
        if ni.refs < 0:
            return f"NI {ni.nid} has {ni.refs} users"
        total = 0
        for queue in ni.tx_queues:
            credits = queue.credits
            total += credits
            if exact and queue.waiting and len(queue.waiting) > max(0, -credits):
                return f"NI {ni.nid}: {len(queue.waiting)} messages wait for {credits} credits"
        if total < min(ni.tx_credits, 0):  # queues that it has given up may have the rest
            return f"NI {ni.nid}: its queues have {total} credits, and it {ni.tx_credits}"
    return ""


def peers(core: LNet) -> str:
    """Peer, peer net, peer NI and the table agree, both ways; no NID is in two peers."""
    known = strangers = 0
    table = core.peers
    by_nid = table.by_nid
    for peer in table:
        members = peer.members
        if peer.primary_nid not in members:
            return f"peer {peer.primary_nid} does not have its own primary NID"
        seen = 0
        for net, peer_net in peer.nets.items():
            nis = peer_net.nis
            if peer_net.peer is not peer or not nis or (peer_net.net is not net and peer_net.net != net):
                return f"peer {peer.primary_nid}: its net {net} is empty, or another's"
            for pni in nis:
                seen += 1
                if pni.net is not peer_net or (len(nis) > 1 and nis.count(pni) > 1):
                    return f"{pni.nid} is in net {net} and says otherwise"
                nid = pni.nid
                if pni.peer is not peer or nid not in members or by_nid.get(nid) is not pni:
                    return _misplaced(pni, peer, by_nid.get(nid))
                own_net = NET_BY_NID[nid]
                if own_net is not net and own_net != net:
                    return f"{nid} of peer {peer.primary_nid} says that it is elsewhere"
        if seen != len(members):
            return f"peer {peer.primary_nid} has {seen} NIs for {len(members)} NIDs"
        known += seen
        strangers += seen * (not peer.configured)
    if known != len(by_nid):
        return f"{len(by_nid)} peer NIs are known, {known} of them in a peer"
    return f"{strangers} NIDs of peers that nobody configured" if strangers > _MOST_STRANGERS else ""


def _misplaced(pni: PeerNi, peer: Peer, found: PeerNi | None) -> str:
    """What is wrong with a NID of peer that is another's, not found, or found as another's."""
    nid = pni.nid
    if pni.peer is not peer or nid not in peer.members:
        return f"{nid} of peer {peer.primary_nid} says that it is elsewhere"
    if found is not None and found.peer is not peer and nid in found.peer.members:
        return f"{nid} is in peer {found.peer.primary_nid} and in {peer.primary_nid}"
    return f"{nid} of peer {peer.primary_nid} is not found under its NID"


def credits_of_peers(core: LNet) -> str:
    """Each peer NI's credits and queue agree."""
    nis = core.nis
    for pni in core.peers.by_nid.values():
        if pni.tx_credits > pni.max_tx_credits or pni.refs < 1 or pni.tx_queued_bytes < 0:
            return (
                f"{pni.nid}: {pni.tx_credits} of {pni.max_tx_credits} credits, {pni.refs} references, "
                f"{pni.tx_queued_bytes} bytes queued"
            )
        waiting = pni.tx_queue
        if waiting or pni.tx_credits < 0:
            if len(waiting) != max(0, -pni.tx_credits):
                return f"{pni.nid}: {len(waiting)} messages wait for {pni.tx_credits} credits"
            for msg in waiting:
                if msg.peer_ni is not pni:
                    return f"{pni.nid}: a message of another waits in its queue"
        for ni in pni.path_loads:
            if nis.get(ni.nid) is not ni:
                return f"{pni.nid}: the path_load from an NI that is gone is kept"
    return ""


def memory(core: LNet) -> str:
    """Memory descriptors and match entries refer to each other; nobody has less than no use of them."""
    mds = core.memory.mds
    for handle, md in mds.items():
        if md.handle != handle or not md.linked or md.refs < 0:
            return f"memory descriptor {handle}: refs {md.refs}, linked {md.linked}"
        if md.me is not None and (md.me.md is not md or not md.me.linked):
            return f"memory descriptor {handle} and its match entry do not know each other"
        if md.acks_due < 0 or md.replies_due < 0:
            return f"memory descriptor {handle} got more answers than it asked for"
    for portal in core.memory.portals:
        if portal is not None:
            for me in portal.entries():
                if me.md is not None and mds.get(me.md.handle) is not me.md:
                    return f"a match entry of portal {portal.index} has memory that is gone"
    return ""


def credits_in_use(core: LNet, in_hand: list[Msg]) -> str:
    """Whoever lacks a credit is accounted for: by a message that its driver has (`in_hand`), or that waits.

    Exactly so only while nothing is deferred and no fault rule keeps messages.
    """
    exact = not core.state.work_pending and not core.faults.active
    holders = _spared(in_hand)
    for msg in in_hand:
        if not msg.unconnected:
            holders[msg.ni] = holders.get(msg.ni, 0) + 1
        holders[msg.peer_ni] = holders.get(msg.peer_ni, 0) + 1
    for nid, ni in core.nis.items():
        if nid is LO_NID:
            continue
        for queue in ni.tx_queues:
            if queue.waiting:
                for msg in queue.waiting:
                    holders[ni] = holders.get(ni, 0) + 1
                    holders[msg.peer_ni] = holders.get(msg.peer_ni, 0) + 1
        used = ni.max_tx_credits - ni.tx_credits
        held = holders.get(ni, 0) if holders else 0
        if used < held or (exact and used != held):
            return f"NI {nid}: {used} credits are in use by {held} messages"
    for pni in core.peers.by_nid.values():
        used = pni.max_tx_credits - pni.tx_credits
        mine = holders.get(pni, 0) if holders else 0
        if pni.tx_queue:
            mine += len(pni.tx_queue)
        if used < mine or (exact and used != mine):
            return f"{pni.nid}: {used} credits are in use by {mine} messages"
    return ""


def _spared(in_hand: list[Msg]) -> dict[object, int]:
    """By NI, below 0: the answers that its driver has beyond those that may hold a credit."""
    answers: dict[TxQueue, int] = {}
    spared: dict[object, int] = {}
    for msg in in_hand:
        path = msg.path
        if path is None or not path.answers or msg.unconnected:
            continue
        queue = path.queue
        count = answers[queue] = answers.get(queue, 0) + 1
        if count > queue.most_answers:
            spared[msg.ni] = spared.get(msg.ni, 0) - 1
    return spared


# At rest ------------------------------------------------------------------------------------------------


def forgotten_memory(core: LNet) -> str:
    """Memory that was bound for an operation and never unlinked (unless somebody keeps such memory)."""
    forgotten = [md for md in core.memory.mds.values() if md.me is None]
    return f"{len(forgotten)} memory descriptors were bound and never unlinked" if forgotten else ""


def _counts_at_rest(core: LNet) -> str:
    stats = core.stats
    if stats.msgs_alloc:
        return f"{stats.msgs_alloc} messages never ended"
    awaited = core.memory.count_awaited()
    if awaited:
        return f"{awaited} responses are still awaited"
    if core.state.answers:
        return f"{core.state.answers} answers hold credits"
    if core.state.work_pending:
        return "work is left undone"
    for md in core.memory.mds.values():
        if md.refs or md.in_flight:
            return f"memory descriptor {md.handle} has {md.refs} operations, {len(md.in_flight)} under way"
    for portal in core.memory.portals:
        if portal is not None and portal.delayed:
            return f"{len(portal.delayed)} messages wait on portal {portal.index}"
    return ""


def _nis_at_rest(core: LNet) -> str:
    for ni in core.nis.values():
        if ni.tx_credits != ni.max_tx_credits or ni.refs:
            return f"NI {ni.nid} has {ni.tx_credits} of {ni.max_tx_credits} credits, {ni.refs} users"
        credits = 0
        for queue in ni.tx_queues:
            credits += queue.credits
            if queue.answers:
                return f"NI {ni.nid}: {queue.answers} answers are with its driver"
        if credits != ni.max_tx_credits:
            return f"NI {ni.nid}: its queues do not have all of its {ni.max_tx_credits} credits"
    return ""


def _peers_at_rest(core: LNet) -> str:
    for pni in core.peers.by_nid.values():
        if pni.tx_credits != pni.max_tx_credits or pni.refs != 1 or pni.tx_queued_bytes or pni.answers:
            return (
                f"{pni.nid}: {pni.tx_credits} of {pni.max_tx_credits} credits, {pni.refs} references, "
                f"{pni.tx_queued_bytes} bytes queued, {pni.answers} answers"
            )
        for path_load in pni.path_loads.values():
            if path_load.outstanding:
                return f"{pni.nid}: bytes count as outstanding"
    return ""


def _router_at_rest(core: LNet) -> str:
    gate = core.router.gate
    if len(gate):
        return f"{len(gate)} messages pass through this router"
    for pools in gate.pools.by_cpt:
        for pool in pools:
            if pool.in_use:
                return f"{pool.in_use} router buffers are in use"
            if pool.waiting:
                return f"a router pool has {pool.credits} of {pool.count} credits"
    nets = core.nets
    of_nets: dict[Net, int] = {}
    for pni in core.peers.by_nid.values():
        net = pni.net.net
        if net not in nets:
            continue
        credits = of_nets.get(net)
        if credits is None:
            credits = of_nets[net] = core.gateways.router_credits(net)
        if pni.rtr_credits != credits:
            return f"{pni.nid} has {pni.rtr_credits} router credits"
    return ""
