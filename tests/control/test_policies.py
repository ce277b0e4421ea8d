"""Selection policies against applying the list from scratch (spec udsp.md §4), and their influence."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.comparisons import Comparisons
from support.examples import examples
from support.fabric import Fabric
from support.merging import merge
from ulnet.control.policy import MAX_RULES, Descriptor, Effect, enforce
from ulnet.control.policy.peer_rules import PeerRules
from ulnet.core.selection.paths import Key
from ulnet.core.status import LNetError
from ulnet.nid import Net, Nid, NidError
from ulnet.wire.lnet import HEADER_SIZE, MsgType

UNSET = 0xFFFFFFFF
PUT = int(MsgType.PUT)
NOTHING = UNSET, 0
LOCAL = [f"10.{net}.0.{host}@tcp{net or ''}" for net in range(3) for host in (1, 2)]
REMOTE = [f"10.{net}.1.{host}@tcp{net or ''}" for net in range(4) for host in (1, 2)]
NETS = ["tcp", "tcp1", "tcp*", "tcp[1-2]", "tcp[0,2]", "o2ib"]
SOURCES = [*LOCAL, "10.*.0.*@tcp*", "10.[0-1].0.1@tcp[0-1]", "10.1.0.[1-2]@tcp1"]
TARGETS = [*REMOTE, "10.*.1.[1-9/2]@tcp*", "10.[0-2].1.2@tcp[0-2]", "*.*.*.*@tcp1"]


NONE = st.none()
PAIR = st.tuples(st.sampled_from(SOURCES), st.sampled_from(TARGETS), NONE)
KEYS = st.one_of(
    PAIR,
    PAIR,
    st.tuples(st.sampled_from(NETS + SOURCES), NONE, NONE),
    st.tuples(NONE, st.sampled_from(NETS + TARGETS), NONE),
    st.tuples(*(st.none() | st.sampled_from([*NETS, *some]) for some in (SOURCES, TARGETS, TARGETS))),
)


def d(text):
    return None if text is None else Descriptor.parse(text)


def from_scratch(core):
    """The documents' walk: clear everything, then from the last rule to the first, each overwriting."""
    found = {}
    for local in core.nets.values():
        found[local] = NOTHING
        found.update(dict.fromkeys(local.nis, NOTHING))
    pnis = [pni for peer in core.peers for pni in peer.nis()]
    for pni in pnis:
        found[pni.net] = found[pni] = NOTHING
    lists = {pni: {} for pni in pnis}  # NID: priority and weight, None where the rule has none
    for one in reversed(list(core.policies.rules)):
        src, dst, rte = one.key
        if rte is not None:
            continue
        if src is not None and dst is not None:
            for pni in pnis:
                if dst.match_nid(pni.nid) and not src.is_net and is_in_force(core, one, pni):
                    here = one.priority, one.weight
                    lists[pni].update({nid: here for nid in core.nis if src.match_nid(nid)})
        elif src is not None:
            for local in core.nets.values():
                if src.match_net(local.net):
                    found[local] = one.priority, one.weight or 0
                found.update(
                    {ni: (one.priority, one.weight or 0) for ni in local.nis if src.match_nid(ni.nid)}
                )
        else:
            for pni in pnis:
                if dst.match_net(pni.net.net):
                    found[pni.net] = one.priority, one.weight or 0
                if dst.match_nid(pni.nid):
                    found[pni] = one.priority, one.weight or 0
    return found, lists


def matched_by(core, one):
    """What a rule is about at this moment."""
    src, dst, effect = one.src, one.dst, one.effect
    nids = [pni.nid for peer in core.peers for pni in peer.nis()]
    if effect is Effect.LOCAL_NET:
        return [net for net in core.nets if src.match_net(net)]
    if effect is Effect.LOCAL_NI:
        return [nid for nid in core.nis if src.match_nid(nid)]
    if effect is Effect.PEER_NET:
        nets = [net for peer in core.peers for net in peer.nets.values()]
        return [net for net in nets if dst.match_net(net.net)]
    if effect is Effect.PATHWAY:
        pairs = [(here, there) for here in core.nis for there in nids]
        return [(here, there) for here, there in pairs if src.match_nid(here) and dst.match_nid(there)]
    return [nid for nid in nids if dst.match_nid(nid)] if effect is not Effect.NOTHING else []


