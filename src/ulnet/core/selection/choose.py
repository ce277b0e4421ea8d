"""The choice of a path: the cases of spec selection.md §3, and what of them is kept between messages.

`fill` evaluates the criteria that depend only on configuration and health, once for a generation; `pick`
compares load, credits and turn among those that are left. Both run `narrow` over lists of named criteria, and
tell every comparison to who asks for an explanation.

Where the documents compare nets by turn alone, unequal nets would each get the same share of messages.
The NIs of all nets that are equal by configuration and health are compared by health, policy and NUMA.
Those left compete by expected completion with `balance` "expected"; with "documents" their nets take turns,
and peer NIs compare queued bytes, to the letter. Where a policy gives weights, turns of so many messages
decide in place of load, in either balance.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from ulnet.core.msg import ANSWERS, Msg
from ulnet.core.ni import NI, LocalNet
from ulnet.core.path import Path
from ulnet.core.peer import Peer, PeerNi
from ulnet.core.selection.again import choose_untried
from ulnet.core.selection.candidates import Candidates
from ulnet.core.selection.choice import (
    FIRST_OF_EQUALS,
    NOT_MULTI_RAIL,
    NOT_TRIED,
    ONLY_ONE,
    RESPONSE,
    SOURCE_GIVEN,
    kind_of,
)
from ulnet.core.selection.criteria import (
    CREDITS,
    LOCAL_EXPECTED,
    LOCAL_FIXED,
    NET_FIXED,
    NET_TURN,
    PEER_EXPECTED,
    PEER_FIXED,
    QUEUED,
    SAME_WAY,
    TURN,
    WEIGHTED_TURN,
    Criterion,
    narrow,
)
from ulnet.core.selection.live import LiveTrace
from ulnet.core.selection.paths import SAME_BATCH, SMALL, Key, NetPair, PathSet, Query
from ulnet.core.selection.trace import Explanation, stage
from ulnet.core.selection.weights import sum_of, turns_of, weight_of_pathway
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import LNET_PID, LO_NID, Net, Nid

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["Balance", "Selector", "no_way"]

Balance = Literal["expected", "documents"]

_UNDECIDED = frozenset({ONLY_ONE, FIRST_OF_EQUALS})
_LOCAL_LOAD: dict[Balance, tuple[Criterion, ...]] = {
    "expected": (LOCAL_EXPECTED, CREDITS, TURN),
    "documents": (CREDITS, TURN),
}
_PEER_LOAD: dict[Balance, tuple[Criterion, ...]] = {
    "expected": (PEER_EXPECTED, CREDITS, TURN),
    "documents": (QUEUED, CREDITS, TURN),
}
_BY_WEIGHT = (WEIGHTED_TURN,)
_MOST_SETS: Final = 64  # of paths to one NID


class Selector:
    """Chooses paths for one node; `balance` tells how load is weighed."""

    __slots__ = ("_balance", "_nets", "_parts", "_sessions", "_state", "trace")

    def __init__(self, state: NodeState, parts: Parts) -> None:
        self._state = state
        self._parts = parts
        self._balance: Balance = "expected"
        self.trace: LiveTrace | None = None  # while somebody follows
        self._sessions = 0  # traces so far
        self._nets = (-1, "")  # the words for those that this node is on, and of which generation

    @property
    def balance(self) -> Balance:
        """How load is weighed."""
        return self._balance

    @balance.setter
    def balance(self, balance: Balance) -> None:
        self._balance = balance
        self._state.generation.invalidate("load is weighed otherwise")

    def find(self, dest: PeerNi, key: Key) -> PathSet:
        """The paths for that key, maybe of a generation that is over."""
        if key.ping:  # too rare to be worth the memory
            return PathSet(dest, key)
        paths = dest.path_sets.get(key)
        if paths is None:
            if len(dest.path_sets) >= _MOST_SETS:  # peers choose the pids that answers go to
                dest.close_paths()
            paths = dest.path_sets[key] = PathSet(dest, key)
        return paths

    def is_valid(self, paths: PathSet) -> bool:
        """Whether what was decided still holds."""
        return paths.stamp == self._state.generation.number + paths.generation.number

    def choose(self, dest: PeerNi, key: Key, size: int, record: Explanation | None = None) -> Path:
        """The path of one message; with `record`, also the reasons, and nothing changes. Raises LNetError."""
        if record is None:
            paths = self.find(dest, key)
            if not self.is_valid(paths):
                self.fill(paths)
            return self.pick(paths, size)
        fresh = PathSet(dest, key)
        self.fill(fresh, record)
        kept = dest.path_sets.get(key)
        if kept is not None and self.is_valid(kept):
            fresh.batch, fresh.batch_left = kept.batch, kept.batch_left
            fresh.batch_bytes, fresh.batch_mark = kept.batch_bytes, kept.batch_mark
        return self.pick(fresh, size, record)

    # What stays true -----------------------------------------------------------------------------------

    def fill(self, paths: PathSet, record: Explanation | None = None) -> None:
        """Decide who is left until the next generation. Raises LNetError: EINVAL (source), EHOSTUNREACH."""
        paths.clear()
        paths.generation = paths.dest.peer.generation
        dest, key, state = paths.dest, paths.key, self._state
        peer = dest.peer
        paths.query = Query(peer, 0, state.cpts, key.cpt, state.settings.numa_range)
        if dest.nid == LO_NID:
            self._fill_loopback(paths)
        elif key.source is not None:
            self._fill_from_source(paths, key.source, record)
        elif peer.multi_rail and not key.bound:
            _tell_case(record, "Multi-Rail peer: any of its NIDs, from any NI")
            self._fill_multi_rail(paths, paths.query, record)
        else:
            self._fill_single_rail(paths, paths.query, record)
        paths.settled = peer.settled or dest.nid == LO_NID
        paths.stamp = state.generation.number + peer.generation.number
        paths.ready = paths.stamp if paths.settled and not _is_down(paths) else -1

    def _fill_loopback(self, paths: PathSet) -> None:
        ni = self._state.nis.get(LO_NID)
        if ni is None:
            raise LNetError(errno.ESHUTDOWN, "the node is shutting down")
        self._fix(paths, ni, paths.dest, ONLY_ONE, ONLY_ONE)

    def _fix(self, paths: PathSet, ni: NI, pni: PeerNi, ni_by: str, peer_ni_by: str) -> None:
        """Fill the set with one path only."""
        paths.fixed = path = self.path(paths, ni, pni, pni)
        path.ni_by, path.peer_ni_by = ni_by, peer_ni_by

    def _fill_from_source(self, paths: PathSet, source: Nid, record: Explanation | None) -> None:
        dest, key = paths.dest, paths.key
        _tell_case(record, "source given: from that NI to the NID as given")
        ni = self._state.source_ni(source, even_if_leaving=key.bound or key.ping)
        if ni.fatal and key.kind in ANSWERS:
            raise LNetError(errno.ENETDOWN, f"the device of {source} failed: another NI has to answer")
        if ni.net.net != dest.nid.net:
            near = dest.peer.nets.get(ni.net.net)
            if near is not None and dest.peer.multi_rail and not key.bound and paths.query is not None:
                _tell_case(record, "source given: from that NI to the peer's best one on its net")
                paths.query.ni = ni
                remotes, by = _settle(near.nis, PEER_FIXED, paths.query)
                self._fix(paths, ni, remotes[0], SOURCE_GIVEN, by)
                return
            if dest.nid.net not in self._state.nets:
                raise self._no_route(dest)
            text = f"source {source} is not on {dest.nid.net}: name one that is, or leave the source free"
            raise LNetError(errno.EHOSTUNREACH, f"no route to {dest.nid}: {text}")
        self._fix(paths, ni, dest, SOURCE_GIVEN, SOURCE_GIVEN)

    def _fill_single_rail(self, paths: PathSet, query: Query, record: Explanation | None) -> None:
        """All goes to that NID, from any NI unless the peer knows one."""
        dest, key = paths.dest, paths.key
        query.bound = dest
        known = None if key.bound or key.ping else self._known_to(dest, record)
        if known is not None:
            self._fix(paths, known, dest, NOT_MULTI_RAIL, NOT_MULTI_RAIL)
            return
        _tell_case(record, "response: to the NID that asked" if key.bound else kind_of(dest.peer))
        usable = self._usable(dest)
        if not usable:
            raise self._no_route(dest)
        peer_ni_by = RESPONSE if key.bound else NOT_MULTI_RAIL
        if record is not None:
            paths.locals[None] = Candidates(usable)  # one stage with all criteria
            return
        left, by = narrow(usable, LOCAL_FIXED, query)
        if len(left) == 1 and (key.bound or key.ping):
            self._fix(paths, left[0], dest, _settled(by, usable), peer_ni_by)
        else:
            paths.locals[None] = Candidates(left, _settled(by, usable))

    def _known_to(self, dest: PeerNi, record: Explanation | None) -> NI | None:
        """The NI from which a peer without multi-rail always hears."""
        if dest.preferred_nids:
            ni = next((ni for ni in self._usable(dest) if ni.nid in dest.preferred_nids), None)
            if ni is not None:
                _tell_case(record, "peer without Multi-Rail: always from the NI that a policy names first")
                return ni
        if dest.preferred is not None:
            ni = self._state.nis.get(dest.preferred)
            if ni is not None and ni.open and ni.net.net == dest.nid.net:  # it may have been over a gateway
                _tell_case(record, "peer without Multi-Rail: always from the NI that it knows")
                return ni
        return None

    def _usable(self, dest: PeerNi) -> list[NI]:
        local = self._state.nets.get(dest.nid.net)
        return _open(local) if local is not None else []

    def _fill_multi_rail(self, paths: PathSet, query: Query, record: Explanation | None) -> None:
        peer = query.peer
        nets = [
            NetPair(local, remote)
            for remote in peer.nets.values()
            if (local := self._state.nets.get(remote.net)) is not None and any(ni.open for ni in local.nis)
        ]
        if not nets:
            raise self._no_route(paths.dest)
        left, net_by = stage("net", nets, NET_FIXED, query, record)
        together = [ni for net in left for ni in _open(net.local)]
        if record is not None:
            stage("local NI", together, LOCAL_FIXED, query, record)
        self._fill_nis(paths, together, list(left), net_by, query)
        query.ni = None
        paths.free = self.balance == "expected" and all(one.turns is None for one in paths.stages())
        stages = [one for one in paths.stages() if one is not paths.nets or self.balance == "documents"]
        if all(len(one.all) == 1 and one.turns is None for one in stages) and record is None:
            locals_ = paths.locals[None]
            ni: NI = locals_.all[0]
            remotes = paths.remotes[ni]
            self._fix(paths, ni, remotes.all[0], locals_.settled, remotes.settled)

    def _fill_nis(
        self, paths: PathSet, together: Sequence[NI], nets: list[NetPair], net_by: str, query: Query
    ) -> None:
        """The NIs that are left, of all nets together, and the peer's."""
        left, settled = _settle(together, LOCAL_FIXED, query, net_by)
        all_nets = Candidates(left, settled)
        weights = []
        for net in list(nets):
            nis = [ni for ni in left if ni.net is net.local]
            if not nis:
                nets.remove(net)
                continue
            weights_of_nis = [self._fill_pathways(paths, ni, net, query) for ni in nis]
            paths.locals[net.local] = _candidates(nis, settled, weights_of_nis, query.peer, net.local)
            weights.append(net.remote.weight or net.local.weight or sum_of(weights_of_nis))
        paths.nets = _candidates(nets, "", weights, query.peer, None)
        paths.locals[None] = all_nets if len(nets) > 1 else paths.locals[nets[0].local]

    @staticmethod
    def _fill_pathways(paths: PathSet, ni: NI, net: NetPair, query: Query) -> int:
        """The peer NIs that are left for one NI; the weight of that NI."""
        query.ni = ni
        left, settled = _settle(net.remote.nis, PEER_FIXED, query)
        weights = [weight_of_pathway(ni, pni) for pni in left]
        paths.remotes[ni] = _candidates(left, settled, weights, query.peer, ni)
        return ni.weight or sum_of(weights)

    def _no_route(self, dest: PeerNi) -> LNetError:
        number, nets = self._nets
        if number != self._state.generation.number:  # who invents sources has this said for each answer
            nets = ", ".join(str(net.net) for net in self._state.nets.values() if _open(net)) or "none"
            self._nets = (self._state.generation.number, nets)
        text = no_way(dest.nid.net, nets)
        closed = self._state.nets.get(dest.nid.net)
        if closed is not None and closed.nis and not _open(closed):
            ni = closed.nis[0]
            why = "is about to go: add another one"
            if ni.drained:
                why = f"is drained: 'lnetctl net set --nid {ni.nid} --drain 0' uses it again"
            text = f"no NI on {closed.net} takes anything new: {ni.nid} {why}"
        return LNetError(errno.EHOSTUNREACH, f"no route to {dest.nid}: {text}")

    # What load decides ---------------------------------------------------------------------------------

    def pick(self, paths: PathSet, size: int, record: Explanation | None = None) -> Path:
        """The path of a message of `size` bytes, header included, that joins no batch.

        With `record` also the reasons, and nothing changes. The paths must be filled, and what was sent
        before be counted.
        """
        fixed = paths.fixed
        if fixed is not None:
            return fixed
        self._parts.uncork()
        query = paths.query
        assert query is not None
        query.size = size
        if not paths.remotes:
            return self._pick_single_rail(paths, query, record)
        path = self._pick_multi_rail(paths, query, record)
        if record is None and paths.free and path.ni.batches and size <= SMALL:
            paths.begin_batch(path, size)
        return path

    def _pick_single_rail(self, paths: PathSet, query: Query, record: Explanation | None) -> Path:
        """The local NI for messages to one NID."""
        usable = query.cached = paths.locals[None]
        criteria = _LOCAL_LOAD[self.balance]
        if record is not None:
            criteria = (*LOCAL_FIXED, *criteria)
        left, by = stage("local NI", usable.all, criteria, query, record)
        path = self.path(paths, left[0], paths.dest, paths.dest)
        path.ni_by = by or usable.settled or _settled("", usable.all)
        path.peer_ni_by = RESPONSE if paths.key.bound else NOT_MULTI_RAIL
        return path

    def _pick_multi_rail(self, paths: PathSet, query: Query, record: Explanation | None) -> Path:
        balance = self.balance
        query.batch = None if record is None else paths.join(query.size, 0)
        net, net_by = None, ""
        nets = paths.nets
        if nets.turns is not None:
            query.cached = nets
            left, net_by = stage("net, by weight", nets.all, _BY_WEIGHT, query, record)
            net = left[0].local
        elif balance == "documents":
            left, net_by = stage("net, by turn", nets.all, NET_TURN, query, record)
            net = left[0].local
        query.cached = locals_ = paths.locals[net]
        criteria = _by_load(_LOCAL_LOAD[balance], query) if locals_.turns is None else _BY_WEIGHT
        left, by = stage("local NI, by load", locals_.all, criteria, query, record)
        ni: NI = left[0]
        by = by or locals_.settled
        if net_by and by in _UNDECIDED:
            by = net_by
        query.ni = ni
        if record is not None:  # what is kept was decided for every NI; tell it of this one
            stage("peer NI", query.peer.nets[ni.net.net].nis, PEER_FIXED, query, record)
        query.cached = remotes = paths.remotes[ni]
        criteria = _by_load(_PEER_LOAD[balance], query) if remotes.turns is None else _BY_WEIGHT
        left, peer_by = stage("peer NI, by load", remotes.all, criteria, query, record)
        path = self.path(paths, ni, left[0], left[0])
        path.ni_by = by
        path.peer_ni_by = peer_by or remotes.settled
        if path.among is None:
            path.among = paths
            path.joined_by = (
                SAME_BATCH if len(locals_.all) > 1 else locals_.settled,
                SAME_BATCH if len(remotes.all) > 1 else remotes.settled,
            )
        return path

    def path(self, paths: PathSet, ni: NI, pni: PeerNi, final: PeerNi) -> Path:
        """The path of an NI and a peer NI."""
        path = paths.paths.get((ni, pni, final))
        if path is None:
            key = paths.key
            pid = key.pid if final is pni else LNET_PID
            path = paths.paths[ni, pni, final] = Path(key.kind, ni, pni, final, pid, ni.queue_for(pni.nid))
            path.source = key.source
            path.via = key.via
            path.cpt = key.cpt
            path.target = paths.dest.nid
            if key.kind not in ANSWERS:
                path.exact = key.bound
                path.prefers = not (key.bound or final.peer.multi_rail) and _becomes_known(key, path)
        return path

    def pick_untried(
        self, paths: PathSet, source: Nid | None, tried: Sequence[tuple[NI, PeerNi]], size: int
    ) -> Path:
        """The path for a message that failed: a pair not tried, while one is left. Raises LNetError."""
        self._parts.uncork()
        dest = paths.dest
        peer = dest.peer
        query = Query(peer, size, self._state.cpts, paths.key.cpt, self._state.settings.numa_range)
        targets = peer.members.values() if peer.multi_rail else (dest,)
        found = choose_untried(self._state.nets, targets, query, source, tried)
        if found is None:
            raise self._no_route(dest)
        path = self.path(paths, found[0], found[1], found[1])
        path.ni_by = path.peer_ni_by = NOT_TRIED
        return path

    def has_tried_all(self, peer: Peer, tried: Sequence[tuple[NI, PeerNi]]) -> bool:
        """Whether a message failed on all paths to a peer that need no gateway."""
        nets = self._state.nets
        return all(
            (ni, pni) in tried or not ni.open or ni.fatal
            for net in peer.nets.values()
            if net.net in nets
            for pni in net.nis
            for ni in nets[net.net].nis
        )

    # What becomes of a choice --------------------------------------------------------------------------

    def took(self, path: Path, msgs: Sequence[Msg], count: int) -> None:
        """Count so many messages that go by a path: by what decided it, and as turns of all that it uses."""
        state = self._state
        ni, pni = path.ni, path.peer_ni
        peer = pni.peer
        if path.joined:
            joined = min(path.joined, count)
            path.joined -= joined
            ni_by, pni_by = path.joined_by
            ni.choices[ni_by] += joined
            pni.choices[pni_by] += joined
            if joined < count:
                ni.choices[path.ni_by] += count - joined
                pni.choices[path.peer_ni_by] += count - joined
        else:
            ni.choices[path.ni_by] += count
            pni.choices[path.peer_ni_by] += count
        state.seq = ni.net.seq = ni.seq = state.seq + count
        peer.seq = pni.net.seq = pni.seq = peer.seq + count
        if path.among is not None and not path.among.free:
            path.among.take_turns(path)
        if self.trace is not None:
            self._note(self.trace, path, msgs)

    def _note(self, trace: LiveTrace, path: Path, msgs: Sequence[Msg]) -> None:
        now = self._state.clock()
        for msg in msgs:
            if not trace.note(path, msg, now):
                self.trace = None
                return

    def follow(self, every_message: bool) -> LiveTrace:
        """The trace of live traffic, which is kept for a while from now on."""
        now = self._state.clock()
        if self.trace is None:
            self._sessions += 1
            self.trace = LiveTrace(self._sessions, now)
        self.trace.wanted(now, every_message)
        return self.trace


