"""The router checker's pace: at once, then at intervals on each net, one question at a time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.parts import quiet_parts
from ulnet.core.routing.checks import Checks
from ulnet.core.routing.settings import RoutingSettings
from ulnet.core.timers import Timers
from ulnet.nid import Net, Nid

GATEWAY = Nid.parse("10.0.0.9@tcp")
TCP, TCP1 = Net.parse("tcp"), Net.parse("tcp1")


class Bench:
    def __init__(self, interval=60, answers=True):
        self.now = 1000.0
        self.nets = [TCP, TCP1]
        self.interval = interval
        self.answers = answers
        self.asked = []
        self.failed = []
        self.timers = Timers(lambda: None, self.failed.append, quiet_parts())
        self.checks = Checks(
            self.timers, lambda: self.now, self.ask, lambda nid: self.nets, lambda: self.interval
        )

    def ask(self, gateway, net):
        self.asked.append((round(self.now), net))
        if self.answers:
            self.checks.answered(gateway)

    def run(self, seconds):
        """Time goes by, to each deadline."""
        end = self.now + seconds
        while (due := self.timers.next_deadline()) is not None and due <= end:
            self.now = max(due, self.now)
            self.timers.run(self.now)
        self.now = end


@pytest.mark.requirement("RTR")
def test_a_gateway_is_asked_at_once_and_then_on_each_net():
    bench = Bench()
    bench.checks.watch(GATEWAY)
    bench.run(200)
    assert [net for _, net in bench.asked].count(TCP) == 4
    assert [net for _, net in bench.asked].count(TCP1) == 4
    assert bench.asked[0] == (1000, TCP)
    assert bench.checks.find(GATEWAY).checked
    when = [time for time, net in bench.asked if net == TCP]
    assert all(59 <= b - a <= 62 for a, b in pairwise(when))


def test_no_second_question_before_the_first_has_ended():
    bench = Bench(answers=False)
    bench.checks.watch(GATEWAY)
    bench.run(300)
    assert len(bench.asked) == 1
    assert not bench.checks.find(GATEWAY).checked
    bench.checks.answered(GATEWAY)
    bench.run(2)
    assert len(bench.asked) == 2


@pytest.mark.parametrize("none", [0, -1])
def test_without_interval_only_the_first_check_is_made(none):
    RoutingSettings().change({"alive_router_check_interval": none})
    bench = Bench(interval=none)
    bench.checks.watch(GATEWAY)
    bench.run(1000)
    assert len(bench.asked) == 1
    assert bench.timers.next_deadline() is None
    bench.interval = 10
    bench.checks.interval_changed()
    bench.run(30)
    assert len(bench.asked) > 4
    bench.interval = none
    bench.checks.interval_changed()
    bench.run(1000)
    assert bench.timers.next_deadline() is None


def test_a_gateway_that_is_forgotten_is_left_alone():
    bench = Bench()
    bench.checks.watch(GATEWAY)
    bench.run(1)
    asked = len(bench.asked)
    bench.checks.forget(GATEWAY)
    bench.checks.forget(GATEWAY)
    bench.checks.answered(GATEWAY)
    bench.run(1000)
    assert len(bench.asked) == asked
    assert bench.timers.next_deadline() is None
    assert bench.checks.find(GATEWAY) is None


def test_nets_come_and_go():
    bench = Bench()
    bench.nets = []
    bench.checks.watch(GATEWAY)
    bench.run(10)
    assert bench.asked == []
    bench.nets = [TCP1]
    bench.checks.watch(GATEWAY)
    bench.run(1)
    assert bench.asked == [(1010, TCP1)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_interval_is_that_of_each_net_however_many_there_are(count):
    bench = Bench(interval=1)
    bench.nets = [Net.parse(f"tcp{number}") for number in range(count)]
    bench.checks.watch(GATEWAY)
    bench.run(60)
    for net in bench.nets:
        assert 59 <= [asked for _, asked in bench.asked].count(net) <= 61


def test_the_next_net_is_asked_as_soon_as_the_one_before_has_answered():
    bench = Bench(answers=False)
    bench.checks.watch(GATEWAY)
    bench.run(3)
    assert [net for _, net in bench.asked] == [TCP]
    assert bench.timers.next_deadline() is None  # nothing to do but wait
    bench.checks.answered(GATEWAY)
    bench.run(0.3)
    assert [net for _, net in bench.asked] == [TCP, TCP1]


def test_a_check_that_took_longer_than_the_interval_is_not_made_up_for():
    bench = Bench(interval=10, answers=False)
    bench.nets = [TCP]
    bench.checks.watch(GATEWAY)
    bench.run(95)
    bench.answers = True
    bench.checks.answered(GATEWAY)
    bench.run(9)
    assert len(bench.asked) == 2  # the one that was due, and no others in a row
    bench.run(10)
    assert len(bench.asked) == 3