def is_in_force(core, pair, pni):
    """Of the pair rules with neither priority nor weight, only the first that matches a peer NI is."""
    plain = [
        one
        for one in core.policies.rules
        if one.src is not None
        and one.dst is not None
        and one.rte is None
        and (one.priority, one.weight) == (None, None)
        and not one.src.is_net
        and one.dst.match_nid(pni.nid)
    ]
    return pair not in plain or pair is plain[0]


def counted(core):
    """Of each rule, how much it matches, and for how much of that it decides."""
    census = core.policies.census()
    for _ in census.count():
        pass
    return [(census.matches[one], census.decides[one]) for one in core.policies.rules]


def test_a_rule_out_of_force_hides_none_behind_it():
    core = Fabric().node(*LOCAL[:2])
    core.peers.add(Nid.parse(REMOTE[0]), [])
    for source, priority in ((LOCAL[0], None), (LOCAL[1], None), ("10.*.0.*@tcp", 0)):
        core.policies.add(src=d(source), dst=d(REMOTE[0]), rte=None, priority=priority)
    pni = core.peers.by_nid[Nid.parse(REMOTE[0])]
    assert pni.preferred_nids == {Nid.parse(nid) for nid in LOCAL[:2]}


class World(RuleBasedStateMachine):
    """Rules, nets, NIs and peers come and go in any order."""

    @initialize()
    def begin(self):
        self.core = Fabric().node(*LOCAL[:3])
        self.core.peers.add(Nid.parse(REMOTE[0]), [Nid.parse(REMOTE[1]), Nid.parse(REMOTE[2])])

    @rule(
        key=KEYS,
        priority=st.none() | st.integers(0, 2),
        index=st.none() | st.integers(0, 5),
        weight=st.none() | st.integers(0, 3),
    )
    def add(self, key, priority, index, weight):
        src, dst, rte = key
        before = self.listed()
        number = self.errno_of(
            self.core.policies.add,
            src=d(src),
            dst=d(dst),
            rte=d(rte),
            priority=priority,
            index=index,
            weight=weight,
        )
        if number:
            assert number in (errno.EINVAL, errno.EALREADY)
            assert self.listed() == before

    def listed(self):
        return [(one.key, one.priority, one.weight) for one in self.core.policies.rules]

    def errno_of(self, call, *args, **more):
        try:
            call(*args, **more)
        except LNetError as refused:
            return refused.errno
        return 0

    @rule(index=st.integers(0, 8))
    def delete(self, index):
        missing = index >= len(self.core.policies.rules)
        assert self.errno_of(self.core.policies.delete, index) == (errno.ENOENT if missing else 0)

    @rule(nid=st.sampled_from(LOCAL).map(Nid.parse))
    def toggle_ni(self, nid):
        if nid in self.core.nis:
            self.core.del_ni(nid)
        else:
            self.core.add_ni(nid.net, nid)

    @rule(nid=st.sampled_from(REMOTE).map(Nid.parse))
    def hear_of(self, nid):
        self.core.peers.learn(nid)

    @rule(nids=st.lists(st.sampled_from(REMOTE).map(Nid.parse), min_size=1, max_size=4, unique=True))
    def tell_of_itself(self, nids):
        pni = self.core.peers.learn(nids[0])
        merge(self.core.peers, pni.peer, nids[0], nids[1:])

    @rule(
        nids=st.lists(st.sampled_from(REMOTE).map(Nid.parse), min_size=1, max_size=4, unique=True),
        delete=st.booleans(),
    )
    def configure(self, nids, delete):
        self.errno_of(self.core.peers.delete if delete else self.core.peers.add, nids[0], nids[1:])

    @invariant()
    def as_applied_afresh(self):
        found, lists = from_scratch(self.core)
        for one, actions in found.items():
            assert (one.priority, one.weight) == actions
        for pni, ranks in lists.items():
            assert pni.preferred_nids == ranks.keys()
            assert pni.pathways == {nid: rank or 0 for nid, (rank, _) in ranks.items()}
            assert pni.turn_lengths == {nid: weight for nid, (_, weight) in ranks.items() if weight}

    @invariant()
    def counted_one_by_one(self):
        """What rules match, and what others before them leave to them."""
        core = self.core
        left = {}
        for one, (matches, decides) in zip(core.policies.rules, counted(core), strict=True):
            about = matched_by(core, one)
            assert matches == len(about)
            if one.effect is Effect.PATHWAY:
                about = [pair for pair in about if is_in_force(core, one, core.peers.find_ni(pair[1]))]
            if one.effect is not Effect.GATEWAY:
                seen = left.setdefault(one.effect, set())
                assert decides == len(set(about) - seen)
                seen.update(about)

    @invariant()
    def gateways_in_order(self):
        """All rules for gateways hold."""
        for pni in self.core.peers.nis():
            rules = [one for one in self.core.policies.rules if one.effect is Effect.GATEWAY]
            assert pni.preferred_gateways == tuple(one.rte for one in rules if one.dst.match_nid(pni.nid))

    @invariant()
    def selection_honours_them(self):
        """Among healthy and equally loaded rails nothing but policy decides."""
        for peer in self.core.peers:
            nets = [(self.core.nets[net], there) for net, there in peer.nets.items() if net in self.core.nets]
            if not peer.multi_rail or not nets:
                continue
            chosen = self.core.selector.choose(next(peer.nis()), Key(PUT), HEADER_SIZE)
            told = self.core.explain(peer.primary_nid)
            assert (chosen.ni, chosen.peer_ni) == (told.ni, told.peer_ni)
            net_rank = lambda pair: (pair[1].priority, pair[0].priority)  # noqa: E731
            assert net_rank((told.ni.net, told.peer_ni.net)) == min(map(net_rank, nets))
            best = [pair for pair in nets if net_rank(pair) == min(map(net_rank, nets))]
            assert told.ni.priority == min(ni.priority for local, _ in best for ni in local.nis)
            ranks = [rank(pni, told.ni.nid) for pni in told.peer_ni.net.nis]
            assert rank(told.peer_ni, told.ni.nid) == min(ranks)


