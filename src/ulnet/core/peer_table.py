"""All peers, and the rules by which their NIDs come and go (spec discovery.md §7, lnetctl.md §1 peer)."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ulnet.core.ni import NI
from ulnet.core.path_load import PathLoad
from ulnet.core.peer import Allowance, Peer, PeerFlag, PeerNet, PeerNi, may_be_listed, may_be_peer
from ulnet.core.peer_rules import check_add, check_delete, named
from ulnet.core.status import LNetError
from ulnet.nid import LO_NID, Net, Nid

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["MAX_UNCONFIGURED", "PeerTable"]

# NIDs of peers that nobody configured: a bound on what strangers can make us keep.
MAX_UNCONFIGURED = 65536
_NOT_LISTED = 4  # one in so many is none that another peer's list brought: who calls finds room
_UNHEARD = 4096  # strangers never heard: then the next to whom others send takes the place of one
_MANY = 256  # NIDs: who lists more gives some up for those who list fewer, where there is no room
_CANDIDATES = 16  # how many are looked at to find one that can be forgotten
_GONE = 64  # peers that left last, and stay as they were for whoever still works with them …
_GONE_NIDS = 1024  # … as long as they have no more NIDs in all
_ALLOWANCES = 4096  # NIDs that left their peers last, of which is kept what they may have this node do

_MULTI_RAIL = int(PeerFlag.MULTI_RAIL)
_CONFIGURED = int(PeerFlag.CONFIGURED)
_DISCOVERED = int(PeerFlag.DISCOVERED)
_UPTODATE = int(PeerFlag.NIDS_UPTODATE)
_LOCK = int(PeerFlag.LOCK_PRIMARY)
_BAD_CONFIG = int(PeerFlag.BAD_CONFIG)


class PeerTable:
    """All peers in the order they were made; every NID belongs to at most one.

    Other parts hear of every NID that a peer gets, of one that no peer has any more, of a peer that leaves,
    and of one that lost NIDs to configuration.
    """

    def __init__(self, credits_for: Callable[[Net], int], ours: Callable[[Nid], bool], parts: Parts) -> None:
        self._credits_for = credits_for  # peer_credits of a local net, 0 for others
        self.ours: Callable[[Nid], bool] = ours  # whether a NID is one of this node's own
        self._parts = parts
        self._peers: dict[Peer, None] = {}
        self._by_nid: dict[Nid, PeerNi] = {}
        self.by_nid: dict[Nid, PeerNi] = self._by_nid  # read it, where a call would cost too much
        self._strangers: dict[Peer, None] = {}  # those not configured, longest known first
        self._heard: dict[Peer, None] = {}  # those of them that were looked at, and had been heard
        self._unconfigured = 0  # their NIDs
        self._many: dict[Peer, None] = {}  # those that have very many of them
        self._locks = 0
        self._gone: deque[Peer] = deque()
        self._gone_nids = 0
        self._allowances: dict[Nid, Allowance] = {}

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

    def learn(self, nid: Nid, *, for_others: bool = False) -> PeerNi | None:
        """The peer NI of nid; an unknown NID becomes a peer of one NID.

        `for_others`: other nodes send messages there, over this one. None when it cannot name a peer, or when
        there are too many and all of them are in use.
        """
        pni = self._by_nid.get(nid)
        if pni is not None:
            return pni
        if not (may_be_peer(nid) or nid == LO_NID) or not self._has_room():
            return None
        many = for_others and len(self._strangers) >= _UNHEARD
        if many and not self._forget_unheard(None) and len(self._strangers) >= _UNHEARD:
            return None
        peer = Peer(nid, int(PeerFlag.NO_DISCOVERY) if nid == LO_NID else 0)
        self._insert(peer)
        pni = self._attach(peer, nid)
        self._parts.peer_learned(peer)
        return pni

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
            if pni.nid.net == net:
                if pni.tx_credits == pni.max_tx_credits:
                    pni.tx_credits = pni.max_tx_credits = pni.min_tx_credits = credits
                pni.set_router_credits(self._parts.router_credits(net))

    def ni_removed(self, ni: NI) -> None:
        """Keep nothing of a local NI that is gone."""
        for peer in self._peers:
            peer.turns.clear()
            peer.path_loads.pop(ni, None)
            for pni in peer.members.values():
                pni.path_loads.pop(ni, None)
                pni.close_paths()

    def own_nids_changed(self, nid: Nid) -> None:
        """A NID is one of this node's own, or is not any more: no peer has it beside NIDs of another node.

        Configured peers never do: `add` and whoever adds an NI see to that.
        """
        peer = self.find(nid)
        if peer is None or peer.configured or len(peer.members) == 1:
            return
        if peer.primary_nid != nid and self.ours(nid):
            self._drop(peer, [nid])
            self._parts.peer_deprived(peer)
        else:
            self.recreate(peer)

    def nis(self) -> Iterable[PeerNi]:
        """All peer NIs; nobody may come or go meanwhile."""
        return self._by_nid.values()

    # Configuration (DLC) -----------------------------------------------------------------------

    def add(
        self, primary: Nid, nids: Sequence[Nid] = (), multi_rail: bool = True, lock_primary: bool = False
    ) -> Peer:
        """Configure a peer, or add NIDs to a configured one. Raises LNetError and changes nothing."""
        known = check_add(self, primary, nids, multi_rail)
        if known is None or not known.configured:
            if known is not None:
                self._remove(known)
            known = Peer(primary, _CONFIGURED | (_MULTI_RAIL if multi_rail else 0))
            self._insert(known)
            self._attach(known, primary)
        if lock_primary:
            self._lock(known)
        for nid in nids:
            if not known.owns(nid):
                self._configure(known, nid)
        return known

    def _lock(self, peer: Peer) -> None:
        if not peer.flags & _LOCK:
            self._locks = peer.locked_at = self._locks + 1
            peer.mark(_LOCK)

    def _configure(self, peer: Peer, nid: Nid) -> None:
        """Give a NID to a configured peer, in place of an unconfigured one that may have it."""
        other = self.find(nid)
        if other is not None and other.primary_nid == nid:
            self._remove(other)
        elif other is not None:
            self._drop(other, [nid])
            self._parts.peer_deprived(other)
        self._attach(peer, nid)

    def delete(self, primary: Nid, nids: Sequence[Nid] | None = None, force: bool = False) -> None:
        """Delete NIDs of a peer, or the whole peer. Raises LNetError and changes nothing."""
        peer = check_delete(self, primary, nids or (), self._parts.needed_for)
        if nids and primary not in nids:
            self._drop(peer, nids)
            self._parts.peer_deprived(peer)
        elif peer.flags & _LOCK and not force:
            self._drop(peer, [nid for nid in peer.members if nid != primary])
            self._parts.peer_deprived(peer)
        else:
            self._remove(peer)

    # An upper layer's names -----------------------------------------------------------------------

    def lock(self, peer: Peer) -> None:
        """Let a peer keep its primary NID, whatever it tells; that of a configured one stays anyway."""
        if not peer.configured and peer.primary_nid != LO_NID:
            self._lock(peer)

    def name(self, nids: Sequence[Nid]) -> Peer:
        """Call a node by the first of its NIDs, and lock that name. Raises LNetError(ENOMEM).

        Where one of them is configured, or was named before, that peer is the node and keeps its name. The
        NIDs are its own until it says otherwise, unless it is known to have no rails.
        """
        peer = self._known_by(nids)
        if peer is None:
            pni = self.learn(nids[0])
            if pni is None:
                raise LNetError(errno.ENOMEM, f"too many unknown peers: cannot remember {nids[0]}")
            peer = pni.peer
            if peer.primary_nid == LO_NID:
                return peer
            peer.primary_nid = nids[0]
            self._lock(peer)
        if not peer.configured and (peer.multi_rail or not peer.flags & _DISCOVERED):
            self._gather(peer, [nid for nid in nids if not peer.owns(nid)])
        return peer

    def _known_by(self, nids: Sequence[Nid]) -> Peer | None:
        """The peer that has a name by any of these NIDs: by configuration, else by the earliest lock."""
        found = [peer for nid in nids if (peer := self.find(nid)) is not None]
        named = [peer for peer in found if peer.flags & (_CONFIGURED | _LOCK)]
        return min(named, key=lambda peer: (not peer.configured, peer.locked_at), default=None)

    def _gather(self, peer: Peer, nids: Sequence[Nid]) -> None:
        """Let an unconfigured peer have more NIDs, all of those that came with each."""
        if not nids:
            return
        peer.mark(_MULTI_RAIL, _UPTODATE)
        for pni in peer.members.values():
            pni.preferred = None
        for nid in nids:
            other = self.find(nid)
            if other is None or not other.flags & _LOCK:
                self.adopt(peer, nid, () if other is None else list(other.members))
            if peer.owns(nid):
                peer.members[nid].listed = peer.members[peer.primary_nid].listed

    def heir(self, primary: Nid, listed: Iterable[Nid]) -> Peer | None:
        """Which peer the node that lists these NIDs is: the one named first, else that of its primary."""
        if self._locks:
            known = [peer for nid in listed if (peer := self.find(nid)) is not None]
            found = [peer for peer in known if named(peer) and not self.claims_ours(peer, primary)]
            if found:
                return min(found, key=lambda peer: peer.locked_at)
        return self.find(primary)

    # What a peer tells of itself -----------------------------------------------------------------

    def claims_ours(self, peer: Peer, nid: Nid) -> bool:
        """Whether one of nid and peer is this node's own, and the other is not."""
        return self.ours(nid) is not self.ours(peer.primary_nid)

    def keep_only(self, peer: Peer, listed: Collection[Nid]) -> dict[Nid, int]:
        """Take from peer what it does not list; which NIDs a rule keeps, with its errno."""
        gone = [nid for nid in peer.members if nid not in listed]
        kept = {nid: errno.EPERM for nid in gone if peer.configured or nid == peer.primary_nid}
        self._drop(peer, [nid for nid in gone if nid not in kept])
        return kept

    def adopt(self, peer: Peer, nid: Nid, listed: Collection[Nid]) -> int:
        """Give peer a NID that it lists as its own; 0, or the errno of the rule that forbids it.

        If another peer has it, it moves here; where it is that peer's primary NID, that peer is dissolved.
        """
        other = self.find(nid)
        if other is peer:
            return 0
        if peer.configured:
            return errno.EPERM
        if not may_be_listed(nid):
            return errno.EINVAL
        if self.claims_ours(peer, nid):
            return errno.EADDRINUSE
        if not peer.multi_rail and nid.net in peer.nets:
            return errno.ENOTUNIQ
        if other is None:
            if not self._has_room(keep=peer):
                return errno.ENOMEM
            self._attach(peer, nid).listed = True
            return 0
        if other.configured:
            return errno.EEXIST
        if not other.heard:
            for pni in other.members.values():
                pni.listed = True
        if other.primary_nid == nid:
            return self._dissolve(other, peer, listed)
        for pni in self._detach(other, [nid]):
            self._join(peer, pni)
        return 0

    def _dissolve(self, other: Peer, peer: Peer, listed: Collection[Nid]) -> int:
        """Let a peer go over into the one that turned out to be the same node.

        The primary NID that was locked first stays; a locked one with several NIDs is not touched.
        """
        if other.flags & _LOCK and len(other.members) > 1:
            other.mark(_BAD_CONFIG)
            peer.mark(_BAD_CONFIG)
            return errno.EEXIST
        takes_name = other.flags & _LOCK and (not peer.flags & _LOCK or other.locked_at < peer.locked_at)
        moving = {pni for pni in other.members.values() if pni.nid in listed}
        self._take_out(other)
        for pni in other.members.values():
            if pni in moving:
                self._join(peer, pni)
            else:
                self._parts.peer_ni_gone(pni)
        if takes_name:
            peer.primary_nid = other.primary_nid
            peer.locked_at = other.locked_at
            peer.mark(_LOCK)
        self._parts.peer_removed(other)
        return 0

    def split(self, pni: PeerNi) -> Peer:
        """Make a NID a peer of its own, for it is another node's; a name by that NID goes with it."""
        peer, nid = pni.peer, pni.nid
        pni.listed = False
        if peer.configured or len(peer.members) == 1:
            return peer
        anew = Peer(nid)
        if peer.primary_nid == nid:
            peer.primary_nid = min(peer.members.values(), key=lambda one: (one is pni, one.listed)).nid
            anew.locked_at = peer.locked_at
            anew.mark(peer.flags & _LOCK)
            peer.mark(remove=_LOCK)
        self._insert(anew)
        self._detach(peer, [nid])
        self._join(anew, pni)
        peer.says |= {nid}
        self._parts.peer_learned(anew)
        self._parts.peer_deprived(peer)
        return anew

    # ---------------------------------------------------------------------------------------------

    def recreate(self, peer: Peer) -> None:
        """Forget a peer: the next message makes it anew. What an upper layer named keeps that name."""
        self._remove(peer)
        if named(peer):
            anew = Peer(peer.primary_nid, _LOCK)
            anew.locked_at = peer.locked_at
            self._insert(anew)
            self._attach(anew, anew.primary_nid)

    def _insert(self, peer: Peer) -> None:
        self._peers[peer] = None
        if not peer.configured:
            self._strangers[peer] = None

    def _remove(self, peer: Peer) -> None:
        self._take_out(peer)
        for pni in peer.members.values():
            self._parts.peer_ni_gone(pni)
        self._parts.peer_removed(peer)

    def _take_out(self, peer: Peer) -> None:
        for pni in peer.members.values():
            self._let_go(pni)
        peer.gone = True
        peer.generation.invalidate("NIDs")
        del self._peers[peer]
        if not peer.configured:
            self._strangers.pop(peer, None)
            self._heard.pop(peer, None)
            self._many.pop(peer, None)
            self._unconfigured -= len(peer.members)
        self._gone.append(peer)
        self._gone_nids += len(peer.members)
        while len(self._gone) > 1 and (len(self._gone) > _GONE or self._gone_nids > _GONE_NIDS):
            oldest = self._gone.popleft()
            self._gone_nids -= len(oldest.members)
            oldest.fall_apart()

    def _has_room(self, keep: Peer | None = None) -> bool:
        """Whether one more NID of a stranger fits, if need be in the place of one long idle.

        `keep` is the peer that lists it, if any: such NIDs do not fill the table.
        """
        most = MAX_UNCONFIGURED if keep is None else MAX_UNCONFIGURED - MAX_UNCONFIGURED // _NOT_LISTED
        return self._unconfigured < most or self._make_room(keep)

    def _make_room(self, keep: Peer | None) -> bool:
        """Forget a stranger. Sources may be invented, and lists of `keep`, so who was heard goes last."""
        if self._forget_unheard(keep):
            return True
        if keep is not None or self._strangers:
            return keep is not None and self._take_back(keep)
        for peer in list(islice(self._heard, _CANDIDATES)):
            if self.forget(peer):
                return True
            self._heard[peer] = self._heard.pop(peer)
        return False

    def _forget_unheard(self, keep: Peer | None) -> bool:
        """Forget one of the strangers that were never heard, the longest known first; whether one went."""
        strangers, tried = self._strangers, 0
        while strangers and tried < _CANDIDATES:
            peer = next(iter(strangers))
            if peer.heard:
                self._heard[peer] = strangers.pop(peer)
            elif peer is not keep and self.forget(peer):
                return True
            else:
                strangers[peer] = strangers.pop(peer)  # to the end: others are asked next time
                tried += 1
        return False

    def _take_back(self, keep: Peer) -> bool:
        """Take a NID from who lists most, for a peer that lists far fewer; whether there was one."""
        if len(keep.members) >= _MANY or not self._many:
            return False
        most = max(self._many, key=lambda peer: len(peer.members))
        self._drop(most, [next(nid for nid in reversed(most.members) if nid != most.primary_nid)])
        return True

    def forget(self, peer: Peer) -> bool:
        """Remove a stranger, unless it is in use, named or a gateway; whether it went."""
        self._parts.uncork()  # what is to be sent must be under way, for its peer is not idle then
        if not peer.idle or peer.flags & _LOCK or self._parts.needed_for(peer):
            return False
        self._remove(peer)
        return True

    def _attach(self, peer: Peer, nid: Nid) -> PeerNi:
        pni = PeerNi(nid, peer.net(nid.net), self._credits_for(nid.net))
        pni.set_router_credits(self._parts.router_credits(nid.net))
        return self._join(peer, pni)

    def _join(self, peer: Peer, pni: PeerNi) -> PeerNi:
        """Give peer a NID that no peer has; what is under way to it goes on."""
        pni.net = peer.net(pni.nid.net)
        pni.peer = peer
        pni.close_paths()
        pni.net.nis.append(pni)
        stalled = [ni for ni, path_load in pni.path_loads.items() if path_load.stalled]
        pni.path_loads.clear()  # they belong to those of the former peer
        for ni in stalled:  # still so: its driver says it once only
            pni.path_loads[ni] = PathLoad(peer.rates, stalled=True)
        if peer.multi_rail:
            pni.preferred = None
        peer.members[pni.nid] = pni
        peer.turns.clear()
        peer.generation.invalidate("NIDs")
        self._by_nid[pni.nid] = pni
        allowance = self._allowances.get(pni.nid)
        if allowance is not None:
            peer.allowance.limit(allowance)
        if not peer.configured:
            self._unconfigured += 1
            if len(peer.members) == _MANY + 1:
                self._many[peer] = None
        self._parts.peer_ni_added(pni)
        return pni

    def _let_go(self, pni: PeerNi) -> None:
        """A NID leaves its peer. If it spoke itself, it is limited in the next one as it was there."""
        del self._by_nid[pni.nid]
        pni.close_paths()
        if pni.heard_at >= 0 or (pni.peer.flags & _DISCOVERED and not pni.listed):
            self._allowances.pop(pni.nid, None)
            self._allowances[pni.nid] = pni.peer.allowance
            if len(self._allowances) > _ALLOWANCES:
                del self._allowances[next(iter(self._allowances))]

    def _drop(self, peer: Peer, nids: Iterable[Nid]) -> None:
        for pni in self._detach(peer, nids):
            self._parts.peer_ni_gone(pni)

    def _detach(self, peer: Peer, nids: Iterable[Nid]) -> list[PeerNi]:
        """Take some of its NIDs, not the primary, from a peer."""
        gone = dict.fromkeys(nids)
        if not gone:
            return []
        taken = [peer.members.pop(nid) for nid in gone]
        for pni in taken:
            self._let_go(pni)
        peer.turns.clear()
        peer.generation.invalidate("NIDs")
        if not peer.configured:
            self._unconfigured -= len(gone)
            if len(peer.members) <= _MANY:
                self._many.pop(peer, None)
        for net in dict.fromkeys(nid.net for nid in gone):
            peer_net = peer.nets[net]
            if len(taken) == 1:  # thousands may go one by one
                peer_net.nis = peer_net.nis.copy()
                peer_net.nis.remove(taken[0])
            else:
                peer_net.nis = [pni for pni in peer_net.nis if pni.nid not in gone]
            if not peer_net.nis:
                del peer.nets[net]
        return taken
