"""Whose a NID is (docs/security.md): what the list of a peer may take, and what only its node can tell."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from ulnet.core.ni import LocalNet
from ulnet.core.peer import Peer, PeerFlag, PeerNi
from ulnet.core.peer_table import PeerTable
from ulnet.core.routing.table import Route
from ulnet.nid import Net, Nid
from ulnet.wire.ping import PingInfo

__all__ = ["Claims", "nids_told"]

_LOCK = int(PeerFlag.LOCK_PRIMARY)
_MOST_ASKED: Final = 8  # times: the gateway that leads to a NID may not be there at first
_MOST_TRIED: Final = 6  # pings of one round that come to nothing; the last two of eight ask no suspect
_MOST_UNASKED: Final = 1024  # NIDs of a net
_AT_ONCE: Final = 64  # of those NIDs, of all nets, that are looked at when a way leads there
_MOST_NETS: Final = 64

_Asks: TypeAlias = Callable[[PeerNi], bool | None]  # a NID itself; None: it is asked already, or not now
_Vouching: TypeAlias = Sequence[Callable[[Nid], bool]]


class _Question:
    """A ping that is to go to one NID of a peer, and the NIDs that leave the peer once that is over.

    The target is the peer's beyond doubt, so that messages to the peer may wait for it. If it is silent, the
    NIDs leave just the same, unless an upper layer calls the peer by name.
    """

    __slots__ = ("heard_at", "sent", "strays", "target")

    def __init__(self, target: PeerNi) -> None:
        self.target: Nid = target.nid
        self.heard_at: float = target.heard_at  # when it was posed
        self.strays: dict[Nid, None] = {}
        self.sent: bool = False


class Claims:
    """Judges what peers say that they have.

    A NID that only a list gave to a peer (`PeerNi.listed`) proves nothing of that peer. It is the peer's
    until the node behind it, speaking by that very NID, lists none of those that are known to be the peer's.
    Then the peer is asked by one of these, and the NID is another node's from then on, and a peer of its
    own; but if a peer that is called by name does not answer, it has moved there.
    """

    # fmt: off
    __slots__ = ("_asked", "_is_gateway", "_leads_over", "_nets", "_peers", "_questions",
                 "_routes_to", "_spoke", "_suspects", "_unasked", "_usable")
    # fmt: on

    def __init__(
        self,
        peers: PeerTable,
        nets: Mapping[Net, LocalNet],
        is_gateway: Callable[[Peer], bool],
        routes_to: Callable[[Net], Sequence[Route]],
        usable: Callable[[Net], Sequence[Route]],
        leads_over: Callable[[Peer, Net], bool],
    ) -> None:
        self._peers = peers
        self._nets = nets
        self._is_gateway: Callable[[Peer], bool] = is_gateway
        self._routes_to: Callable[[Net], Sequence[Route]] = routes_to
        self._usable: Callable[[Net], Sequence[Route]] = usable
        self._leads_over: Callable[[Peer, Net], bool] = leads_over
        self._questions: dict[Peer, _Question] = {}
        self._suspects: dict[Peer, dict[Nid, None]] = {}  # NIDs behind which other nodes may be
        # NIDs that were taken while their nodes could not be asked, and how often they were asked since.
        self._unasked: dict[Net, dict[Nid, int]] = {}
        self._asked: set[Peer] = set()  # by such a NID, just now
        self._spoke: set[Peer] = set()  # those whose NIDs were listed by others, until they said otherwise

    # What a list may take --------------------------------------------------------------------------

    def grant(
        self,
        peer: Peer,
        primary: Nid,
        nids: Iterable[Nid],
        listed: Collection[Nid],
        asked: Nid | None = None,
    ) -> dict[Nid, int]:
        """Give peer some NIDs of those that it lists itself; which ones a rule forbids, with its errno.

        One that is known to be another's moves when that says so itself (EAGAIN), as the peer of `asked` did
        just now. Where there are certificates they must be for it (EACCES).
        """
        vouching = peer.vouching
        refused = {}
        for nid in nids:
            other = self._peers.find(nid)
            asking = other is None or other is peer or self.can_say(other, peer)
            heard = other is not None and other.heard
            unasked = [] if asking or other is None else list(other.members.values())
            why = self._doubts(peer, nid, vouching, asked) or self._peers.adopt(peer, nid, listed)
            if why:
                refused[nid] = why
                continue
            for pni in unasked:
                if pni.peer is peer:
                    self.only_listed(pni, peer, heard)
        if not peer.configured and not peer.flags & _LOCK and peer.owns(primary):
            peer.primary_nid = primary
        return refused

    def only_listed(self, pni: PeerNi, peer: Peer, heard: bool) -> None:
        """Nobody but `peer`, which lists a NID, says so: a node that was heard there is asked later.

        That is once another way leads there.
        """
        net = pni.nid.net
        if heard and not pni.listed and not self._leads_beside(peer, net):
            nids = self._unasked.setdefault(net, {})
            nids[pni.nid] = 0
            _keep(nids, _MOST_UNASKED)
            _keep(self._unasked, _MOST_NETS)
        pni.listed = True

    def _leads_beside(self, peer: Peer, net: Net) -> bool:
        return net in self._nets or any(not peer.owns(route.gateway) for route in self._routes_to(net))

    def _has_way_beside(self, peer: Peer, net: Net) -> bool:
        return net in self._nets or any(not peer.owns(route.gateway) for route in self._usable(net))

    def _leads_to(self, net: Net) -> bool:
        return net in self._nets or bool(self._routes_to(net))

    def _doubts(self, peer: Peer, nid: Nid, vouching: _Vouching, asked: Nid | None) -> int:
        """The errno of what is to be shown before a peer gets a NID on its word alone; 0: nothing."""
        other = self._peers.find(nid)
        if other is peer:
            return 0
        if not self._certified(peer, nid, other, vouching):
            return errno.EACCES
        if other is None or (asked is not None and other.owns(asked)) or self.agrees(other, peer):
            return 0
        return errno.EAGAIN

    def agrees(self, other: Peer, peer: Peer) -> bool:
        """Whether another peer, as far as it has spoken for itself, says that it is the node of peer.

        A gateway has to speak first: routes lead over it already.
        """
        if not self.can_say(other, peer):
            return True
        members = peer.members
        return any(nid in members and not members[nid].listed for nid in other.says)

    def can_say(self, other: Peer, peer: Peer) -> bool:
        """Whether another peer has spoken for itself, and can be asked still, otherwise than over `peer`.

        A net or a route leads there. Where it leads over `peer` alone, that has what is for the other anyway.
        """
        if self._is_gateway(other):
            return True
        if not (other.heard or other in self._spoke):
            return False
        return any(self._leads_beside(peer, net) for net in other.nets)

    def is_here(self, nid: Nid) -> bool:
        """Whether a NID is of a net that this node is on."""
        return nid.net in self._nets

    def certified(self, pni: PeerNi, vouches: Callable[[Nid], bool] | None) -> bool:
        """A NID shows another certificate than before, or none: by a new connection, or its first message.

        Whether it had one before. Where the new one is not for all NIDs that the former one was for, the NID
        may be another node's by now. What others sent in the name of one that had none was theirs.
        """
        peer, before = pni.peer, pni.vouches
        pni.vouches = vouches
        if vouches is None:
            return False
        if before is None:
            peer.generation.invalidate("it has a certificate")
        if not all(vouches(nid) for nid in peer.members if before is None or before(nid)):
            self._peers.split(pni)
            if before is not None and pni.peer is not peer:
                peer.says -= {pni.nid}
        return before is not None

    def are_certified(self, peer: Peer, primary: Nid, owner: Peer) -> bool:
        """Whether certificates let a peer with that primary NID, as it says, be the node of another peer."""
        vouching = peer.vouching
        if not (vouching or owner.vouching or any(net.needs_certificates for net in self._nets.values())):
            return True
        return all(self._certified(peer, nid, owner, vouching) for nid in (primary, *owner.members))

    def _certified(self, peer: Peer, nid: Nid, other: Peer | None, vouching: _Vouching) -> bool:
        """Whether certificates, where there must be some, say that a NID is of the node of peer.

        They may be those of the other peer that has it, if they are for all NIDs of this one.
        """
        pni = other.members.get(nid) if other is not None else None
        net = self._nets.get(nid.net)
        needed = bool(vouching) or (pni is not None and pni.vouches is not None)
        if self._peers.ours(nid) or not (needed or (net is not None and net.needs_certificates)):
            return True
        if _cover(vouching, nid):
            return True
        theirs = other.vouching if other is not None else ()
        return bool(theirs) and all(_cover(theirs, member) for member in peer.members)

    # What a node says by a NID ---------------------------------------------------------------------

    def is_answer(self, peer: Peer, source: Nid, sender: Nid, info: PingInfo) -> bool:
        """Whether an answer to a ping of peer is the peer's; else it is to be asked anew.

        One by a NID that the peer does not have (any more) is not, unless it came over a router to the peer:
        the node may have answered by its NID on the way there.
        """
        by, told = peer.members.get(source), nids_told(info)
        if by is None:
            hop = self._peers.find(sender)
            return hop is not None and any(self._leads_over(hop, net) for net in peer.nets)
        if self.is_own(by, sender) and not self.is_of(by, told):
            return False
        suspects = self._suspects.get(peer)
        if suspects is not None:  # what the same node has now is not somebody else's
            self._suspects[peer] = {nid: None for nid in suspects if nid not in told}
        return True

    def is_own(self, pni: PeerNi, sender: Nid) -> bool:
        """Whether what a next hop sent in the name of a NID is of the node behind that."""
        hop = self._peers.find(sender)
        return sender == pni.nid or (hop is not None and self._leads_over(hop, pni.nid.net))

    def is_of(self, pni: PeerNi, told: Collection[Nid]) -> bool:
        """Whether what the node behind a NID tells, by that NID, is what the peer of the NID tells."""
        peer = pni.peer
        if not pni.listed or pni.nid not in told:
            return True
        if peer.configured or any(not one.listed for one in _of(peer, told)):
            pni.listed = False
            return True
        own = next((one for one in peer.members.values() if not one.listed), None)
        if own is None:
            pni.listed = False
            return True
        question = self._questions.get(peer)
        if question is None or not peer.owns(question.target):
            strays = {} if question is None else question.strays
            question = self._questions[peer] = _Question(own)
            question.strays.update(strays)
        question.strays[pni.nid] = None
        return False

    def suspect(self, pni: PeerNi) -> None:
        """Another node may be behind a NID: its peer is asked by that, or by any if that is silent."""
        if self._leads_to(pni.nid.net):
            self._suspects.setdefault(pni.peer, {})[pni.nid] = None

    def reached(self, nets: Iterable[Net], by: Peer | None, ask: _Asks) -> None:
        """Ways lead to nets: the first NIDs of these that were taken while none did are asked.

        Where ways lead over the gateway `by`, what that has taken is left for others.
        """
        self._ask_some(nets, by, ask, _MOST_ASKED, _AT_ONCE)

    def ask_next(self, nid: Nid, ask: _Asks, cut_off: bool = False) -> None:
        """The question to such a NID is over: one that was not asked as often is next, of its net if any is.

        Where it was cut off, as its peer is gone, it does not count.
        """
        nids = self._unasked.get(nid.net, {})
        tries = nids.get(nid)
        if tries:
            if cut_off:
                nids[nid] -= 1
            self._ask_some(list(dict.fromkeys((nid.net, *self._unasked))), None, ask, tries, 1)

    def _ask_some(self, nets: Iterable[Net], by: Peer | None, ask: _Asks, tries: int, most: int) -> None:
        """Ask so many that were asked less often than that; those looked at longest ago come first.

        Whoever is looked at is behind the others then, asked or not, and its net behind other nets.
        """
        left = _AT_ONCE
        for net in nets:
            nids = self._unasked.get(net)
            if not (nids and left and most) or not (net in self._nets or self._usable(net)):
                continue
            for nid in list(islice(nids, left)):
                if not most:
                    break
                left -= 1
                count = nids.pop(nid)
                pni = self._peers.find_ni(nid)
                if pni is None or not pni.listed or count >= _MOST_ASKED:
                    continue
                nids[nid] = count
                if count < tries and pni.peer is not by and self._has_way_beside(pni.peer, net) and ask(pni):
                    nids[nid] += 1
                    most -= 1
            del self._unasked[net]
            if nids:
                self._unasked[net] = nids

    def nets_behind(self, gateway: Peer) -> list[Net]:
        """The nets of NIDs that are still to be asked to which routes lead over a gateway."""
        return [net for net in self._unasked if self._leads_over(gateway, net)]

    def has_suspects(self, peer: Peer) -> bool:
        """Whether such NIDs of a peer are still to be asked themselves, before others may answer."""
        return peer.attempts < _MOST_TRIED and any(peer.owns(nid) for nid in self._suspects.get(peer, ()))

    def asks_suspect(self, peer: Peer) -> bool:
        """Whether the ping under way asks such a NID."""
        return peer in self._asked

    def ended(self, peer: Peer) -> None:
        """No ping is under way to a peer (any more)."""
        self._asked.discard(peer)
        question = self._questions.get(peer)
        if question is not None:
            question.sent = False

    def asks(self, peer: Peer) -> Nid | None:
        """The NID that a ping must go to, if any; it is sent now."""
        question = self._questions.get(peer)
        if question is not None:
            question.sent = peer.owns(question.target)
            if question.sent:
                return question.target
        if peer.attempts > _MOST_TRIED:  # this ping is one of them
            return None
        nids = self._suspects.pop(peer, {})
        left = [nid for nid in nids if peer.owns(nid)]
        if not left:
            return None
        if len(left) > 1:
            self._suspects[peer] = dict.fromkeys(left[1:])
        self._asked.add(peer)
        return left[0]

    def answered(self, peer: Peer, nid: Nid) -> list[Peer]:
        """A peer answered by that NID: the peers that NIDs of other nodes become."""
        self._asked.discard(peer)
        question = self._questions.get(peer)
        if question is None or question.target != nid:
            return []
        del self._questions[peer]
        others = [self._peers.split(pni) for pni in _of(peer, question.strays) if pni.listed]
        others = [other for other in others if other is not peer]
        self._spoke.update(others)
        return others

    def silent(self, peer: Peer) -> list[Peer] | None:
        """A ping was not answered. None: any NID was asked; else the peers that NIDs of other nodes become.

        A peer that an upper layer calls by name has moved to the NID that spoke; any other one has lost it.
        """
        question = self._questions.get(peer)
        if question is None or not question.sent:
            if peer not in self._asked:
                return None
            self._asked.discard(peer)
            return []
        target = peer.members.get(question.target)
        is_there = target is not None and target.heard_at > question.heard_at
        if is_there or not peer.flags & _LOCK:
            return self.answered(peer, question.target)
        del self._questions[peer]
        for pni in _of(peer, question.strays)[:1]:
            pni.listed = False
        return []

    def net_changed(self, net: LocalNet) -> None:
        """A net is there, or needs certificates, since now: its NIDs are in no peer without."""
        for peer in self._peers if net.needs_certificates else ():
            theirs = peer.nets.get(net.net)
            if theirs is not None and len(peer.members) > 1 and not self._peers.ours(peer.primary_nid):
                vouching = peer.vouching
                for pni in [pni for pni in theirs.nis if not _cover(vouching, pni.nid)]:
                    self._peers.split(pni)

    def left(self, peer: Peer) -> None:
        """A peer is no longer in the table: nothing is kept of it."""
        self._questions.pop(peer, None)
        self._suspects.pop(peer, None)
        self._asked.discard(peer)
        self._spoke.discard(peer)


def nids_told(info: PingInfo | None) -> frozenset[Nid]:
    """The NIDs that an info lists; none where there is none."""
    return frozenset() if info is None else frozenset(entry.nid for entry in info.entries)


def _keep(waiting: dict[Any, Any], most: int) -> None:
    """Forget who waits longest where there are too many."""
    if len(waiting) > most:
        del waiting[next(iter(waiting))]


def _of(peer: Peer, nids: Iterable[Nid]) -> list[PeerNi]:
    return [peer.members[nid] for nid in nids if nid in peer.members]


def _cover(vouching: _Vouching, nid: Nid) -> bool:
    return any(vouches(nid) for vouches in vouching)
