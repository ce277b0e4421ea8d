"""Routing switched on and off: what is told to peers when, what still passes, what is kept of the buffers."""

from __future__ import annotations

import errno
import itertools
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from support.fabric import Clock
from support.parts import quiet_parts
from support.transits import sender, transit
from ulnet.core.cpt import CptTable
from ulnet.core.routing.pools import DEFAULT_COUNTS
from ulnet.core.routing.router import Router
from ulnet.core.routing.settings import RoutingSettings
from ulnet.core.routing.state import RoutingState
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError


class Bench:
    def __init__(self):
        self.clock = Clock()
        self.state = NodeState(self.clock, 1, b"", lambda: None, print, CptTable(), lambda: -1, quiet_parts())
        self.admitted = []
        self.told = []
        self.dropped = []
        self.left = []
        self.router = Router(self.state, RoutingSettings(), self.admitted.append, self.drop, self.tell)

    def tell(self):
        self.told.append(self.router.announced)

    def drop(self, one, why):
        self.dropped.append(why)
        self.left.append(one)
        self.router.gate.leave(one)

    def run(self, seconds):
        end = self.clock.now + seconds
        while (due := self.state.timers.next_deadline()) is not None and due <= end:
            self.clock.now = max(due, self.clock.now)
            self.state.timers.run(self.clock.now)
        self.clock.now = end


@pytest.fixture
def bench():
    return Bench()


@pytest.mark.requirement("RTR")
def test_peers_are_told_late_of_a_start_and_at_once_of_a_stop(bench):
    router = bench.router
    assert (router.state, bench.state.forwards, router.opened) == (RoutingState.DISABLED, False, False)
    router.enable(True)
    assert (router.state, bench.state.forwards, bench.told) == (RoutingState.STARTING, True, [])
    begun = bench.clock.now
    assert router.until == begun + 110
    bench.run(109)
    assert bench.told == []
    bench.run(2)
    assert (router.state, bench.told, router.until) == (RoutingState.ENABLED, [True], 0.0)
    router.enable(True)
    router.enable(False)
    assert (router.state, bench.state.forwards, bench.told) == (RoutingState.STOPPING, True, [True, False])
    assert router.until == bench.clock.now + 110
    bench.run(112)
    assert router.until == 0.0
    assert (router.state, bench.state.forwards) == (RoutingState.DISABLED, False)
    assert bench.state.timers.next_deadline() is None
    router.enable(False)
    router.enable(True)
    assert router.state is RoutingState.STARTING


def test_routing_that_stops_is_switched_on_at_once(bench):
    router, pni = bench.router, sender(1)
    router.enable(True)
    bench.run(111)
    router.set_buffers(tiny=64)
    router.gate.enter(passing := transit(pni))
    router.enable(False)
    bench.run(200)
    assert (router.state, bench.told) == (RoutingState.STOPPING, [True, False])
    router.enable(True)
    assert (router.state, bench.state.forwards) == (RoutingState.STARTING, True)
    assert router.gate.pools.counts == DEFAULT_COUNTS._replace(tiny=64)
    bench.run(109)
    assert bench.told == [True, False]
    bench.run(2)
    assert (router.state, bench.told) == (RoutingState.ENABLED, [True, False, True])
    router.gate.leave(passing)
    bench.run(1000)
    assert (router.state, bench.state.forwards, bench.dropped) == (RoutingState.ENABLED, True, [])


def test_a_stop_waits_for_what_passes_and_not_for_ever(bench):
    router, pni = bench.router, sender(1, credits=1)
    router.enable(True)
    passing, waiting = transit(pni), transit(pni)
    router.gate.enter(passing)
    router.gate.enter(waiting)
    router.enable(False)
    assert bench.told == []  # nobody was told that it routes
    bench.run(300)
    assert (router.state, bench.state.forwards) == (RoutingState.STOPPING, True)
    bench.run(40)
    assert (router.state, bench.state.forwards) == (RoutingState.DISABLED, False)
    assert bench.dropped == ["routing was disabled while it waited"]
    router.gate.leave(passing)
    assert len(router.gate) == 0


@pytest.mark.requirement("RTR")
def test_what_waits_for_credits_or_buffers_is_dropped_when_its_time_is_up(bench):
    router = bench.router
    router.enable(True)
    router.set_buffers(large=1)
    stuck, patient = sender(1, credits=1), sender(2)
    messages = [transit(stuck), transit(stuck), transit(patient, 1 << 20), transit(patient, 1 << 20, dest=2)]
    for one in messages:
        one.deadline = bench.clock.now + 5
        router.gate.enter(one)
    assert bench.admitted == [messages[0], messages[2]]
    bench.run(4)
    assert bench.dropped == []
    bench.run(3)
    assert bench.dropped == ["its time was up before it could be sent on"] * 2
    assert not router.gate.anything_waits
    for one in (messages[0], messages[2]):
        router.gate.leave(one)
    assert len(router.gate) == 0


def waiting(bench, count, time=inf):
    """A router at which so many wait for a credit, so long, and one has it; the messages are in order."""
    router, pni = bench.router, sender(1, credits=1)
    router.enable(True)
    messages = [transit(pni) for _ in range(count + 1)]
    for one in messages:
        one.deadline = bench.clock.now + time
        router.gate.enter(one)
    return pni, messages


def turns(bench):
    """How many were dropped in each turn of the loop, from now on."""
    counts, before = [], len(bench.left)
    while bench.state.work_pending:
        bench.state.run_deferred()
        counts.append(len(bench.left) - before)
        before = len(bench.left)
    return counts