def rank(pni, nid):
    return pni.priority, nid not in pni.preferred_nids, pni.pathways.get(nid, 0)


TestPoliciesInAnyOrder = World.TestCase
TestPoliciesInAnyOrder.settings = settings(max_examples=examples(100), stateful_step_count=25, deadline=None)


def two_rails():
    core = Fabric().node("10.0.0.1@tcp", "10.0.0.2@tcp", "10.1.0.1@tcp1")
    peer = core.peers.add(Nid.parse("10.0.1.1@tcp"), [Nid.parse("10.0.1.2@tcp"), Nid.parse("10.1.1.1@tcp1")])
    return core, peer


def pair(core, target="10.0.1.1@tcp"):
    told = core.explain(Nid.parse(target))
    return str(told.ni.nid), str(told.peer_ni.nid)


@pytest.mark.requirement("cfg-130", "cfg-135", "cfg-140")
@pytest.mark.parametrize(
    ("src", "dst", "preferred"),
    [
        ("10.0.0.1@tcp", "10.0.1.2@tcp", {"10.0.1.2@tcp": {"10.0.0.1@tcp"}}),
        ("10.0.0.[1-2]@tcp", "10.0.1.2@tcp", {"10.0.1.2@tcp": {"10.0.0.1@tcp", "10.0.0.2@tcp"}}),
        (
            "10.0.0.1@tcp",
            "10.0.1.*@tcp",
            {"10.0.1.1@tcp": {"10.0.0.1@tcp"}, "10.0.1.2@tcp": {"10.0.0.1@tcp"}},
        ),
        (
            "10.*.0.*@tcp*",
            "10.1.1.*@tcp[1-3]",
            {"10.1.1.1@tcp1": {"10.0.0.1@tcp", "10.0.0.2@tcp", "10.1.0.1@tcp1"}},
        ),
        ("10.9.9.9@tcp", "10.0.1.1@tcp", {}),
    ],
)
def test_pairs_by_pattern(src, dst, preferred):
    core, peer = two_rails()
    core.policies.add(src=d(src), dst=d(dst))
    got = {str(pni.nid): {str(nid) for nid in pni.preferred_nids} for pni in peer.nis()}
    assert {nid: names for nid, names in got.items() if names} == preferred


@pytest.mark.requirement("cfg-125")
def test_a_pair_with_a_better_priority_goes_first():
    core, _ = two_rails()
    core.policies.add(src=d("10.0.0.1@tcp"), priority=0)
    core.policies.add(src=d("10.0.0.1@tcp"), dst=d("10.0.1.1@tcp"), priority=5)
    assert pair(core) == ("10.0.0.1@tcp", "10.0.1.1@tcp")
    core.policies.add(src=d("10.0.0.1@tcp"), dst=d("10.0.1.2@tcp"), priority=4)
    assert pair(core) == ("10.0.0.1@tcp", "10.0.1.2@tcp")
    core.policies.add(src=d("10.0.0.1@tcp"), dst=d("10.0.1.1@tcp"), priority=3)
    assert pair(core) == ("10.0.0.1@tcp", "10.0.1.1@tcp")
    (stage,) = (one for one in core.explain(Nid.parse("10.0.1.1@tcp")).stages if one.name == "peer NI")
    assert stage.decided_by == "UDSP pathway priority"
    core.policies.delete(2)
    (stage,) = (one for one in core.explain(Nid.parse("10.0.1.1@tcp")).stages if one.name == "peer NI")
    assert stage.decided_by == "UDSP preference"


