"""Path selection against a naive implementation; explanations; load (spec selection.md §3–§6)."""

from __future__ import annotations

import errno
import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fabric import Fabric, Recorder
from ulnet.core.cpt import CptTable, Partition
from ulnet.core.md import MdOption
from ulnet.core.msg import Msg
from ulnet.core.path_load import MIN_SAMPLE_BYTES, InFlight, PathLoad
from ulnet.core.peer import PeerFlag
from ulnet.core.selection import Explanation
from ulnet.core.selection.candidates import EQUAL_WITHIN
from ulnet.core.selection.paths import Key
from ulnet.core.status import LNetError
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import HEADER_SIZE, Header, MsgType

PUT = int(MsgType.PUT)
NUMA = {
    (0, 0): 10,
    (0, 1): 20,
    (0, 2): 30,
    (1, 0): 20,
    (1, 1): 10,
    (1, 2): 20,
    (2, 0): 30,
    (2, 1): 20,
    (2, 2): 10,
}
TABLE = CptTable([Partition((node,), (node,)) for node in range(3)], NUMA)


def world(rng, nets=3, nis=3, peer_nis=3):
    """One node and one multi-rail peer with random standing and load, every other time with weights."""
    fabric = Fabric()
    own = [f"10.{net}.0.{i}@tcp{net}" for net in range(nets) for i in range(1, rng.randint(1, nis) + 1)]
    core = fabric.node(*own, cpts=TABLE)
    there = [
        f"10.{net}.1.{i}@tcp{net}" for net in range(nets) for i in range(1, rng.randint(0, peer_nis) + 1)
    ]
    there = there or ["10.0.1.1@tcp0"]
    peer = core.peers.add(Nid.parse(there[0]), [Nid.parse(nid) for nid in there[1:]])
    few = lambda *values: rng.choice(values)  # noqa: E731
    weigh = (lambda: few(0, 0, 1, 2, 3)) if rng.random() < 0.5 else (lambda: 0)
    for local in core.nets.values():
        local.priority, local.weight = few(0, 1, 0xFFFFFFFF), weigh()
        local.seq = rng.randint(0, 3)
        for ni in local.nis:
            ni.dev_cpt = few(-1, 0, 1, 2)
            ni.health, ni.fatal, ni.weight = few(1000, 1000, 900), few(False, False, True), weigh()
            ni.priority, ni.tx_credits, ni.seq = few(0, 0xFFFFFFFF), rng.randint(-2, 2), rng.randint(0, 3)
            if rng.random() < 0.5:
                peer.path_loads[ni] = flow_of(rng)
    for remote in peer.nets.values():
        remote.priority, remote.seq, remote.weight = few(0, 1), rng.randint(0, 3), weigh()
        for pni in remote.nis:
            pni.health, pni.priority, pni.weight = few(1000, 1000, 500), few(0, 1), weigh()
            pni.turn_lengths = {nid: weight for nid in core.nis if (weight := weigh())}
            pni.tx_credits, pni.tx_queued_bytes, pni.seq = (
                rng.randint(-2, 2),
                rng.randint(0, 3),
                rng.randint(0, 3),
            )
            pni.preferred_nids = frozenset(nid for nid in core.nis if rng.random() < 0.3)
            for ni in core.nis.values():
                if rng.random() < 0.5:
                    pni.path_loads[ni] = flow_of(rng)
    core.state.generation.invalidate("the test")
    return core, peer


def flow_of(rng):
    path_load = PathLoad()
    path_load.outstanding = rng.choice([0, 1000, 100_000])
    path_load.rate = rng.choice([0.0, 1e6, 1.4e6, 5e6])
    return path_load


def kept(items, key):
    least = min(map(key, items), default=None)
    return [item for item in items if key(item) == least]


def total(weights):
    weights = list(weights)
    return sum(weight or 1 for weight in weights) if any(weights) else 0


