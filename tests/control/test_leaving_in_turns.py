"""Requests that have left by an NI which is deleted end in turns of the loop."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from support.fabric import Fabric
from ulnet.core.event import Event, EventKind
from ulnet.core.md import Md
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

MOST = 64  # in a turn
MANY = 300
FAR = Nid.parse("10.0.0.2@tcp")


class Requests:
    """GETs that have left by the only NI, and whose answers do not come."""

    def __init__(self) -> None:
        self.fabric = Fabric()
        self.core = self.fabric.node(
            "10.0.0.1@tcp", "10.1.0.1@tcp1", tunables=NetTunables(peer_credits=1024, credits=2048)
        )
        self.statuses: Counter[int] = Counter()
        self.mds = [self.get() for _ in range(MANY)]
        sent = [msg for _, msg in self.fabric.wire]
        self.fabric.wire.clear()
        self.core.completed(sent)

    def get(self) -> Md:
        def told(event: Event) -> None:
            if event.kind is EventKind.REPLY:
                self.statuses[event.status] += 1

        md = self.core.memory.md_bind(bytearray(1), told, threshold=2)
        self.core.get(md, FAR, 5, 7)
        return md

    @property
    def ended(self) -> int:
        return sum(not md.linked for md in self.mds)

    def turn(self) -> None:
        self.core.tick(self.fabric.clock.now)


@pytest.fixture
def requests() -> Requests:
    requests = Requests()
    requests.core.del_ni(Nid.parse("10.0.0.1@tcp"))
    return requests


@pytest.mark.requirement("cfg-020")
def test_many_requests_of_an_ni_that_is_deleted_end_in_turns_of_64(requests: Requests) -> None:
    """All did in one: 8,000 took a tenth of a second."""
    counts = [0]
    while counts[-1] < MANY:
        requests.turn()
        counts.append(requests.ended)
    turns = [after - before for before, after in itertools.pairwise(counts)]
    assert max(turns) == MOST
    assert requests.statuses == {-100: MANY}
    requests.turn()
    assert not requests.core.state.work_pending


@pytest.mark.requirement("cfg-020")
def test_what_ends_before_its_turn_is_told_once_and_what_is_sent_anew_goes_on(requests: Requests) -> None:
    while not requests.ended:
        requests.turn()
    core = requests.core
    *_, last, anew = requests.mds
    core.memory.md_unlink(last, 5)
    anew.ni = core.nis[Nid.parse("10.1.0.1@tcp1")]  # as a PUT that is sent again
    while core.state.work_pending:
        requests.turn()
    assert [md for md in requests.mds if md.linked] == [anew]
    assert requests.statuses == {-5: 1, -100: MANY - 2}
