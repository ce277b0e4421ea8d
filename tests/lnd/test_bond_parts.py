"""The parts of bonding by themselves: standby, load balancing, registry, configuration."""

from __future__ import annotations

import errno
import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.bond.balance import take, weights_of
from ulnet.bond.config import BondConfig, bond_config
from ulnet.bond.hello import INCOMING, PeerState, Stamp, is_older, next_incarnation, stamp_of
from ulnet.bond.registry import Registry
from ulnet.bond.standby import TABLE, Place, Seen, Standby
from ulnet.core.status import LNetError
from ulnet.nid import Net, Nid
from ulnet.wire.bond import Configuration, Mode, Policy, Register, Resolve, SlaveEntry

TCP, TCP1 = Net.parse("tcp"), Net.parse("tcp1")
BOND = Net.parse("bond0")


# Standby ------------------------------------------------------------------------------------------------


def test_the_tables_are_complete() -> None:
    assert set(TABLE) == set(itertools.product(Place, Seen))
    assert set(INCOMING) == set(itertools.product(PeerState, Stamp))
    assert all(reaction.save and reaction.next is PeerState.CONNECTED for reaction in INCOMING.values())


@pytest.mark.requirement("BOND-modes")
def test_standby_fails_over_again_and_returns_to_the_default() -> None:
    standby = Standby(failback=True)
    seen = []
    for works in ([1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 1, 1], [1, 1, 1]):
        standby.look([bool(one) for one in works])
        seen.append(standby.active)
    assert seen == [0, 1, 2, 2, 0]


@pytest.mark.requirement("BOND-modes")
def test_standby_told_to_stay_prefers_the_default_at_the_next_failure() -> None:
    standby = Standby(failback=False)
    seen = []
    for works in ([0, 1, 1], [1, 1, 1], [1, 0, 1], [0, 0, 0], [0, 0, 1]):
        standby.look([bool(one) for one in works])
        seen.append(standby.active)
    assert seen == [1, 1, 0, 0, 2]


@pytest.mark.requirement("BOND-util")
def test_a_chosen_slave_keeps_the_traffic_until_it_fails() -> None:
    standby = Standby(failback=True)
    standby.force(2)
    standby.look([True, True, True])
    assert standby.active == 2
    standby.look([True, True, False])
    assert standby.active == 0


@given(st.booleans(), st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=30))
def test_the_active_slave_works_if_any_does(failback: bool, states: list[list[bool]]) -> None:
    standby = Standby(failback)
    for works in states:
        before = standby.active
        moved = standby.look(works)
        assert moved == (standby.active != before)
        assert works[standby.active] or not any(works)
        if works[before]:
            assert standby.active == (0 if failback and works[0] else before)
        elif works[0]:
            assert standby.active == 0
        assert not standby.look(works)  # a second look changes nothing


# HELLO stamps -------------------------------------------------------------------------------------------


def test_incarnations_grow_and_are_never_nothing() -> None:
    assert next_incarnation(5) == 6
    assert next_incarnation(0xFFFFFFFF) == 1
    assert is_older(5, 6) and not is_older(6, 6) and not is_older(7, 6)
    assert is_older(0xFFFFFFFF, 1) and not is_older(1, 0xFFFFFFFF)
    assert not is_older(5, 5 + (1 << 20))  # of another life
    assert [stamp_of(target, 7) for target in (0, 7, 8)] == [Stamp.ZERO, Stamp.CURRENT, Stamp.OTHER]


# Load balancing -----------------------------------------------------------------------------------------


class Way:
    """What a balancer sees of a path."""

    def __init__(self, weight: int = 1, rate: float = 0.0) -> None:
        self.weight = weight
        self.rate = rate
        self.outstanding = 0
        self.had = 0.0


def carried(policy: Policy, ways: list[Any], count: int, size: int = 1 << 20) -> list[int]:
    times = Counter(id(take(policy, ways, size)) for _ in range(count))
    return [times[id(way)] for way in ways]


@pytest.mark.requirement("BOND-modes")
def test_round_robin_takes_turns() -> None:
    ways: list[Any] = [Way(), Way(), Way()]
    order = [ways.index(take(Policy.ROUND_ROBIN, ways, size)) for size in (1, 9, 1, 9, 1, 9)]
    assert sorted(order[:3]) == sorted(order[3:]) == [0, 1, 2]


@pytest.mark.requirement("BOND-modes")
def test_static_weights_share_by_weight() -> None:
    assert carried(Policy.WEIGHTS, [Way(4), Way(1)], 100) == [80, 20]


@pytest.mark.requirement("BOND-modes")
def test_dynamic_weights_share_by_observed_rate() -> None:
    assert carried(Policy.DYNAMIC, [Way(rate=4e8), Way(rate=1e8)], 100) == [80, 20]