@pytest.mark.requirement("cfg-150", "cfg-155")
def test_a_rule_before_another_overrides_it_and_without_a_priority_it_has_the_highest():
    core, _ = two_rails()
    ni = core.nis[Nid.parse("10.0.0.2@tcp")]
    core.policies.add(src=d("10.0.0.*@tcp"), priority=7)
    core.policies.add(src=d("10.0.0.2@tcp"))
    assert ni.priority == 7
    core.policies.delete(1)
    core.policies.add(src=d("10.0.0.2@tcp"), index=0)
    assert (ni.priority, pair(core)[0]) == (0, "10.0.0.2@tcp")
    assert [str(one) for one in core.policies.rules] == ["src 10.0.0.2@tcp", "src 10.0.0.[0-255]@tcp"]


@pytest.mark.requirement("cfg-150")
@pytest.mark.parametrize(("many", "one"), [("10.9.*.*@tcp9", "10.9.0.1@tcp9"), ("tcp*", "tcp9")])
def test_a_rule_for_peers_before_another_overrides_it(many, one):
    core = Fabric().node(*LOCAL[:1])
    pni = core.peers.learn(Nid.parse("10.9.0.1@tcp9"))
    about = pni.net if one == "tcp9" else pni
    core.policies.add(dst=d(many), priority=7)
    core.policies.add(dst=d(one), priority=3)
    assert about.priority == 7
    core.policies.delete(0)
    assert about.priority == 3


@pytest.mark.requirement("HLD-selection", "cfg-095")
def test_rules_outlive_what_they_match_and_apply_to_what_comes_later():
    core, peer = two_rails()
    for one in ("tcp1", "10.1.0.1@tcp1"):
        core.policies.add(src=d(one), priority=3)
    core.policies.add(dst=d("tcp1"), priority=4)
    core.policies.add(src=d("10.1.0.1@tcp1"), dst=d("10.1.1.*@tcp1"))
    nid, there = Nid.parse("10.1.0.1@tcp1"), Nid.parse("10.1.1.1@tcp1")
    core.del_ni(nid)
    assert peer.nets[there.net].nis[0].preferred_nids == frozenset()
    core.peers.delete(peer.primary_nid)
    core.add_ni(nid.net, nid)
    pni = core.peers.learn(there)
    assert (core.nets[nid.net].priority, core.nis[nid].priority) == (3, 3)
    assert (pni.net.priority, pni.preferred_nids) == (4, {nid})


@pytest.mark.requirement("cfg-095")
def test_deleting_a_rule_puts_what_it_overrode_in_force_again():
    core, peer = two_rails()
    pni = next(iter(peer.nis()))
    for src in ("10.0.0.1@tcp", "10.0.0.2@tcp"):
        core.policies.add(src=d(src), dst=d("10.0.1.1@tcp"), index=0)
    assert pni.preferred_nids == {Nid.parse("10.0.0.2@tcp")}
    core.policies.delete(0)
    assert pni.preferred_nids == {Nid.parse("10.0.0.1@tcp")}
    core.policies.clear()
    assert pni.preferred_nids == frozenset()


@pytest.mark.requirement("bck-025")
def test_a_peer_without_multi_rail_hears_from_the_first_ni_that_a_rule_names():
    core, _ = two_rails()
    pni = core.peers.learn(Nid.parse("10.0.1.9@tcp"))
    pni.preferred = Nid.parse("10.0.0.1@tcp")
    assert core.selector.choose(pni, Key(PUT), HEADER_SIZE).ni.nid == pni.preferred
    core.policies.add(src=d("10.0.0.2@tcp"), dst=d("10.0.1.9@tcp"))
    assert [str(core.selector.choose(pni, Key(PUT), HEADER_SIZE).ni.nid) for _ in range(3)] == [
        "10.0.0.2@tcp"
    ] * 3
    core.policies.clear()
    assert core.selector.choose(pni, Key(PUT), HEADER_SIZE).ni.nid == pni.preferred