def _by_load(criteria: tuple[Criterion, ...], query: Query) -> tuple[Criterion, ...]:
    return criteria if query.batch is None else (SAME_WAY, *criteria)


def _open(net: LocalNet) -> list[NI]:
    return [ni for ni in net.nis if ni.open]


def _candidates(
    left: Sequence[Any], settled: str, weights: Sequence[int], peer: Peer, stage_of: LocalNet | NI | None
) -> Candidates:
    return Candidates(left, settled, turns_of(left, weights, peer.turns, stage_of))


def _settle(
    candidates: Sequence[Any], criteria: Sequence[Criterion], query: Query, before: str = ""
) -> tuple[Sequence[Any], str]:
    """The candidates left, and the reason to name if nothing more decides."""
    left, by = narrow(candidates, criteria, query)
    return left, _settled(by or before, left)


def _settled(by: str, left: Sequence[Any]) -> str:
    return by or (ONLY_ONE if len(left) == 1 else FIRST_OF_EQUALS)


def _is_down(paths: PathSet) -> bool:
    """Whether the devices of all NIs that are left failed: the first criterion leaves such NIs last."""
    ni: NI = paths.fixed.ni if paths.fixed is not None else paths.locals[None].all[0]
    return ni.fatal


def _becomes_known(key: Key, path: Path) -> bool:
    """Whether a peer without multi-rail, the end of that path, hears from its NI only from now on.

    It does from the first; and from another one when that is gone, or has no way there any more.
    """
    known = path.final.preferred
    if known is None:
        return not key.ping or (key.source is not None and path.final is path.peer_ni)
    free = key.source is None and not key.ping
    return free and path.ni.nid != known and path.ni.nid not in path.final.preferred_nids


def _tell_case(record: Explanation | None, case: str) -> None:
    if record is not None:
        record.case = case


def no_way(net: Net, nets: str) -> str:
    """Why a net cannot be reached: this node is on others alone, and what can be done."""
    text = f"this node is on {nets}, and knows no gateway to {net}; add a net on {net} or a route to it"
    return f"{text}: 'lnetctl route add --net {net} --gateway NID'"