class Naive:
    """The documents' words, with sorted(). `sent` counts a round's messages of every weighted stage."""

    def __init__(self, core, peer, balance):
        self.core, self.peer, self.balance = core, peer, balance
        self.sent = defaultdict(Counter)

    def choose(self, size, cpt):
        """A local NI and a peer NI; the message is taken to be sent."""
        core, peer = self.core, self.peer
        nets = [(core.nets[net], remote) for net, remote in peer.nets.items() if net in core.nets]
        nets = kept(nets, self.net_standing)
        candidates = kept([ni for local, _ in nets for ni in local.nis], lambda ni: self.ni_standing(ni, cpt))
        nis = {net: kept(net[0].nis, lambda ni: self.ni_standing(ni, cpt)) for net in nets}
        nis = {net: [ni for ni in nis[net] if ni in candidates] for net in nets}  # NIs of all nets compete
        nets = [net for net in nets if nis[net]]
        weights = {
            net: net[1].weight or net[0].weight or total(self.ni_weight(ni) for ni in nis[net])
            for net in nets
        }
        if any(weights.values()) and len(nets) > 1:
            net = self.turn("nets", weights)
            candidates = nis[net]
        elif self.balance == "documents" or len(nets) == 1:
            net = sorted(nets, key=lambda pair: (pair[1].seq, pair[0].seq))[0]
            candidates = nis[net]
        weights = {ni: self.ni_weight(ni) for ni in candidates}
        if any(weights.values()) and len(candidates) > 1:
            ni = self.turn(candidates[0].net, weights)
        else:
            ni = self.lightest_ni(candidates, size)
        pnis = self.pathways(ni)
        weights = {pni: pni.turn_lengths.get(ni.nid, pni.weight) for pni in pnis}
        if any(weights.values()) and len(pnis) > 1:
            return ni, self.turn(ni, weights)
        return ni, self.lightest_pni(ni, pnis, size)

    def net_standing(self, pair):
        local, remote = pair
        healthy = [ni.health for ni in local.nis if not ni.fatal]
        peer_health = max(pni.health for pni in remote.nis)
        return (not healthy, -peer_health, remote.priority, -max(healthy, default=0), local.priority)

    def ni_standing(self, ni, cpt):
        distance = NUMA.get((cpt, ni.dev_cpt), 30)
        return (ni.fatal, -ni.health, ni.priority, max(distance, self.core.settings.numa_range))

    def pathways(self, ni):
        def standing(pni):
            return (-pni.health, pni.priority, ni.nid not in pni.preferred_nids)

        return kept(self.peer.nets[ni.net.net].nis, standing)

    def ni_weight(self, ni):
        return ni.weight or total(pni.turn_lengths.get(ni.nid, pni.weight) for pni in self.pathways(ni))

    def turn(self, stage, weights):
        sent = self.sent[stage]
        if all(sent[one] >= (weight or 1) for one, weight in weights.items()):
            sent.clear()
        one = next(one for one, weight in weights.items() if sent[one] < (weight or 1))
        sent[one] += 1
        return one

    def lightest_ni(self, candidates, size):
        if self.balance == "documents":
            return sorted(candidates, key=lambda ni: (-ni.tx_credits, ni.seq))[0]
        path_loads = self.peer.path_loads
        known = [path_loads.get(ni) for ni in candidates] if len(candidates) > 1 else []
        key = lambda ni: (expected(path_loads.get(ni), known, size), -ni.tx_credits, ni.seq)  # noqa: E731
        return sorted(candidates, key=key)[0]

    def lightest_pni(self, ni, pnis, size):
        if self.balance == "documents":
            return sorted(pnis, key=lambda pni: (pni.tx_queued_bytes, -pni.tx_credits, pni.seq))[0]
        known = [pni.path_loads.get(ni) for pni in pnis]
        return sorted(
            pnis, key=lambda p: (expected(p.path_loads.get(ni), known, size), -p.tx_credits, p.seq)
        )[0]


