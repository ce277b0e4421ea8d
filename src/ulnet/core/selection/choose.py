"""The choice itself: the cases of spec selection.md §3, and what of them can be kept between messages.

Criteria that depend only on configuration and health (the "standing" ones) are evaluated once and kept
with the peer until the node's `epoch` moves; for each message only load, credits and turn are compared.

Where the documents compare nets by turn alone, unequal nets would each get the same share of messages.
With `balance` "expected" the NIs of all nets that are equal in standing compete by expected completion;
with "documents" nets take turns and peer NIs compare queued bytes, to the letter. Where a policy gives
weights, turns of so many messages decide in place of load, in either balance.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, Literal

from ulnet.core.ni import NI, LocalNet
from ulnet.core.peer import Peer, PeerNi
from ulnet.core.selection.again import choose_untried
from ulnet.core.selection.choice import (
    FIRST_OF_EQUALS,
    NOT_MULTI_RAIL,
    ONLY_ONE,
    RESPONSE,
    SOURCE_GIVEN,
    Choice,
)
from ulnet.core.selection.counting import Counting
from ulnet.core.selection.criteria import (
    CREDITS,
    LOCAL_EXPECTED,
    LOCAL_STANDING,
    NET_STANDING,
    NET_TURN,
    PEER_EXPECTED,
    PEER_STANDING,
    QUEUED,
    SAME_WAY,
    TURN,
    WEIGHTED_TURN,
    Criterion,
    NetPair,
    Query,
    narrow,
)
from ulnet.core.selection.line import MANY, Line
from ulnet.core.selection.live import LiveTrace
from ulnet.core.selection.rivals import UNUSED, Rivals
from ulnet.core.selection.standing import Standing
from ulnet.core.selection.trace import Explanation, stage
from ulnet.core.selection.weights import sum_of, turns_of, weight_of_pathway
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import Nid

__all__ = ["Balance", "Selector"]

Balance = Literal["expected", "documents"]

_UNDECIDED = frozenset({ONLY_ONE, FIRST_OF_EQUALS})
_LOCAL_LOAD: dict[Balance, Sequence[Criterion]] = {
    "expected": (LOCAL_EXPECTED, CREDITS, TURN),
    "documents": (CREDITS, TURN),
}
_PEER_LOAD: dict[Balance, Sequence[Criterion]] = {
    "expected": (PEER_EXPECTED, CREDITS, TURN),
    "documents": (QUEUED, CREDITS, TURN),
}
_BY_WEIGHT = (WEIGHTED_TURN,)


class Selector(Counting):
    """Chooses paths for one node; `balance` tells how load is weighed."""

    __slots__ = ("_sessions", "balance")

    def __init__(self, state: NodeState) -> None:
        super().__init__(state)
        self.balance: Balance = "expected"
        self._sessions = 0  # traces so far

    def choose(
        self,
        dest: PeerNi,
        *,
        source: Nid | None = None,
        response: bool = False,
        ping: bool = False,
        size: int = 0,
        cpt: int = 0,
        told: Explanation | None = None,
    ) -> Choice:
        """The pair for a message to the node behind `dest`; with `told`, also the reasons.

        `source` binds the message to one NI; a `response`, and all to a peer without multi-rail, goes to
        `dest` itself. Changes nothing. Raises LNetError: EINVAL (source), EHOSTUNREACH.
        """
        self._state.settle()
        if source is not None:
            return self._from_source(source, dest, response or ping, told)
        peer = dest.peer
        if peer.multi_rail and not response and told is None:
            choice = self.by_load(peer, size, cpt)
            if choice is not None:
                return choice
        query = Query(peer, size, self._state.distances(cpt), self._state.settings.numa_range)
        if peer.multi_rail and not response:
            _tell_case(told, "Multi-Rail peer: any of its NIDs, from any NI")
            return self._among_rails(dest, query, cpt, told)
        if not response and not ping and dest.preferred_nids:
            ni = next((ni for ni in self._usable(dest) if ni.nid in dest.preferred_nids), None)
            if ni is not None:
                _tell_case(told, "peer without Multi-Rail: always from the NI that a policy names first")
                return ni, dest, NOT_MULTI_RAIL, NOT_MULTI_RAIL
        if not response and not ping and dest.preferred is not None:
            ni = self._state.nis.get(dest.preferred)
            if ni is not None and ni.open and ni.net.net == dest.nid.net:  # it may have been over a gateway
                _tell_case(told, "peer without Multi-Rail: always from the NI that it knows")
                return ni, dest, NOT_MULTI_RAIL, NOT_MULTI_RAIL
        _tell_case(told, "response: to the NID that asked" if response else "peer without Multi-Rail")
        usable = self._usable(dest)
        if not usable:
            raise self._no_route(dest)
        criteria = (*LOCAL_STANDING, *_LOCAL_LOAD[self.balance])
        left, by = stage("local NI", usable, criteria, query, told)
        return left[0], dest, _settled(by, usable), RESPONSE if response else NOT_MULTI_RAIL

    def by_load(self, peer: Peer, size: int, cpt: int) -> Choice | None:
        """The pair for a request to any NID of a multi-rail peer; None if that takes a longer look.

        What has joined a convoy must be counted.
        """
        standing = peer.standings.get(cpt)
        if standing is None or standing.epoch != self._state.epoch or standing.balance != self.balance:
            return None
        rivals = standing.by_load
        if rivals is None:
            return None
        convoy = peer.convoy
        if convoy is not None and convoy.takes(size, cpt, standing.epoch):
            return convoy.choice
        paces = peer.paces
        if rivals.changes != paces.rates:
            flows = peer.flows
            rivals.take_rates([flows.get(one, UNUSED) for one in rivals.candidates], paces.rates)
        ni: NI = rivals.pick(size, paces)
        remotes = standing.remotes[ni]
        if len(remotes.candidates) == 1:
            return ni, remotes.candidates[0], rivals.by, remotes.settled
        if remotes.changes != paces.rates:
            remotes.take_rates([one.flows.get(ni, UNUSED) for one in remotes.candidates], paces.rates)
        pni: PeerNi = remotes.pick(size, paces)
        return ni, pni, rivals.by, remotes.by

    def only_choice(self, dest: PeerNi, cpt: int) -> Choice | None:
        """The pair for all requests to `dest` until epoch or peer change; None if load may decide."""
        try:
            choice = self.choose(dest, cpt=cpt)
        except LNetError:
            return None
        if choice[3] == NOT_MULTI_RAIL:
            return choice if choice[2] == NOT_MULTI_RAIL else None
        rivals = dest.peer.standings[cpt].rivals()
        return choice if all(len(one.candidates) == 1 and one.turns is None for one in rivals) else None

    def choose_again(
        self,
        dest: PeerNi,
        *,
        source: Nid | None,
        tried: Sequence[tuple[NI, PeerNi]],
        response: bool,
        size: int = 0,
        cpt: int = 0,
    ) -> Choice:
        """The pair for a message that failed: one not tried, while one is left. Raises LNetError as `choose`.

        To a peer without multi-rail all goes to `dest`, and requests from the NI that it knows, as ever.
        """
        self._state.settle()
        peer = dest.peer
        if not peer.multi_rail and not response:
            return self.choose(dest, source=source, size=size, cpt=cpt)
        query = Query(peer, size, self._state.distances(cpt), self._state.settings.numa_range)
        targets = peer.members.values() if peer.multi_rail else (dest,)
        choice = choose_untried(self._state.nets, targets, query, source, tried)
        if choice is None:
            raise self._no_route(dest)
        return choice

    def follow(self, every_message: bool) -> LiveTrace:
        """The trace of live traffic, which is kept for a while from now on."""
        now = self._state.clock()
        if self.trace is None:
            self._sessions += 1
            self._state.epoch += 1  # each message is looked at from now on
            self.trace = LiveTrace(self._sessions, now)
        self.trace.wanted(now, every_message)
        return self.trace

    def _usable(self, dest: PeerNi) -> list[NI]:
        local = self._state.nets.get(dest.nid.net)
        return [ni for ni in local.nis if ni.open] if local is not None else []

    def _from_source(
        self, source: Nid, dest: PeerNi, even_if_leaving: bool, told: Explanation | None
    ) -> Choice:
        _tell_case(told, "source given: from that NI to the NID as given")
        ni = self._state.nis.get(source)
        if ni is None or not ni.active:
            raise LNetError(
                errno.EINVAL, f"source NID {source} is not one of this node's: see 'lnetctl net show'"
            )
        if not (ni.open or even_if_leaving):
            raise LNetError(errno.ENETDOWN, f"source NID {source} is being deleted: leave the source out")
        if ni.net.net != dest.nid.net:
            if dest.nid.net not in self._state.nets:
                raise self._no_route(dest)
            text = f"source {source} is not on {dest.nid.net}: name one that is, or leave the source free"
            raise LNetError(errno.EHOSTUNREACH, f"no route to {dest.nid}: {text}")
        return ni, dest, SOURCE_GIVEN, SOURCE_GIVEN

    def _among_rails(self, dest: PeerNi, query: Query, cpt: int, told: Explanation | None) -> Choice:
        balance = self.balance
        standing = self._standing(dest, query, cpt, told)
        convoy = query.peer.convoy
        if convoy is not None and convoy.takes(query.size, cpt, standing.epoch):
            query.batch = convoy.choice
        if told is not None and balance == "expected":
            stage("local NI", standing.together, LOCAL_STANDING, query, told)
        net, net_by = None, ""
        rivals = standing.nets
        if rivals.turns is not None:
            query.rivals = rivals
            left, net_by = stage("net, by weight", rivals.candidates, _BY_WEIGHT, query, told)
            net = left[0].local
        elif balance == "documents":
            left, net_by = stage("net, by turn", rivals.candidates, NET_TURN, query, told)
            net = left[0].local
        if told is not None and balance == "documents" and net is not None:
            stage("local NI", _open(net), LOCAL_STANDING, query, told)
        query.rivals = rivals = standing.locals[net]
        criteria = _by_load(_LOCAL_LOAD[balance], query) if rivals.turns is None else _BY_WEIGHT
        left, by = stage("local NI, by load", rivals.candidates, criteria, query, told)
        ni: NI = left[0]
        by = by or rivals.settled
        if net_by and by in _UNDECIDED:
            by = net_by
        query.ni = ni
        if told is not None:  # what is kept in `standing` was decided for every NI; tell it of this one
            stage("peer NI", query.peer.nets[ni.net.net].nis, PEER_STANDING, query, told)
        query.rivals = remotes = standing.remotes[ni]
        criteria = _by_load(_PEER_LOAD[balance], query) if remotes.turns is None else _BY_WEIGHT
        left, peer_by = stage("peer NI, by load", remotes.candidates, criteria, query, told)
        return ni, left[0], by, peer_by or remotes.settled

    def _standing(self, dest: PeerNi, query: Query, cpt: int, told: Explanation | None) -> Standing:
        peer = query.peer
        epoch = self._state.epoch
        kept = peer.standings.get(cpt)
        if kept is not None and kept.epoch == epoch and kept.balance == self.balance and told is None:
            return kept
        nets = [
            NetPair(local, remote)
            for remote in peer.nets.values()
            if (local := self._state.nets.get(remote.net)) is not None and any(ni.open for ni in local.nis)
        ]
        if not nets:
            raise self._no_route(dest)
        left, net_by = stage("net", nets, NET_STANDING, query, told)
        standing = Standing(epoch, self.balance, [ni for net in left for ni in _open(net.local)])
        self._stand_nis(standing, list(left), net_by, query)
        query.ni = None
        if any(one.turns is not None for one in standing.rivals()):
            self.weighted = True
        elif self.balance == "expected":
            standing.by_load = standing.locals[None]
        peer.standings[cpt] = standing
        return standing

    def _stand_nis(self, standing: Standing, nets: list[NetPair], net_by: str, query: Query) -> None:
        """Who is left of the NIs, of all nets together or of each by itself, and of the peer's."""
        left, settled = _settle(standing.together, LOCAL_STANDING, query, net_by)
        together = Rivals(left, settled)
        weights = []
        for net in list(nets):
            if self.balance == "documents":
                nis, settled = _settle(_open(net.local), LOCAL_STANDING, query, net_by)
            else:
                nis = [ni for ni in left if ni.net is net.local]
            if not nis:
                nets.remove(net)
                continue
            weights_of_nis = [self._stand_pathways(standing, ni, net, query) for ni in nis]
            standing.locals[net.local] = _rivals(nis, settled, weights_of_nis, query.peer, net.local)
            weights.append(net.remote.weight or net.local.weight or sum_of(weights_of_nis))
        standing.nets = _rivals(nets, "", weights, query.peer, None)
        standing.locals[None] = together if len(nets) > 1 else standing.locals[nets[0].local]

    @staticmethod
    def _stand_pathways(standing: Standing, ni: NI, net: NetPair, query: Query) -> int:
        """Who is left of the peer's NIs for one NI; the weight of that NI."""
        query.ni = ni
        left, settled = _settle(net.remote.nis, PEER_STANDING, query)
        weights = [weight_of_pathway(ni, pni) for pni in left]
        rivals = standing.remotes[ni] = _rivals(left, settled, weights, query.peer, ni)
        if len(left) >= MANY:
            key = tuple(left)
            rivals.line = standing.lines.get(key)
            if rivals.line is None:
                rivals.line = standing.lines[key] = Line(left)
        return ni.weight or sum_of(weights)

    def _no_route(self, dest: PeerNi) -> LNetError:
        nets = ", ".join(str(net.net) for net in self._state.nets.values() if _open(net)) or "none"
        return LNetError(
            errno.EHOSTUNREACH,
            f"no route to {dest.nid}: this node is on {nets}; add a net on {dest.nid.net} or a route to it",
        )


def _by_load(criteria: Sequence[Criterion], query: Query) -> Sequence[Criterion]:
    return criteria if query.batch is None else (SAME_WAY, *criteria)


def _open(net: LocalNet) -> list[NI]:
    return [ni for ni in net.nis if ni.open]


def _rivals(
    left: Sequence[Any], settled: str, weights: Sequence[int], peer: Peer, stage: LocalNet | NI | None
) -> Rivals:
    return Rivals(left, settled, turns_of(left, weights, peer.turns, stage))


def _settle(
    candidates: Sequence[Any], criteria: Sequence[Criterion], query: Query, before: str = ""
) -> tuple[Sequence[Any], str]:
    """Who is left, and what is to be named as the reason if nothing more decides."""
    left, by = narrow(candidates, criteria, query)
    return left, _settled(by or before, left)


def _settled(by: str, left: Sequence[Any]) -> str:
    return by or (ONLY_ONE if len(left) == 1 else FIRST_OF_EQUALS)


def _tell_case(told: Explanation | None, case: str) -> None:
    if told is not None:
        told.case = case
