"""Messages that wait for a peer that cannot be discovered fail in turns of the loop."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.status import LNetError
from ulnet.nid import Nid

SILENT = Nid.parse("10.0.0.9@tcp")
MOST = 64  # in a turn
MANY = 200


class Ended(list[tuple[int, int]]):
    """The numbers of PUTs that have ended, with their status."""

    def __init__(self, core: LNet) -> None:
        super().__init__()
        self._core = core

    def put(self, number: int) -> None:
        def told(event: Event) -> None:
            if event.kind is EventKind.SEND:
                self.append((number, event.status))

        core = self._core
        core.put(core.memory.md_bind(b"1", told, threshold=1), SILENT, 5, 7, ack=False)


@pytest.fixture
def ended() -> Ended:
    """Of a node whose peer has just been given up: the first of many PUTs to it have ended."""
    fabric = Fabric()
    core = fabric.node("10.0.0.1@tcp", discovery=True)
    ended = Ended(core)
    for number in range(MANY):
        ended.put(number)
    for _ in range(300):
        fabric.clock.now += 1.0
        fabric.step()
        if ended:
            return ended
    raise AssertionError("none has ended")


@pytest.mark.requirement("dyn-020")
def test_many_that_wait_for_a_silent_peer_fail_in_turns_of_64(ended: Ended) -> None:
    core = ended._core
    counts = [0]
    ended.put(MANY)  # whose discovery fails at once
    told: list[LNetError | None] = []
    core.discover(SILENT, done=lambda error, peer: told.append(error))
    core.discovery.stop()
    while core.state.work_pending:
        counts.append(len(ended))
        core.state.run_deferred()
    assert [number for number, _ in ended] == list(range(MANY + 1))
    assert max(after - before for before, after in pairwise([*counts, len(ended)])) <= MOST
    assert {status for _, status in ended[:MANY]} == {-errno.ECONNREFUSED}
    assert ended[MANY] == (MANY, -errno.ESHUTDOWN)
    assert len(told) == 1


def test_a_node_that_ends_does_not_leave_them_waiting(ended: Ended) -> None:
    ended._core.shutdown()
    assert [number for number, _ in ended] == list(range(MANY))
    assert ended._core.stats.msgs_alloc == 0