def expected(path_load, path_loads, size):
    fastest = max((one.rate for one in path_loads if one), default=0.0)
    rate = (path_load.rate if path_load else 0.0) or fastest
    if rate * EQUAL_WITHIN >= fastest:
        rate = fastest
    outstanding = path_load.outstanding if path_load else 0
    if not path_load:
        return size / fastest if fastest else 0.0
    return (outstanding + size) / rate if rate else float(outstanding)


@pytest.mark.requirement("HLD-order", "cfg-145", "snd-005", "snd-025", "snd-030", "snd-035", "snd-060")
@pytest.mark.parametrize("balance", ["expected", "documents"])
@pytest.mark.parametrize("seed", range(50))
def test_ten_thousand_choices_agree_with_a_naive_model_and_with_their_explanation(balance, seed):
    rng = random.Random(seed)
    compared = sum(compare(rng, balance) for _ in range(12))
    assert compared > 90


@pytest.mark.requirement("HLD-order", "snd-060")
@given(rng=st.randoms(use_true_random=False), balance=st.sampled_from(["expected", "documents"]))
def test_the_order_of_criteria_is_that_of_a_naive_model(rng, balance):
    compare(rng, balance)


def compare(rng, balance):
    """Ten choices in one random world with a peer that can be reached, against the model; how many."""
    core, peer = world(rng)
    if not any(net in core.nets for net in peer.nets):
        return 0
    core.selector.balance = balance
    core.settings.numa_range = rng.choice([0, 0, 20, 30])
    dest = next(peer.nis())
    model = Naive(core, peer, balance)
    for _ in range(10):  # the standing part is kept between these
        size = rng.choice([0, 100, 1 << 20])
        cpt = rng.choice([-1, 0, 1, 2])
        key = Key(PUT, pid=LNET_PID, cpt=cpt)
        chosen = core.selector.choose(dest, key, size)
        assert (chosen.ni, chosen.peer_ni) == model.choose(size, cpt)
        by = chosen.ni_by, chosen.peer_ni_by  # one path is chosen many times, for this reason or that
        told = Explanation()
        same = core.selector.choose(dest, key, size, told)
        assert (same.ni, same.peer_ni, same.ni_by, same.peer_ni_by) == (chosen.ni, chosen.peer_ni, *by)
        check(told, chosen)
        core.selector.took(chosen, [Msg(Header(PUT))], 1)
        for ni in core.nis.values():
            ni.tx_credits = rng.randint(-2, 2)
        for pni in peer.nis():
            pni.tx_queued_bytes = rng.randint(0, 3)
    return 10


def survivors(stage):
    if not stage.steps:
        return stage.candidates
    return [one for one, cost in stage.steps[-1].costs if cost == stage.steps[-1].least]


def check(told, chosen):
    """Each stage's steps explain who was left out, and lead to the winner."""
    for stage in told.stages:
        left = list(stage.candidates)
        decided = ""
        for step in stage.steps:
            assert [one for one, _ in step.costs] == left
            keep = [one for one, cost in step.costs if cost == step.least]
            assert keep
            if len(keep) < len(left):
                decided = step.criterion
            left = keep
        assert stage.winner is left[0]
        assert stage.decided_by == decided
    stages = {stage.name: stage for stage in told.stages}
    assert (stages["local NI, by load"].winner, told.stages[-1].winner) == (chosen.ni, chosen.peer_ni)
    assert told.stages[-1].candidates == survivors(stages["peer NI"])


