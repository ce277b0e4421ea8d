"""A path that was slow once is tried again when nothing was measured there for a minute."""

from __future__ import annotations

import pytest

from sim.test_degraded_rates import A0, A1, RATE, World
from ulnet.core.path_load import PathLoad
from ulnet.core.timers import Timer
from ulnet.nid import Nid

REQUEST = bytes(256)


class Rails(World):
    """The rail of A1 carries a tenth while the first bulk goes; its rate is known as that."""

    def __init__(self) -> None:
        super().__init__()
        self.set_rate("a.eth1", RATE / 10)
        self.bulk = self.stream(window=4)
        self.pass_time(5)
        self.bulk.window = 0
        self.pass_time(1)

    def timer(self) -> Timer | None:
        return self.a.core.health.rates._stale._timer

    def sent(self) -> tuple[int, int]:
        first, second = (self.a.core.nis[nid].stats.sent[1] for nid in (A0, A1))
        return first, second

    def messages(self, seconds: float) -> tuple[int, int]:
        """What each NI sends meanwhile."""
        before = self.sent()
        self.pass_time(seconds)
        after = self.sent()
        return after[0] - before[0], after[1] - before[1]

    def path_loads(self) -> list[PathLoad]:
        peer = self.a.core.peers.find(Nid.parse("10.0.0.2@tcp"))
        assert peer is not None
        return [
            *peer.path_loads.values(),
            *(one for pni in peer.members.values() for one in pni.path_loads.values()),
        ]


@pytest.mark.requirement("hlt-015")
def test_requests_use_a_rail_again_that_was_slow_once() -> None:
    world = Rails()
    assert min(one.rate for one in world.path_loads()) < RATE / 5
    world.set_rate("a.eth1", RATE)
    world.bulk.data, world.bulk.window = REQUEST, 1
    assert world.messages(30)[1] == 0, "the faster one has all of them, as was measured"
    world.pass_time(50)
    fast, slow = world.messages(30)
    assert slow > 0.8 * fast
    assert all(one.rate == 0 for one in world.path_loads())


def test_a_rail_that_is_slow_each_time_is_tried_less_and_less_often() -> None:
    world = Rails()
    world.bulk.data, world.bulk.window = bytes(1 << 20), 1
    tried = [world.messages(60)[1] for _ in range(12)]
    assert sum(tried[:4]), "it is tried"
    assert sum(tried[8:]) <= sum(tried[:4])
    assert sum(tried) <= 24, tried
    world.set_rate("a.eth1", RATE)
    for _ in range(16):
        if world.messages(60)[1] > 10:
            break
    else:
        pytest.fail("the rail is as fast as the other one, and is not used")


@pytest.mark.parametrize("phase", range(3))
def test_a_first_rate_between_two_looks_is_forgotten_too(phase: int) -> None:
    world = World()
    world.set_rate("a.eth1", RATE / 12)
    world.stream(window=2, source=A0, bound=True)
    world.pass_time(7 + phase)
    slow = world.stream(window=2, source=A1, bound=True)
    world.pass_time(3)
    for stream in world.streams:
        stream.window = 0
    world.pass_time(1)
    peer = world.a.core.peers.find(Nid.parse("10.0.0.2@tcp"))
    assert peer is not None
    assert min(one.rate for one in peer.path_loads.values()) > 0
    assert slow.window == 0
    world.pass_time(80)
    assert all(one.rate == 0 for one in peer.path_loads.values())


def test_a_rate_in_use_is_kept() -> None:
    world = Rails()
    world.bulk.window = 4
    world.pass_time(100)
    for one in world.path_loads():
        assert one.rate or not one.outstanding
    assert max(one.rate for one in world.path_loads()) > 0.8 * RATE


def test_at_rest_nothing_is_looked_at() -> None:
    world = Rails()
    world.pass_time(80)
    assert all(one.rate == 0 for one in world.path_loads())
    assert world.timer() is None
    world.bulk.window = 4
    world.pass_time(5)
    timer = world.timer()
    assert timer is not None
    world.a.core.health.close()
    assert timer.call is None
