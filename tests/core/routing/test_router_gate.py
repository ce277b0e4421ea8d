"""Router credits and buffers: conserved whatever comes, goes, waits and is dropped; nobody starves."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.examples import examples
from support.transits import sender, transit
from ulnet.core.routing import gate, pools
from ulnet.core.routing.gate import MAX_INSIDE, MAX_WAITING, Gate
from ulnet.core.routing.pools import DEFAULT_COUNTS, BufferPool, Counts, Pools
from ulnet.core.status import LNetError

CREDITS = 2
SIZES = (0, 1, 4096, 4097, 1 << 20)


class Bench:
    """A gate, and what it admitted."""

    def __init__(self, counts=None):
        self.pools = Pools(1)
        self.pools.resize(counts or Counts(1, 1, 1))
        self.later = []
        self.admitted = []
        self.gate = Gate(self.pools, self.admitted.append, lambda call, one: self.later.append((call, one)))

    def settle(self):
        while self.later:
            call, one = self.later.pop(0)
            call(one)


class Traffic(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.bench = Bench(Counts(3, 2, 1))
        self.senders = [sender(number, CREDITS) for number in range(3)]
        self.inside = []

    @rule(who=st.integers(0, 2), size=st.sampled_from(SIZES), dest=st.integers(1, 3))
    def come(self, who, size, dest):
        one = transit(self.senders[who], size, dest)
        one.from_router = not who
        one.beside = not who and dest == 1  # a gateway
        assert self.bench.gate.enter(one)
        self.inside.append(one)

    @precondition(lambda self: self.inside)
    @rule(at=st.integers(0, 1000))
    def go(self, at):
        """Passed through, or dropped while it waited."""
        one = self.inside.pop(at % len(self.inside))
        self.bench.gate.leave(one)
        self.bench.gate.leave(one)  # once is enough

    @rule(counts=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)))
    def resize(self, counts):
        self.bench.pools.resize(Counts(*counts))
        self.bench.gate.resized()

    @rule()
    def time_passes(self):
        self.bench.settle()

    @invariant()
    def all_is_accounted_for(self):
        bench = self.bench
        assert len(bench.gate) == len(self.inside)
        with_buffer = [one for one in self.inside if one.buffer is not None]
        assert bench.pools.in_use == len(with_buffer)
        waiting = list(bench.gate.waiting())
        assert len(waiting) + len(with_buffer) == len(self.inside)
        assert len({id(one.buffer) for one in with_buffer}) == len(with_buffer)
        for one in with_buffer:
            assert len(one.buffer) >= one.hdr.payload_length
            pool = bench.pools.fitting(one.hdr.payload_length, one.cpt)
            assert not any(one.buffer is free for free in pool._free)
        for pni in self.senders:
            mine = [one for one in self.inside if one.sender is pni]
            assert pni.rtr_credits == CREDITS - len(mine)
            held = [one for one in mine if one.has_credit]
            assert len(held) == min(len(mine), CREDITS)  # nobody waits for a credit that is there
        for pool in bench.pools:
            assert pool.min_credits <= pool.credits <= pool.count
            assert not any(pool._may_take(dest) for dest in pool._queues)  # nor for a buffer
            assert pool.in_use + len(pool._free) <= max(pool.count, pool.in_use)
            assert pool.waiting == len(pool.queued())
            assert sum(pool._held.values()) == pool.in_use - pool._beside
        beside = sum(one.beside for one in with_buffer)
        assert sum(pool._beside for pool in bench.pools) == beside

    def teardown(self):
        for one in self.inside:
            self.bench.gate.leave(one)
        self.bench.settle()
        assert len(self.bench.gate) == 0
        assert self.bench.pools.in_use == 0
        assert all(pni.rtr_credits == CREDITS for pni in self.senders)
        assert not self.bench.gate._queues


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


@pytest.mark.requirement("RTR")
def test_the_oldest_waits_least():
    bench, pni = Bench(), sender(1, credits=1)
    first, second, third = (transit(pni) for _ in range(3))
    for one in (first, second, third):
        bench.gate.enter(one)
    assert bench.admitted == [first]
    assert (pni.rtr_credits, pni.min_rtr_credits) == (-2, -2)
    bench.gate.leave(first)
    assert bench.admitted == [first]  # never inside the caller's stack
    bench.settle()
    assert bench.admitted == [first, second]
    bench.gate.leave(second)
    bench.settle()
    assert bench.admitted[-1] is third


@pytest.mark.requirement("RTR")
def test_a_peer_that_is_stuck_holds_no_more_than_its_senders_credits():
    bench = Bench(Counts(CREDITS + 1, 1, 1))
    stuck, lively = sender(1, CREDITS), sender(2, CREDITS)
    for _ in range(10):
        bench.gate.enter(transit(stuck))
    for _ in range(5):
        one = transit(lively, dest=2)
        bench.gate.enter(one)
        assert one in bench.admitted
        bench.gate.leave(one)
    assert len(bench.gate) == 10


@pytest.mark.requirement("RTR")
def test_a_node_that_takes_nothing_holds_no_more_than_half_of_the_buffers():
    bench = Bench(Counts(1, 8, 1))
    stuck = [transit(sender(number, credits=8), 100, dest=1) for number in range(8)]
    for one in stuck:
        bench.gate.enter(one)
    assert len(bench.admitted) == 4
    lively = [transit(sender(9, credits=8), 100, dest=2) for _ in range(6)]
    for one in lively:
        bench.gate.enter(one)
    assert len(bench.admitted) == 6, "of what the first left half"
    for one in lively:
        assert one in bench.admitted
        bench.gate.leave(one)
        bench.settle()
    assert sum(one in bench.admitted for one in stuck) == 4
    bench.gate.leave(stuck[0])
    bench.settle()
    assert stuck[4] in bench.admitted


@pytest.mark.requirement("RTR")
def test_nodes_that_take_nothing_leave_buffers_for_others():
    """Each could have half of them, so two had all."""
    bench = Bench(Counts(1, 64, 1))
    for dest in (1, 2, 3):
        for number in range(64):
            bench.gate.enter(transit(sender(64 * dest + number, credits=8), 100, dest=dest))
    assert len(bench.admitted) == 32 + 16 + 8
    for dest in (4, 5, 6):
        one = transit(sender(9, credits=8), 100, dest=dest)
        bench.gate.enter(one)
        assert one in bench.admitted


@pytest.mark.requirement("RTR")
@pytest.mark.pure  # it replaces a method
def test_of_thousands_that_may_have_no_more_few_are_looked_at(monkeypatch):
    monkeypatch.setattr(pools, "_LOOKED_AT", 16)
    bench, looked_at = Bench(Counts(1, 101, 1)), []
    for _ in range(2):
        for dest in range(1, 101):
            bench.gate.enter(transit(sender(dest, credits=8), 100, dest))
    assert len(bench.admitted) == 100, "one each, and one is left"
    monkeypatch.setattr(BufferPool, "_may_take", lambda pool, dest: looked_at.append(dest))
    pool = bench.pools.by_cpt[0][1]
    for _ in range(7):
        assert pool.serve_next() is None
    assert len(looked_at) == 7 * 16
    assert len(set(looked_at)) == 100, "each has its turn"


@pytest.mark.requirement("RTR")
@pytest.mark.pure  # it replaces a method
def test_while_all_buffers_are_taken_no_destination_is_looked_at(monkeypatch):
    """Each message that passed looked at all of those that wait: 1.65 ms with 7,800."""
    bench, looked_at = Bench(Counts(1, 1, 1)), []
    for dest in range(1, 40):
        bench.gate.enter(transit(sender(dest, credits=1), 100, dest))
    monkeypatch.setattr(BufferPool, "_may_take", lambda pool, dest: looked_at.append(dest))
    assert bench.pools.by_cpt[0][1].serve_next() is None
    assert looked_at == []


def from_router(pni, size=0, dest=1, *, gateway=True):
    one = transit(pni, size, dest)
    one.from_router = True
    one.beside = gateway
    return one


@pytest.mark.requirement("RTR")
def test_what_a_router_sends_needs_no_buffer_of_the_count():
    """Each of two routers has messages for the other: it takes them, however full it is."""
    bench = Bench(Counts(1, 1, 1))
    bench.gate.enter(transit(sender(1), 1 << 20))
    bench.gate.enter(transit(sender(2), 1 << 20, dest=2))
    assert len(bench.admitted) == 1
    other = sender(3, credits=2)
    beside = [from_router(other, 1 << 20) for _ in range(3)]
    for one in beside:
        bench.gate.enter(one)
    assert bench.admitted[1:] == beside[:2]
    pool = bench.pools.by_cpt[0][2]
    assert (pool.credits, pool.min_credits, pool.waiting) == (-1, -1, 1)
    bench.gate.leave(beside[0])
    bench.settle()
    assert bench.admitted[-1] is beside[2]


@pytest.mark.requirement("RTR")
def test_those_who_only_say_that_they_route_have_no_more_beside_the_count_than_it_is():
    bench = Bench(Counts(1, 1, 2))
    pool = bench.pools.by_cpt[0][2]
    liars = [from_router(sender(number), 1 << 20, gateway=False) for number in range(1, 9)]
    for one in liars:
        bench.gate.enter(one)
    assert bench.admitted == liars[:3]  # two beside the count, and the one buffer that a destination may have
    assert (pool.in_use, pool.waiting) == (3, 5)
    gateway = from_router(sender(9), 1 << 20)
    bench.gate.enter(gateway)
    assert bench.admitted[-1] is gateway
    for one in [*liars, gateway]:
        bench.gate.leave(one)
        bench.settle()
    assert (pool.in_use, pool.waiting, pool._beside, pool.credits) == (0, 0, 0, 2)


@pytest.mark.requirement("RTR")
def test_a_router_of_which_nothing_passes_gets_more_credits_up_to_a_bound():
    bench, other, end = Bench(Counts(8, 1, 1)), sender(1, CREDITS), sender(2, CREDITS)
    for _ in range(20):
        bench.gate.enter(from_router(other))
        bench.gate.enter(transit(end))
    counts = []
    for _ in range(6):
        bench.settle()
        counts.append(sum(one.sender is other for one in bench.admitted))
        bench.gate.relieve()
    assert counts == [2, 2, 4, 6, 8, 8]
    assert sum(one.sender is end for one in bench.admitted) == CREDITS
    inside = [*bench.admitted, *bench.gate.waiting()]
    for one in inside:
        bench.gate.leave(one)
    bench.settle()
    for _ in range(5):
        bench.gate.enter(from_router(other))
    assert other.rtr_credits == CREDITS - 5
    assert len(list(bench.gate.waiting())) == 3  # what it had beyond its credits was for the time being


@pytest.mark.requirement("RTR")
def test_more_credits_are_for_those_of_which_nothing_passes():
    bench, other = Bench(), sender(1, CREDITS)
    for _ in range(8):
        bench.gate.enter(from_router(other))
    for _ in range(4):
        bench.gate.relieve()
        bench.gate.leave(bench.admitted.pop(0))
        bench.settle()
    assert len(bench.admitted) == CREDITS


def test_the_smallest_buffer_that_holds_a_message():
    pools = Pools(2)
    tiny, small, large = pools.by_cpt[1]
    fitting = [pools.fitting(size, 1) for size in SIZES]
    assert fitting == [tiny, small, small, large, large]
    assert [pool.count for pool in pools.by_cpt[0]] == [count // 2 for count in DEFAULT_COUNTS]


def test_messages_without_payload_do_not_wait_without_bound():
    bench, pni = Bench(), sender(1, credits=0)
    pni.rtr_credits = -MAX_WAITING
    assert not bench.gate.enter(transit(pni))
    assert len(bench.gate) == 0
    assert pni.rtr_credits == -MAX_WAITING


@pytest.mark.pure
def test_messages_without_payload_of_many_senders_do_not_wait_without_bound_either(monkeypatch):
    """Forty senders that wait to pass had 655,000 messages there."""
    monkeypatch.setattr(gate, "MAX_INSIDE", 40)
    bench = Bench()
    senders = [sender(number, credits=2) for number in range(60)]
    for _ in range(20):
        for pni in senders:
            bench.gate.enter(transit(pni))
    assert 120 <= len(bench.gate) <= 160  # what is beyond the bound has credits of its sender
    honest = sender(99, credits=2)
    assert [bench.gate.enter(transit(honest)) for _ in range(3)] == [True, True, False]
    assert MAX_INSIDE > 2 * MAX_WAITING  # one alone may have as many as before


def test_sizes_are_checked_and_zero_is_the_default():
    now = Counts(5, 6, 7)
    assert Pools.checked(None, 0, 9, now) == (5, DEFAULT_COUNTS.small, 9)
    with pytest.raises(LNetError, match="tiny_buffers -1 is out of range"):
        Pools.checked(-1, None, None, now)


def test_memory_is_taken_when_needed_and_reused():
    bench, pni = Bench(Counts(1, 1, 4)), sender(1, credits=8)
    large = bench.pools.by_cpt[0][2]
    for _ in range(3):
        one = transit(pni, 1 << 20)
        bench.gate.enter(one)
        bench.gate.leave(one)
    assert len(large._free) == 1
    bench.pools.keep_memory(False)
    assert large._free == []