def test_explaining_changes_nothing_and_names_what_decided():
    fabric = Fabric()
    a, b = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1"), fabric.node("10.0.0.2@tcp", "10.1.0.2@tcp1")
    target, other = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")
    a.peers.add(target, [other])
    told = a.explain(target, size=1 << 20)
    assert (told.ni.nid, told.peer_ni.nid) == (Nid.parse("10.0.0.1@tcp"), target)
    assert told.case.startswith("Multi-Rail peer")
    assert a.explain(target).ni is told.ni
    md = a.memory.md_bind(bytes(1000), None, threshold=2)
    a.put(md, target, 5, 7)
    told = a.explain(target)
    assert told.peer_ni.nid == other
    assert next(stage for stage in told.stages if "load" in stage.name).decided_by == "expected completion"
    fabric.run()  # nothing is attached there: no ACK comes
    a.memory.md_unlink(md)
    assert a.explain(target).stages[-3].decided_by == "sequence"
    assert a.explain(Nid.parse("10.0.0.77@tcp")).peer_ni.nid == Nid.parse("10.0.0.77@tcp")
    assert a.peers.find(Nid.parse("10.0.0.77@tcp")) is None
    assert a.explain(Nid.parse("10.0.0.77@tcp")).case.startswith("peer that was not discovered yet")
    a.peers.add(Nid.parse("10.0.0.78@tcp"), multi_rail=False)
    assert a.explain(Nid.parse("10.0.0.78@tcp")).case == "peer without Multi-Rail"
    for bad in ("0@lo", "<?>"):
        with pytest.raises(LNetError, match="no peer's interface"):
            a.explain(Nid.parse(bad))
    with pytest.raises(LNetError, match="source NID"):
        a.explain(target, source=Nid.parse("10.9.9.9@tcp"))
    assert b.stats.drop_count == 1


@pytest.mark.requirement("snd-070", "snd-075")
def test_a_source_binds_a_request_to_its_ni():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", "10.0.0.3@tcp")
    fabric.node("10.0.0.2@tcp")
    target = Nid.parse("10.0.0.2@tcp")
    a.peers.add(target)
    free = [a.explain(target).ni.nid]
    bound = Nid.parse("10.0.0.3@tcp")
    for _ in range(4):
        a.put(a.memory.md_bind(b"1", None, threshold=1), target, 5, 7, ack=False, source=bound)
        fabric.run()
    assert a.nis[bound].stats.sent[1] == 4
    assert free == [Nid.parse("10.0.0.1@tcp")]


@pytest.mark.requirement("snd-070")
def test_a_source_on_another_net_than_the_nid_named_reaches_the_peers_best_nid_there():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = fabric.node("10.0.0.2@tcp", "10.1.0.2@tcp1", "10.1.0.3@tcp1")
    target, source, best = (Nid.parse(nid) for nid in ("10.0.0.2@tcp", "10.1.0.1@tcp1", "10.1.0.3@tcp1"))
    peer = a.peers.add(target, [Nid.parse("10.1.0.2@tcp1"), best])
    a.health.values.set_peer(a.peers.find_ni(Nid.parse("10.1.0.2@tcp1")), 500)
    explained = a.explain(target, source=source)
    assert (explained.ni.nid, explained.peer_ni.nid) == (source, best)
    a.put(a.memory.md_bind(b"1", None, threshold=1), target, 5, 7, ack=False, source=source)
    fabric.run()
    assert a.nis[source].stats.sent[1] == 1
    assert a.peers.find_ni(best).stats.sent[1] == 1
    assert b.stats.drop_count == 1  # nobody waits for it there
    got = Recorder()
    a.get(a.memory.md_bind(bytearray(4), got), target, 5, 7, source=source, exact=True)
    fabric.run()
    assert got[0].status == -errno.EHOSTUNREACH  # that very NID was meant
    peer.mark(remove=PeerFlag.MULTI_RAIL)
    with pytest.raises(LNetError, match="is not on tcp: name one that is"):
        a.explain(target, source=source)