def test_a_duplicate_is_refused_and_another_priority_replaces_the_first():
    core, _ = two_rails()
    add = core.policies.add
    add(src=d("tcp"))
    add(src=d("tcp"), priority=1, index=0)
    add(src=d("10.0.0.1@tcp"), dst=d("10.0.1.*@tcp"))
    add(dst=d("10.0.1.1@tcp5"), rte=d("10.0.1.2@tcp"))
    assert core.nets[Nid.parse("10.0.0.1@tcp").net].priority == 1
    for again in (
        {"src": d("tcp0"), "priority": 1},
        {"src": d("10.0.0.1@tcp"), "dst": d("10.0.1.[0-255]@tcp")},
        {"src": d("10.0.0.1@tcp"), "dst": d("10.0.1.*@tcp"), "priority": 2},
        {"dst": d("10.0.1.1@tcp5"), "rte": d("10.0.1.2@tcp")},
    ):
        with pytest.raises(LNetError, match="is there as idx") as refused:
            add(**again)
        assert refused.value.errno == errno.EALREADY
    assert len(core.policies.rules) == 3


@pytest.mark.parametrize(
    ("src", "dst", "rte", "more", "number"),
    [
        (None, None, None, {}, errno.EINVAL),
        ("tcp", None, "10.0.0.1@tcp", {}, errno.EINVAL),
        ("10.0.0.1@tcp", "10.0.0.1@tcp", "10.0.0.1@tcp", {}, errno.EINVAL),
        ("tcp", None, None, {"priority": -1}, errno.EINVAL),
        ("tcp", None, None, {"priority": UNSET}, errno.EINVAL),
        ("tcp", None, None, {"index": -1}, errno.EINVAL),
        ("tcp", None, None, {"weight": 0}, errno.EINVAL),
        ("tcp", None, None, {"weight": 1001}, errno.EINVAL),
        (None, "10.0.0.1@tcp5", "10.0.0.1@tcp", {"weight": 3}, errno.EINVAL),
    ],
)
def test_rules_that_cannot_be_are_refused(src, dst, rte, more, number):
    core, _ = two_rails()
    with pytest.raises(LNetError) as refused:
        core.policies.add(src=d(src), dst=d(dst), rte=d(rte), **more)
    assert refused.value.errno == number
    assert len(core.policies.rules) == 0


def test_rules_that_do_nothing_are_kept_and_known_as_such():
    core, _ = two_rails()
    for src, dst, rte in (
        ("tcp", "tcp1", None),
        ("tcp", "10.0.1.1@tcp", None),
        ("10.0.0.1@tcp", "tcp", None),
        (None, None, "10.0.1.1@tcp"),
        (None, "tcp5", "10.0.1.1@tcp"),
    ):
        core.policies.add(src=d(src), dst=d(dst), rte=d(rte))
    assert {one.effect for one in core.policies.rules} == {Effect.NOTHING}
    assert counted(core) == [(0, 0)] * 5
    core.policies.clear()
    for src, dst in (
        ("tcp", None),
        ("tcp7", None),
        ("10.0.0.*@tcp", None),
        (None, "tcp*"),
        (None, "10.9.9.9@tcp"),
    ):
        core.policies.add(src=d(src), dst=d(dst))
    core.policies.add(src=d("10.0.0.*@tcp"), dst=d("10.0.1.*@tcp"))
    assert [matches for matches, _ in counted(core)] == [1, 0, 2, 2, 0, 4]


def test_there_is_a_most_of_rules():
    core, _ = two_rails()
    rules = core.policies.rules
    for number in range(MAX_RULES):
        rules.add(d(f"tcp{number}"), None, None, None, None)
    with pytest.raises(LNetError) as refused:
        core.policies.add(src=d("o2ib"))
    assert refused.value.errno == errno.ENOSPC


@pytest.mark.requirement("HLD-expr")
@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("tcp", ["tcp"], ["tcp1", "o2ib"]),
        ("tcp*", ["tcp", "tcp65535"], ["o2ib"]),
        ("o2ib[1-5/2,9]", ["o2ib1", "o2ib3", "o2ib9"], ["o2ib", "o2ib2", "o2ib4", "tcp1"]),
        ("10.1.[2-4].*@tcp1", ["10.1.3.200@tcp1"], ["10.1.5.1@tcp1", "10.1.3.1@tcp", "fd00::1@tcp1"]),
        ("10.0.0.[1-9/4,200]@tcp*", ["10.0.0.5@tcp4", "10.0.0.200@tcp"], ["10.0.0.4@tcp"]),
        ("[1-0x1f]@gni", ["31@gni"], ["32@gni"]),
        ("fd00::/64@tcp", ["fd00::5@tcp"], ["fd01::5@tcp", "10.0.0.1@tcp"]),
    ],
)
def test_descriptors_match_what_they_say(text, matching, others):
    one = Descriptor.parse(text)
    assert Descriptor.parse(str(one)) == one
    for name in matching + others:
        if one.is_net:
            match = one.match_net(Net.parse(name))
        else:
            match = one.match_nid(Nid.parse(name))
            assert not one.match_net(Nid.parse(name).net)
        assert match == (name in matching), name


