"""When paths are looked at: sooner while one does not answer, and whatever else falls silent meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ulnet.bond.monitor import Monitor


class Bond:
    """What the monitor needs of a bonding NI without peers in use."""

    def __init__(self) -> None:
        self.now = 0.0
        self.config = SimpleNamespace(keepalive=1.0)
        self.peers: dict[object, object] = {}
        self.timers: dict[object, tuple[float, Callable[[], None]]] = {}
        self.looks: list[float] = []

    def clock(self) -> float:
        return self.now

    def after(self, seconds: float, call: Callable[[], None]) -> object:
        timer = object()
        self.timers[timer] = (self.now + seconds, call)
        return timer

    def cancel(self, timer: object) -> None:
        self.timers.pop(timer, None)

    def look(self) -> None:
        self.looks.append(self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for timer, (when, call) in list(self.timers.items()):
            if when <= self.now + 1e-9:
                del self.timers[timer]
                call()


@pytest.mark.parametrize("first", ["wanted", "doubted"])
def test_paths_that_fall_silent_again_and_again_put_off_no_look(first: str) -> None:
    bond = Bond()
    monitor = Monitor(cast(Any, bond))
    getattr(monitor, first)()
    for _ in range(20):
        bond.pass_time(0.1)
        monitor.doubted()
        monitor.wanted()
    assert len(bond.looks) >= 4
    assert len(bond.timers) == 1
    monitor.close()
    assert not bond.timers


def test_a_doubt_makes_the_next_look_come_sooner() -> None:
    bond = Bond()
    monitor = Monitor(cast(Any, bond))
    monitor.wanted()
    monitor.doubted()
    bond.pass_time(0.25)
    assert bond.looks == [0.25]
    monitor.wanted()
    bond.pass_time(0.5)
    assert bond.looks == [0.25]
    monitor.doubted()
    bond.pass_time(0.25)
    assert bond.looks == [0.25, 1.0]


@pytest.mark.requirement("BOND-health")
@pytest.mark.parametrize("lost", [False, True])
def test_a_keepalive_that_a_connection_took_along_is_sent_once_more(lost: bool) -> None:
    bond = Bond()
    asked: list[Callable[[None], None]] = []
    suspects: list[object] = []
    ni = SimpleNamespace(active=True)
    path = SimpleNamespace(ni=ni, nid="there", tries=0, probing=False, again=False, heard_at=-1.0)
    peer = SimpleNamespace(nid="peer", connected=True, paths=[path], asked=0)
    bond.peers = {"peer": peer}
    control = SimpleNamespace(ask=lambda ni, nid, seconds, done: asked.append(done))
    vars(bond).update(control=control, suspect=lambda peer, path: suspects.append(path))
    monitor, told = Monitor(cast(Any, bond)), cast(Any, (peer, path))
    monitor.check(*told)
    if lost:
        monitor.check(*told)  # the connection broke once more, with the keepalive under way
    assert len(asked) == 1
    asked[0](None)
    assert (len(asked), suspects) == ((2, []) if lost else (1, [path]))
    assert peer.asked == lost
    asked[-1](None)
    assert path in suspects