def test_a_path_of_unknown_rate_is_tried() -> None:
    assert carried(Policy.DYNAMIC, [Way(rate=4e8), Way()], 100) == [50, 50]
    assert carried(Policy.CONGESTION, [Way(), Way()], 10) == [10, 0]  # nothing is ever under way here


@pytest.mark.requirement("BOND-modes")
def test_congestion_decides_by_what_is_under_way() -> None:
    fast: Any = Way(rate=4e8)
    slow: Any = Way(rate=1e8)
    fast.outstanding = 2 << 20
    ways: list[Any] = [fast, slow]
    assert take(Policy.CONGESTION, ways, 1 << 20) is fast
    fast.outstanding = 4 << 20  # type: ignore[misc]
    assert take(Policy.CONGESTION, ways, 1 << 20) is slow


@given(st.lists(st.integers(1, 100), min_size=2, max_size=6), st.integers(0, 1000))
def test_one_that_comes_back_makes_up_for_nothing(weights: list[int], away: int) -> None:
    ways: list[Any] = [Way(weight) for weight in weights]
    carried(Policy.WEIGHTS, ways[1:], away)
    round_ = sum(weights)
    shares = carried(Policy.WEIGHTS, ways, 3 * round_)
    assert abs(shares[0] - 3 * weights[0]) <= 2 * weights[0] + 2


@pytest.mark.requirement("BOND-modes")
@pytest.mark.parametrize(
    ("pairs", "ours", "theirs", "shares"),
    [
        (((0, 0), (1, 1)), (4, 1), (4, 1), [4, 1]),  # both say the same of two rails: 4:1, not 16:1
        (((0, 0), (1, 1)), (4, 1), (1, 1), [4, 1]),  # where the peer gives none, ours count
        (((0, 0), (1, 1)), (1, 1), (4, 1), [4, 1]),
        (((0, 0), (1, 1)), (1, 3), (4, 1), [4, 1]),  # the peer knows its slaves better
        (((0, 0), (0, 1), (1, 0), (1, 1)), (4, 1), (4, 1), [16, 4, 4, 1]),  # on one net each end shares
        (((0, 0), (1, 0)), (3, 2), (1,), [1.5, 1]),
        (((0, 0), (0, 1), (1, 2)), (2, 1), (1, 1, 1), [1, 1, 1]),  # what leaves by one is shared there
        (((0, 0), (1, 1)), (1, 1), (0, 5), [1, 5]),  # nobody gets nothing
        ((), (1,), (1,), []),
    ],
)
def test_weights_of_both_ends_make_those_of_paths(
    pairs: tuple[tuple[int, int], ...], ours: tuple[int, ...], theirs: tuple[int, ...], shares: list[float]
) -> None:
    assert weights_of(pairs, ours, theirs) == pytest.approx(shares)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=8))
def test_shares_follow_weights(weights: list[int]) -> None:
    ways = [Way(weight) for weight in weights]
    for share, weight in zip(carried(Policy.WEIGHTS, ways, sum(weights)), weights, strict=True):
        assert abs(share - weight) <= len(weights)


# Registry -----------------------------------------------------------------------------------------------

A = Nid.parse("10.0.0.1@tcp")
CONFIG = Configuration(Nid.of(BOND, A.address), (SlaveEntry(A), SlaveEntry(Nid.parse("10.1.0.1@tcp1"))))


@pytest.mark.requirement("BOND-bds")
def test_a_registry_answers_with_the_newest_it_was_told() -> None:
    registry = Registry(TCP)
    asker = Nid.parse("10.0.0.2@bond0")
    assert registry.resolve(Resolve(1, CONFIG.nid, asker)).status == errno.ENOENT
    assert registry.register(Register(2, 100, CONFIG), A).status == 0
    newer = Configuration(CONFIG.nid, CONFIG.slaves, Mode.LOADBALANCE)
    assert registry.register(Register(3, 101, newer), CONFIG.slaves[1].nid).status == 0
    assert registry.register(Register(4, 100, CONFIG), A).status == 0  # was overtaken
    answer = registry.resolve(Resolve(5, CONFIG.nid, asker))
    assert (answer.request, answer.status, answer.incarnation) == (5, 0, 101)
    assert answer.configuration == newer
    assert registry.find(CONFIG.nid) == newer
    assert (len(registry), registry.lookups, registry.registrations) == (1, 2, 3)


def test_a_registry_refuses_strangers_and_other_first_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(TCP)
    assert registry.register(Register(1, 1, CONFIG), Nid.parse("10.0.0.9@tcp")).status == errno.EACCES
    assert Registry(TCP1).register(Register(1, 1, CONFIG), A).status == errno.EINVAL
    monkeypatch.setattr("ulnet.bond.registry.MAX_REGISTERED", 0)
    assert registry.register(Register(1, 1, CONFIG), A).status == errno.ENOSPC
    assert not len(registry)