NO_DESCRIPTORS = (
    "banana",
    "*@tcp",
    "10.0.0@tcp",
    "10.0.0.1-3@tcp",
    "10.0.0.300@tcp",
    "tcp[3-1]",
    "tcp1[2-3]",
)


@pytest.mark.parametrize("text", ["", *NO_DESCRIPTORS, "x" * 2000])
def test_what_is_no_descriptor_is_refused_in_words(text):
    with pytest.raises(NidError, match=r"\w+ .*\w+"):
        Descriptor.parse(text)


@given(st.text("tcp[]*-,/.@0123456789") | st.text())
def test_any_text_is_a_descriptor_or_refused(text):
    try:
        one = Descriptor.parse(text)
    except NidError:
        return
    assert Descriptor.parse(str(one)) == one


def crowded(count):
    """A node that many NIDs were named to, and has rules soon."""
    core = Fabric().node(*LOCAL[:1])
    for at in range(count):
        assert core.peers.learn(Nid.parse(f"172.16.{at // 256}.{at % 256}@tcp9"))
    return core


def test_a_nid_that_appears_is_not_compared_with_each_rule(monkeypatch):
    """Whoever sends here names sources as it likes."""
    core = crowded(0)
    for at in range(MAX_RULES):
        core.policies.add(src=d("10.0.0.[1-9]@tcp"), dst=d(f"10.{at // 256}.{at % 256}.[1-9]@tcp*"))
    comparisons = Comparisons(monkeypatch)
    for at in range(3000):
        assert core.peers.learn(Nid.parse(f"172.16.{at // 256}.{at % 256}@tcp9"))
    assert comparisons.count < 10 * MAX_RULES
    pni = core.peers.learn(Nid.parse("10.3.7.9@tcp9"))
    assert pni.preferred_nids == {Nid.parse(LOCAL[0])}


@pytest.mark.pure
def test_rules_that_come_together_are_sorted_when_they_are_needed(monkeypatch):
    """A file of 1,024 rules took 13 s: each one sorted them all anew."""
    core = crowded(10)
    sizes: list[int] = []

    def counted(rules):
        sizes.append(len(list(rules)))
        return PeerRules(rules)

    monkeypatch.setattr(enforce, "PeerRules", counted)
    for at in range(300):
        core.policies.add(dst=d(f"10.0.{at % 256}.{at // 256}@tcp"), priority=1)
    assert max(sizes) == 1  # each alone, for whom it is about
    core.policies.add(dst=d("172.16.0.3@tcp9"), priority=7)
    assert sizes[-1] == 301
    assert core.peers.find_ni(Nid.parse("172.16.0.3@tcp9")).priority == 7


def test_peers_are_not_compared_with_each_rule_when_nis_change(monkeypatch):
    core = crowded(3000)
    for at in range(20):
        core.policies.add(src=d("10.*.0.[1-9]@tcp*"), dst=d(f"*.*.*.{at}@tcp*"))
    comparisons = Comparisons(monkeypatch)
    core.add_ni(Net.parse("tcp1"), Nid.parse(LOCAL[2]))
    core.del_ni(Nid.parse(LOCAL[0]))
    assert comparisons.count < 3 * 3000
    assert core.peers.find_ni(Nid.parse("172.16.3.19@tcp9")).preferred_nids == {Nid.parse(LOCAL[2])}
    assert not core.peers.find_ni(Nid.parse("172.16.3.20@tcp9")).preferred_nids


def test_rules_that_go_together_are_looked_for_together(monkeypatch):
    core = crowded(3000)
    for at in range(100):
        core.policies.add(dst=d(f"10.0.{at}.*@tcp*"), priority=1)
    comparisons = Comparisons(monkeypatch)
    core.policies.remove(list(core.policies.rules))
    assert comparisons.count < 20 * 3000
