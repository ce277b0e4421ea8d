"""Peers: peer, peer net, peer NI, and the table of them (spec discovery.md §1, §7, lnetctl.md §1 peer)."""

from __future__ import annotations

import errno
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntFlag
from itertools import islice
from typing import TYPE_CHECKING

from ulnet.core.flow import Paces
from ulnet.core.ni import MAX_HEALTH, NI, NO_PRIORITY, NO_WEIGHT
from ulnet.core.stats import HealthStats, Latency, MsgStats
from ulnet.core.status import LNetError
from ulnet.nid import LO_NID, Net, NetType, Nid

if TYPE_CHECKING:
    from ulnet.core.flow import Flow
    from ulnet.core.msg import Msg
    from ulnet.core.selection.choose import Standing

__all__ = ["MAX_UNCONFIGURED", "Peer", "PeerFlag", "PeerNet", "PeerNi", "PeerTable", "may_be_peer"]

# NIDs of peers that nobody configured: a bound on what strangers can make us keep.
MAX_UNCONFIGURED = 65536
_NO_PATHWAYS: Mapping[Nid, int] = {}
_CANDIDATES = 16  # how many are looked at to find one that can be forgotten


def may_be_peer(nid: Nid) -> bool:
    """Whether nid can name an interface of another node: it is no wildcard, and not on lo."""
    return not (nid.is_any or nid.net.type == NetType.LO)


class PeerFlag(IntFlag):
    """The state word of spec discovery.md §2, as `peer show -v 3` prints it."""

    MULTI_RAIL = 0x1
    NO_DISCOVERY = 0x2
    ROUTER_ENABLED = 0x4
    CONFIGURED = 0x8
    LOCK_PRIMARY = 0x100000


class PeerNi:
    """One NID of a peer: transmit credits, the queue behind them, counters."""

    __slots__ = (
        "answers",
        "choices",
        "flows",
        "health",
        "health_stats",
        "latency_ack",
        "latency_egress",
        "latency_get",
        "max_tx_credits",
        "min_rtr_credits",
        "min_tx_credits",
        "net",
        "nid",
        "pathways",
        "peer",
        "preferred",
        "preferred_nids",
        "priority",
        "refs",
        "rtr_credits",
        "seq",
        "stats",
        "turn_lengths",
        "tx_credits",
        "tx_queue",
        "tx_queued_bytes",
        "weight",
    )

    def __init__(self, nid: Nid, net: PeerNet, credits: int) -> None:
        self.nid = nid
        self.net = net
        self.peer = net.peer
        self.tx_credits = self.max_tx_credits = self.min_tx_credits = credits
        self.rtr_credits = self.min_rtr_credits = credits
        self.tx_queue: deque[Msg] = deque()
        self.tx_queued_bytes = 0
        self.answers = 0  # our ACKs and REPLYs that hold its credits or wait for them
        self.preferred: Nid | None = None  # the local NID that a non-multi-rail peer hears from
        self.preferred_nids: frozenset[Nid] = frozenset()  # local NIDs, by policy
        self.pathways: Mapping[Nid, int] = _NO_PATHWAYS  # the priority of each of them
        self.turn_lengths: Mapping[Nid, int] = _NO_PATHWAYS  # by local NID, where a policy gives one
        self.priority = NO_PRIORITY
        self.weight = NO_WEIGHT
        self.flows: dict[NI, Flow] = {}  # from each local NI
        self.refs = 1
        self.seq = 0
        self.health = MAX_HEALTH
        self.stats = MsgStats()
        self.choices: defaultdict[str, int] = defaultdict(int)  # by the criterion that decided
        self.health_stats = HealthStats()
        self.latency_egress = Latency()
        self.latency_get = Latency()
        self.latency_ack = Latency()


class PeerNet:
    """The NIDs of one peer on one net."""

    __slots__ = ("net", "nis", "peer", "priority", "seq", "weight")

    def __init__(self, net: Net, peer: Peer) -> None:
        self.net = net
        self.peer = peer
        self.nis: list[PeerNi] = []
        self.priority = NO_PRIORITY
        self.weight = NO_WEIGHT
        self.seq = 0

    @property
    def health(self) -> int:
        """That of its best NI."""
        return max((pni.health for pni in self.nis), default=0)