@pytest.mark.parametrize("how", ["overdue", "stopped"])
def test_so_many_that_wait_are_dropped_in_a_turn(bench, how):
    """All were: 8,000 stopped the loop for a quarter of a second."""
    pni, messages = waiting(bench, 1000, 5 if how == "overdue" else inf)
    if how == "overdue":
        bench.run(5.5)
    else:
        bench.router.enable(False)
        bench.run(340)
    first = len(bench.left)
    assert max([first, *turns(bench)]) == 256
    assert bench.left == messages[1:], "in order, each once"
    assert not bench.router.gate.anything_waits
    bench.router.gate.leave(messages[0])
    assert (len(bench.router.gate), pni.rtr_credits, bench.router.gate.pools.in_use) == (0, 1, 0)


@pytest.mark.pure  # it replaces a method
def test_a_driver_that_raises_keeps_none_of_the_others_from_being_dropped(bench):
    _, messages = waiting(bench, 1000, 5)
    drop, count = bench.router._drop, itertools.count()

    def raises_once(one, why):
        if next(count) == 300:
            raise RuntimeError("a fault of this driver")
        drop(one, why)

    bench.router._drop = raises_once
    bench.run(5.5)
    turns(bench)
    assert len(bench.left) == len(messages) - 2


def test_what_passes_or_leaves_while_it_waits_to_be_dropped_is_let_alone(bench):
    pni, messages = waiting(bench, 1000, 5)
    bench.run(5.5)
    bench.admitted.clear()
    bench.router.gate.leave(messages[0])  # its credit goes to the next one that waits
    bench.router.gate.leave(messages[600])  # its connection died
    turns(bench)
    (passing,) = bench.admitted
    assert set(bench.left) == {*messages[1:]} - {passing, messages[600]}
    bench.router.gate.leave(passing)
    assert (len(bench.router.gate), pni.rtr_credits, bench.router.gate.pools.in_use) == (0, 1, 0)


@pytest.mark.parametrize("begun", [False, True])
def test_all_that_wait_are_dropped_when_the_node_ends(bench, begun):
    pni, messages = waiting(bench, 1000)
    if begun:
        bench.router.enable(False)
        bench.run(340)
    bench.state.running = False
    bench.router.close()
    assert len(bench.left) == (256 if begun else 1000), "while the NIs are there"
    assert turns(bench) == ([744] if begun else []), "nobody waits for a turn any more"
    assert bench.left == messages[1:]
    bench.router.gate.leave(messages[0])
    assert (len(bench.router.gate), pni.rtr_credits, bench.router.gate.pools.in_use) == (0, 1, 0)


def test_a_stop_ends_soon_after_the_last_message_has_passed(bench):
    router, pni = bench.router, sender(1)
    router.enable(True)
    passing = transit(pni)
    router.gate.enter(passing)
    router.enable(False)
    bench.run(120)
    assert router.state is RoutingState.STOPPING
    router.gate.leave(passing)
    bench.run(2)
    assert router.state is RoutingState.DISABLED


def test_numbers_of_buffers_last_while_the_node_routes(bench):
    router = bench.router
    router.set_buffers(tiny=64)
    assert router.gate.pools.counts == DEFAULT_COUNTS
    router.enable(True)
    router.set_buffers(tiny=64, large=16)
    assert router.gate.pools.counts == (64, DEFAULT_COUNTS.small, 16)
    router.set_buffers(large=0)
    assert router.gate.pools.counts == (64, DEFAULT_COUNTS.small, DEFAULT_COUNTS.large)
    with pytest.raises(LNetError) as refused:
        router.set_buffers(small=-1)
    assert refused.value.errno == errno.EINVAL
    router.enable(False)
    bench.run(200)
    router.enable(True)
    assert router.gate.pools.counts == DEFAULT_COUNTS


def test_a_buffer_that_comes_back_after_the_end_is_not_kept(bench):
    router, pni = bench.router, sender(1, credits=8)
    router.enable(True)
    stuck = [transit(pni, 1 << 20, dest=at) for at in range(2)]
    for one in stuck:
        router.gate.enter(one)
    router.enable(False)
    bench.run(3 * router._settings.settling_time + 2)
    assert (router.state, router.gate.pools.in_use) == (RoutingState.DISABLED, 2)
    for one in stuck:
        router.gate.leave(one)
    assert not any(pool._free for pool in router.gate.pools)
    router.enable(True)
    router.gate.enter(again := transit(pni, 1 << 20))
    router.gate.leave(again)
    assert sum(len(pool._free) for pool in router.gate.pools) == 1


def test_more_buffers_let_those_in_who_wait(bench):
    router, pni = bench.router, sender(1, credits=8)
    router.enable(True)
    router.set_buffers(tiny=1)
    first, second = transit(pni), transit(pni, dest=2)
    router.gate.enter(first)
    router.gate.enter(second)
    assert bench.admitted == [first]
    router.set_buffers(tiny=2)
    bench.state.run_deferred()
    assert bench.admitted == [first, second]


def test_a_node_that_ends_keeps_no_timer(bench):
    bench.router.enable(True)
    bench.router.close()
    assert bench.state.timers.next_deadline() is None
    assert not bench.state.forwards


def test_the_page_shows_the_table():
    script = Path(__file__).parents[3] / "scripts" / "routing_page.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