def test_health_and_policies_void_kept_choices():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1")
    target = Nid.parse("10.0.0.2@tcp")
    peer = a.peers.add(target, [Nid.parse("10.1.0.2@tcp1")])
    dest = next(peer.nis())
    assert a.selector.choose(dest, Key(PUT), HEADER_SIZE).peer_ni.nid == target
    a.peers.delete(target, [Nid.parse("10.1.0.2@tcp1")])
    a.del_ni(Nid.parse("10.1.0.1@tcp1"))
    a.add_ni(Nid.parse("10.0.0.9@tcp").net, Nid.parse("10.0.0.9@tcp"))
    seen = {a.selector.choose(dest, Key(PUT), HEADER_SIZE).ni.nid}
    a.nis[Nid.parse("10.0.0.1@tcp")].seq = 99
    seen.add(a.selector.choose(dest, Key(PUT), HEADER_SIZE).ni.nid)
    assert {str(nid) for nid in seen} == {"10.0.0.1@tcp", "10.0.0.9@tcp"}


# Load ------------------------------------------------------------------------------------------------


def test_a_flow_measures_only_what_says_something():
    path_load = PathLoad()
    small, sample, large = (
        InFlight(path_load, PathLoad(), size) for size in (100, MIN_SAMPLE_BYTES, 1 << 20)
    )
    small.begin(0.0)
    small.answered(5.0)
    assert path_load.rate == 0  # small messages say nothing
    now = 10.0
    for seconds in (9.0, 0.5, 0.5):  # the first also timed how the connection came up
        sample.begin(now)
        now += seconds
        sample.answered(now)
        assert path_load.rate == 0
    sample.begin(now)
    sample.answered(now + 0.5)
    assert path_load.rate == MIN_SAMPLE_BYTES * 2
    large.begin(40.0)
    large.begin(40.0)
    large.answered(41.0)
    large.abandon()
    assert MIN_SAMPLE_BYTES * 2 < path_load.rate < 1 << 20
    assert path_load.outstanding == 0


def test_eight_messages_on_rails_of_four_to_one_finish_near_the_ideal():
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1")
    fast, slow = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")
    peer = a.peers.add(fast, [slow])
    for ni in a.nis.values():
        path_load = peer.path_loads[ni] = PathLoad()
        path_load.rate = 4e6 if ni.nid.net == fast.net else 1e6
    for _ in range(8):
        a.put(a.memory.md_bind(bytes(1 << 20), None, threshold=2), fast, 5, 7)
    split = [peer.path_loads[ni].outstanding >> 20 for ni in a.nis.values() if not ni.nid.is_lo]
    ideal = 8 / 5
    assert ideal / max(split[0] / 4, split[1] / 1) >= 0.85
    a.selector.balance = "documents"


def test_every_flight_lands_whatever_becomes_of_the_message():
    rng = random.Random(7)
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = fabric.node("10.0.0.2@tcp", "10.1.0.2@tcp1")
    target = Nid.parse("10.0.0.2@tcp")
    peer = a.peers.add(target, [Nid.parse("10.1.0.2@tcp1")])
    me = b.memory.me_attach(5, match_bits=7)
    options = MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE
    b.memory.md_attach(me, bytearray(1 << 20), None, options=options)
    mds = []
    for _ in range(300):
        kind = rng.randrange(4)
        bits = rng.choice([7, 8])
        if kind == 0:
            mds.append(a.memory.md_bind(bytes(rng.choice([0, 10, 99999])), None, threshold=2))
            a.put(mds[-1], target, 5, bits)
        elif kind == 1:
            a.put(a.memory.md_bind(bytes(10), None, threshold=1), target, 5, bits, ack=False)
        elif kind == 2:
            mds.append(a.memory.md_bind(bytearray(500), None, threshold=2))
            a.get(mds[-1], target, 5, bits)
        elif mds:
            a.memory.md_unlink(mds.pop(rng.randrange(len(mds))))
        fabric.clock.now += 0.01
        for _ in range(rng.randrange(4)):
            fabric.step(lambda msg: rng.random() < 0.2)
    fabric.run()
    for md in list(a.memory.mds.values()):
        if md.me is None:
            a.memory.md_unlink(md)
    assert all(path_load.outstanding == 0 for path_load in peer.path_loads.values())
    assert all(path_load.outstanding == 0 for pni in peer.nis() for path_load in pni.path_loads.values())