class Peer:
    """A node as we know it: its primary NID and all others, grouped by net."""

    __slots__ = (
        "flags",
        "flows",
        "members",
        "nets",
        "paces",
        "primary_nid",
        "remote_sequence",
        "seq",
        "settled",
        "standings",
        "turns",
    )

    def __init__(self, primary_nid: Nid, flags: int = 0) -> None:
        self.primary_nid = primary_nid
        self.flags = flags
        self.nets: dict[Net, PeerNet] = {}
        self.members: set[Nid] = set()
        self.remote_sequence = 0  # of the last ping info that it pushed
        self.seq = 0
        self.settled = False  # discovery has nothing to find out or tell: messages need not ask it
        self.flows: dict[NI, Flow] = {}  # from each local NI, to any of its NIDs
        self.paces = Paces()  # of these flows and of those of its NIs
        self.standings: dict[int, Standing] = {}  # kept by the path selection, by CPT
        self.turns: dict[object, dict[object, int]] = {}  # of weighted ways: messages in this round

    @property
    def multi_rail(self) -> bool:
        """Whether any of its NIDs may be used for any message."""
        return bool(self.flags & 0x1)

    @property
    def configured(self) -> bool:
        """Whether an administrator made it."""
        return bool(self.flags & 0x8)

    @property
    def state_flags(self) -> int:
        """The decimal that `peer show -v 3` calls `peer state`."""
        return int(self.flags)

    def nis(self) -> Iterator[PeerNi]:
        """All its NIDs, net by net; the primary first."""
        primary = next(
            (net for net in self.nets.values() if any(n.nid == self.primary_nid for n in net.nis)), None
        )
        if primary is not None:
            yield from sorted(primary.nis, key=lambda pni: pni.nid != self.primary_nid)
        for net in self.nets.values():
            if net is not primary:
                yield from net.nis

    def nids(self) -> Iterator[Nid]:
        """Its NIDs, the primary first."""
        yield self.primary_nid
        for net in self.nets.values():
            for pni in net.nis:
                if pni.nid != self.primary_nid:
                    yield pni.nid

    def owns(self, nid: Nid) -> bool:
        """Whether nid is one of its NIDs."""
        return nid in self.members

    @property
    def idle(self) -> bool:
        """Whether no message refers to any of its NIDs."""
        return all(pni.refs == 1 for net in self.nets.values() for pni in net.nis)