# Configuration ------------------------------------------------------------------------------------------

LOCAL = [
    Nid.parse(text) for text in ("0@lo", "10.0.0.1@tcp", "10.0.1.1@tcp", "10.1.0.1@tcp1", "9.9.9.9@bond3")
]


def config(*slaves: str, **more: Any) -> BondConfig:
    return bond_config(BOND, slaves, LOCAL, **more)


@pytest.mark.requirement("BOND-config")
@pytest.mark.parametrize(
    ("slaves", "found"),
    [
        (("10.1.0.1@tcp1",), ["10.1.0.1@tcp1"]),
        (("*@tcp0", "*@tcp1"), ["10.0.0.1@tcp", "10.0.1.1@tcp", "10.1.0.1@tcp1"]),
        (("@tcp1", "@tcp0"), ["10.1.0.1@tcp1", "10.0.0.1@tcp", "10.0.1.1@tcp"]),
        (("10.0.[0-1].1@tcp", "*@tcp"), ["10.0.0.1@tcp", "10.0.1.1@tcp"]),
        (("10.0.1.1@tcp", "*@tcp*"), ["10.0.1.1@tcp", "10.0.0.1@tcp", "10.1.0.1@tcp1"]),
    ],
)
def test_slaves_by_nid_and_pattern(slaves: tuple[str, ...], found: list[str]) -> None:
    made = config(*slaves)
    assert [str(nid) for nid in made.slaves] == found
    assert made.nid == Nid.of(BOND, made.slaves[0].address)


def test_what_is_left_out_is_the_default() -> None:
    assert config("@tcp0") == BondConfig(BOND, tuple(LOCAL[1:3]), (1, 1), Mode.STANDBY, Policy.NONE)
    assert config("@tcp0", mode="loadbalance").policy is Policy.ROUND_ROBIN
    weighted = config("@tcp0", mode="loadbalance", weights={"10.0.1.1@tcp": 3})
    assert (weighted.policy, weighted.weights) == (Policy.WEIGHTS, (1, 3))


@pytest.mark.requirement("BOND-ni")
@pytest.mark.parametrize(
    ("slaves", "more", "words"),
    [
        ((), {}, "at least one slave"),
        (("0@lo",), {}, "0@lo is the loopback NI, which cannot be a slave"),
        (("9.9.9.9@bond3",), {}, "9.9.9.9@bond3 is a bonding NI, which cannot be a slave"),
        (("*@bond3",), {}, "is a bonding NI"),
        (("10.0.0.9@tcp",), {}, "slave 10.0.0.9@tcp: no NI of this node is meant; it has 10.0.0.1@tcp,"),
        (("banana",), {}, "slave 'banana'"),
        (("@tcp",), {"mode": "both"}, "mode 'both' does not exist: write standby or loadbalance"),
        (("@tcp",), {"policy": "weights"}, "policy 'weights' is for mode loadbalance"),
        (("@tcp",), {"mode": "loadbalance", "policy": "best"}, "policy 'best' does not exist"),
        (("@tcp",), {"weights": (1,)}, "1 weights for 2 slaves"),
        (("@tcp",), {"weights": (0, 1)}, "weight 0 is out of range"),
        (("@tcp",), {"weights": {"10.1.0.1@tcp1": 1}}, "10.1.0.1@tcp1, which is no slave here"),
        (("@tcp",), {"keepalive": 0}, "keepalive 0 is out of range"),
        (("@tcp",), {"servers": ("10.0.0.1@bond0",)}, "by the NID of one of its slaves"),
        (("@tcp",), {"servers": tuple(f"10.0.0.{n}@tcp" for n in range(17))}, "17 bonding data servers"),
    ],
)
def test_what_cannot_be_is_refused(slaves: tuple[str, ...], more: dict[str, Any], words: str) -> None:
    with pytest.raises(LNetError) as refused:
        config(*slaves, **more)
    assert words in refused.value.text


def test_headers_of_two_sizes_cannot_share_a_bond() -> None:
    local = [Nid.parse("fd00::1@tcp"), Nid.parse("10.1.0.1@tcp1")]
    with pytest.raises(LNetError, match="either all have IPv6 addresses or none"):
        bond_config(BOND, ["@tcp", "@tcp1"], local)
    assert str(bond_config(BOND, ["@tcp"], local).nid) == "fd00::1@bond"
    with pytest.raises(LNetError, match="net tcp is no bonding net"):
        bond_config(TCP, ["@tcp"], local)
