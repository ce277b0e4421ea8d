"""The choice itself: the cases of spec selection.md §3, and what of them can be kept between messages.

Criteria that depend only on configuration and health (the "standing" ones) are evaluated once and kept
with the peer until the node's `epoch` moves; for each message only load, credits and turn are compared.

Where the documents compare nets by turn alone, unequal nets would each get the same share of messages.
With `balance` "expected" the NIs of all nets that are equal in standing compete by expected completion;
with "documents" nets take turns and peer NIs compare queued bytes, to the letter.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, Literal

from ulnet.core.ni import NI, LocalNet
from ulnet.core.peer import PeerNi
from ulnet.core.selection.criteria import (
    CREDITS,
    LOCAL_EXPECTED,
    LOCAL_STANDING,
    NET_STANDING,
    NET_TURN,
    PEER_EXPECTED,
    PEER_STANDING,
    QUEUED,
    TURN,
    Criterion,
    NetPair,
    Query,
    Step,
    narrow,
)
from ulnet.core.selection.rivals import Rivals
from ulnet.core.selection.trace import Explanation, Stage
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import Nid

__all__ = ["Balance", "Selector"]

Balance = Literal["expected", "documents"]

_LOCAL_LOAD: dict[Balance, Sequence[Criterion]] = {
    "expected": (LOCAL_EXPECTED, CREDITS, TURN),
    "documents": (CREDITS, TURN),
}
_PEER_LOAD: dict[Balance, Sequence[Criterion]] = {
    "expected": (PEER_EXPECTED, CREDITS, TURN),
    "documents": (QUEUED, CREDITS, TURN),
}


class Standing:
    """What stays true of the ways to one peer until the epoch moves: who is left by the standing criteria."""

    __slots__ = ("epoch", "locals", "nets", "remotes")

    def __init__(self, epoch: int, nets: Sequence[NetPair]) -> None:
        self.epoch = epoch
        self.nets = nets
        self.locals: dict[LocalNet | None, Rivals] = {}  # under None: of all nets together
        self.remotes: dict[NI, Rivals] = {}


class Selector:
    """Chooses paths for one node; `balance` tells how load is weighed."""

    __slots__ = ("_state", "balance")

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.balance: Balance = "expected"

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
    ) -> tuple[NI, PeerNi]:
        """The pair for a message to the node behind `dest`; with `told`, also the reasons.

        `source` binds the message to one NI; a `response`, and all to a peer without multi-rail, goes to
        `dest` itself. Changes nothing. Raises LNetError: EINVAL (source), EHOSTUNREACH.
        """
        if source is not None:
            return self._from_source(source, dest, told)
        peer = dest.peer
        query = Query(peer, size, self._state.distances(cpt), self._state.settings.numa_range)
        if peer.multi_rail and not response:
            _tell_case(told, "Multi-Rail peer: any of its NIDs, from any NI")
            return self._among_rails(dest, query, cpt, told)
        if not response and not ping and dest.preferred_nids:
            ni = next((ni for ni in self._usable(dest) if ni.nid in dest.preferred_nids), None)
            if ni is not None:
                _tell_case(told, "peer without Multi-Rail: always from the NI that a policy names first")
                return ni, dest
        if not response and not ping and dest.preferred is not None:
            ni = self._state.nis.get(dest.preferred)
            if ni is not None and ni.active:
                _tell_case(told, "peer without Multi-Rail: always from the NI that it knows")
                return ni, dest
        _tell_case(told, "response: to the NID that asked" if response else "peer without Multi-Rail")
        usable = self._usable(dest)
        if not usable:
            raise self._no_route(dest)
        criteria = (*LOCAL_STANDING, *_LOCAL_LOAD[self.balance])
        return _stage("local NI", usable, criteria, query, told)[0], dest

    def _usable(self, dest: PeerNi) -> list[NI]:
        local = self._state.nets.get(dest.nid.net)
        return [ni for ni in local.nis if ni.active] if local is not None else []

    def _from_source(self, source: Nid, dest: PeerNi, told: Explanation | None) -> tuple[NI, PeerNi]:
        _tell_case(told, "source given: from that NI to the NID as given")
        ni = self._state.nis.get(source)
        if ni is None or not ni.active:
            raise LNetError(
                errno.EINVAL, f"source NID {source} is not one of this node's: see 'lnetctl net show'"
            )
        if ni.net.net != dest.nid.net:
            raise self._no_route(dest)
        return ni, dest

    def _among_rails(
        self, dest: PeerNi, query: Query, cpt: int, told: Explanation | None
    ) -> tuple[NI, PeerNi]:
        balance = self.balance
        standing = self._standing(dest, query, cpt, told)
        net = None
        if balance == "documents":
            net = _stage("net, by turn", standing.nets, NET_TURN, query, told)[0].local
        query.rivals = rivals = standing.locals[net]
        ni: NI = _stage("local NI, by load", rivals.candidates, _LOCAL_LOAD[balance], query, told)[0]
        query.ni = ni
        if told is not None:  # what is kept in `standing` was decided for every NI; tell it of this one
            _stage("peer NI", query.peer.nets[ni.net.net].nis, PEER_STANDING, query, told)
        query.rivals = rivals = standing.remotes[ni]
        return ni, _stage("peer NI, by load", rivals.candidates, _PEER_LOAD[balance], query, told)[0]

    def _standing(self, dest: PeerNi, query: Query, cpt: int, told: Explanation | None) -> Standing:
        peer = query.peer
        epoch = self._state.epoch
        kept = peer.standings.get(cpt)
        if kept is not None and kept.epoch == epoch and told is None:
            return kept
        nets = [
            NetPair(local, remote)
            for remote in peer.nets.values()
            if (local := self._state.nets.get(remote.net)) is not None and any(ni.active for ni in local.nis)
        ]
        if not nets:
            raise self._no_route(dest)
        standing = Standing(epoch, _stage("net", nets, NET_STANDING, query, told))
        together = [ni for net in standing.nets for ni in net.local.nis if ni.active]
        standing.locals[None] = Rivals(_stage("local NI", together, LOCAL_STANDING, query, told))
        for net in standing.nets:
            here = [ni for ni in net.local.nis if ni.active]
            standing.locals[net.local] = Rivals(narrow(here, LOCAL_STANDING, query)[0])
            for ni in here:
                query.ni = ni
                standing.remotes[ni] = Rivals(narrow(net.remote.nis, PEER_STANDING, query)[0])
        query.ni = None
        peer.standings[cpt] = standing
        return standing

    def _no_route(self, dest: PeerNi) -> LNetError:
        nets = ", ".join(str(net) for net in self._state.nets) or "none"
        return LNetError(
            errno.EHOSTUNREACH,
            f"no route to {dest.nid}: this node is on {nets}; add a net on {dest.nid.net} or a route to it",
        )


def _stage(
    name: str,
    candidates: Sequence[Any],
    criteria: Sequence[Criterion],
    query: Query,
    told: Explanation | None,
) -> Sequence[Any]:
    """Narrow candidates down; when told is wanted, with every comparison."""
    if told is None:
        return narrow(candidates, criteria, query)[0]
    steps: list[Step] = []
    left, decided_by = narrow(candidates, criteria, query, steps)
    told.stages.append(Stage(name, list(candidates), steps, left[0], decided_by))
    return left


def _tell_case(told: Explanation | None, case: str) -> None:
    if told is not None:
        told.case = case