class PeerTable:
    """All peers in the order they were made; every NID belongs to at most one."""

    def __init__(self, credits_for: Callable[[Net], int]) -> None:
        self._credits_for = credits_for  # peer_credits of a local net, 0 for others
        self._peers: dict[Peer, None] = {}
        self._by_nid: dict[Nid, PeerNi] = {}
        self._strangers: dict[Peer, None] = {}  # those not configured, longest known first
        self._unconfigured = 0  # their NIDs
        self.attached: Callable[[PeerNi], None] = lambda pni: None  # is told of every new peer NI

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers))

    def __len__(self) -> int:
        return len(self._peers)

    def find(self, nid: Nid) -> Peer | None:
        """The peer that nid belongs to."""
        pni = self._by_nid.get(nid)
        return pni.peer if pni is not None else None

    def find_ni(self, nid: Nid) -> PeerNi | None:
        """The peer NI of nid."""
        return self._by_nid.get(nid)

    def learn(self, nid: Nid) -> PeerNi | None:
        """The peer NI of nid; an unknown NID becomes a peer of one NID.

        None when it cannot name a peer, or when there are too many and all of them are in use.
        """
        pni = self._by_nid.get(nid)
        if pni is not None:
            return pni
        if not (may_be_peer(nid) or nid == LO_NID) or not self._has_room():
            return None
        peer = Peer(nid)
        self._insert(peer)
        return self._attach(peer, nid)

    def imagine(self, nid: Nid) -> PeerNi:
        """The peer NI that `learn` would make of an unknown NID; the table stays as it is."""
        peer_net = PeerNet(nid.net, Peer(nid))
        pni = PeerNi(nid, peer_net, self._credits_for(nid.net))
        peer_net.nis.append(pni)
        peer_net.peer.nets[nid.net] = peer_net
        return pni

    def net_added(self, net: Net) -> None:
        """A net became local, maybe anew: its peer NIs get its credits, unless messages hold old ones."""
        credits = self._credits_for(net)
        for pni in self._by_nid.values():
            if pni.nid.net == net and pni.tx_credits == pni.max_tx_credits:
                pni.tx_credits = pni.max_tx_credits = pni.min_tx_credits = credits
                pni.rtr_credits = pni.min_rtr_credits = credits

    def ni_removed(self, ni: NI) -> None:
        """Keep nothing of a local NI that is gone."""
        for peer in self._peers:
            peer.standings.clear()
            peer.turns.clear()
            peer.flows.pop(ni, None)
            for peer_net in peer.nets.values():
                for pni in peer_net.nis:
                    pni.flows.pop(ni, None)

    def nis(self) -> Iterable[PeerNi]:
        """All peer NIs; nobody may come or go meanwhile."""
        return self._by_nid.values()

    # Configuration (DLC) -----------------------------------------------------------------------

    def add(
        self, primary: Nid, nids: Sequence[Nid] = (), multi_rail: bool = True, lock_primary: bool = False
    ) -> Peer:
        """Configure a peer, or add NIDs to a configured one. Raises LNetError and changes nothing."""
        known = self._check_add(primary, nids, multi_rail)
        if known is None or not known.configured:
            if known is not None:
                self._remove(known)
            flags = PeerFlag.CONFIGURED | (PeerFlag.MULTI_RAIL if multi_rail else 0)
            known = Peer(primary, int(flags))
            self._insert(known)
            self._attach(known, primary)
        if lock_primary:
            known.flags |= PeerFlag.LOCK_PRIMARY
        for nid in nids:
            if not known.owns(nid):
                self._take_from_other(nid)
                self._attach(known, nid)
        return known

    def _check_add(self, primary: Nid, nids: Sequence[Nid], multi_rail: bool) -> Peer | None:
        for nid in (primary, *nids):
            if not may_be_peer(nid):
                raise LNetError(errno.EINVAL, f"{nid} cannot name a peer: give the NID of one interface")
        peer = self.find(primary)
        if peer is not None and peer.configured:
            if peer.primary_nid != primary:
                raise LNetError(
                    errno.EEXIST,
                    f"{primary} belongs to the configured peer {peer.primary_nid}: "
                    "use that primary NID, or delete that peer first",
                )
            if peer.multi_rail != multi_rail:
                kind = "Multi-Rail" if peer.multi_rail else "not Multi-Rail"
                raise LNetError(
                    errno.EPERM,
                    f"peer {primary} is configured as {kind}: delete it first to change that",
                )
        base = peer if peer is not None and peer.configured else None
        nets = dict.fromkeys(base.nets, 1) if base is not None else {primary.net: 1}
        for nid in dict.fromkeys(nids):
            other = self.find(nid)
            if other is not None and other is not peer and other.configured:
                raise LNetError(
                    errno.EEXIST,
                    f"{nid} belongs to the configured peer {other.primary_nid}: "
                    "a NID can be in one peer only; delete it there first",
                )
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

    def delete(self, primary: Nid, nids: Sequence[Nid] | None = None, force: bool = False) -> None:
        """Delete NIDs of a peer, or the whole peer. Raises LNetError and changes nothing."""
        peer = self._check_delete(primary, nids or ())
        if nids and primary not in nids:
            self._detach(peer, nids)
            return
        if peer.flags & PeerFlag.LOCK_PRIMARY and not force:
            self._detach(peer, peer.members - {primary})
            return
        self._remove(peer)

    def _check_delete(self, primary: Nid, nids: Sequence[Nid]) -> Peer:
        if primary.is_any:
            raise LNetError(errno.EINVAL, "the wildcard NID cannot name a peer: give its primary NID")
        peer = self.find(primary)
        if peer is None:
            raise LNetError(errno.ENOENT, f"no peer has the NID {primary}: see 'lnetctl peer show'")
        if peer.primary_nid != primary:
            raise LNetError(
                errno.ENODEV,
                f"{primary} is not the primary NID of its peer: that is {peer.primary_nid}; use it instead",
            )
        for nid in nids:
            other = self.find(nid)
            if other is None:
                raise LNetError(errno.ENOENT, f"peer {primary} has no NID {nid}: see 'lnetctl peer show'")
            if other is not peer:
                raise LNetError(errno.ECHILD, f"{nid} belongs to peer {other.primary_nid}, not to {primary}")
        return peer

    # What a peer tells of itself (a push) --------------------------------------------------------

    def merge(self, peer: Peer, primary: Nid, nids: Sequence[Nid]) -> Peer:
        """Group NIDs into one multi-rail peer, as the peer itself lists them. Configured peers stay."""
        if peer.configured or not may_be_peer(primary):
            return peer
        owner = self.find(primary)
        if owner is not None and owner is not peer:
            if owner.configured:
                return peer
            self._remove(peer)
            peer = owner
        peer.flags |= PeerFlag.MULTI_RAIL
        listed = dict.fromkeys((primary, *nids))
        for nid in listed:
            other = self.find(nid)
            if other is peer or (other is not None and other.configured) or not may_be_peer(nid):
                continue
            self._take_from_other(nid)
            if not self._has_room(keep=peer):
                break
            self._attach(peer, nid)
        if peer.owns(primary):
            peer.primary_nid = primary
            self._detach(peer, peer.members - listed.keys())
        for pni in peer.nis():
            pni.preferred = None
        return peer

    # ---------------------------------------------------------------------------------------------

    def _insert(self, peer: Peer) -> None:
        self._peers[peer] = None
        if not peer.configured:
            self._strangers[peer] = None

    def _remove(self, peer: Peer) -> None:
        for nid in peer.members:
            del self._by_nid[nid]
        del self._peers[peer]
        if not peer.configured:
            del self._strangers[peer]
            self._unconfigured -= len(peer.members)

    def _has_room(self, keep: Peer | None = None) -> bool:
        """Whether one more NID of a stranger fits, if need be in the place of one long idle."""
        if self._unconfigured < MAX_UNCONFIGURED:
            return True
        for peer in list(islice(self._strangers, _CANDIDATES)):
            if peer is not keep and peer.idle:
                self._remove(peer)
                return True
            del self._strangers[peer]  # to the end: others are asked next time
            self._strangers[peer] = None
        return False

    def _attach(self, peer: Peer, nid: Nid) -> PeerNi:
        net = nid.net
        peer_net = peer.nets.get(net)
        if peer_net is None:
            peer_net = peer.nets[net] = PeerNet(net, peer)
        pni = PeerNi(nid, peer_net, self._credits_for(net))
        peer_net.nis.append(pni)
        peer.members.add(nid)
        peer.standings.clear()
        peer.turns.clear()
        self._by_nid[nid] = pni
        if not peer.configured:
            self._unconfigured += 1
        self.attached(pni)
        return pni

    def _detach(self, peer: Peer, nids: Iterable[Nid]) -> None:
        """Take some of its NIDs, not the primary, from a peer."""
        gone = set(nids)
        for nid in gone:
            del self._by_nid[nid]
        peer.members -= gone
        peer.standings.clear()
        peer.turns.clear()
        if not peer.configured:
            self._unconfigured -= len(gone)
        for net in {nid.net for nid in gone}:
            peer_net = peer.nets[net]
            peer_net.nis = [pni for pni in peer_net.nis if pni.nid not in gone]
            if not peer_net.nis:
                del peer.nets[net]

    def _take_from_other(self, nid: Nid) -> None:
        """Free nid from an unconfigured peer; the primary NID takes its whole peer along."""
        other = self.find(nid)
        if other is None:
            return
        if other.primary_nid == nid:
            self._remove(other)
        else:
            self._detach(other, [nid])
