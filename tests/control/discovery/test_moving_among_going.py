"""Messages that come over to a peer of which others go on already, in turns of the loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.fabric import Clock
from support.parts import quiet_parts
from ulnet.control.discovery.waiting import Waiting
from ulnet.core.cpt import CptTable
from ulnet.core.peer import Peer
from ulnet.core.state import NodeState
from ulnet.nid import Nid

BEFORE, NOW = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
MANY, MOVED, TURN = 100, 10, 64

pytestmark = pytest.mark.pure  # messages and what sends them are no real ones


class Desk:
    """Who has gone on, and who has failed; `held` are peers that are not known."""

    def __init__(self) -> None:
        self.state = NodeState(
            Clock(), 1, b"", lambda: None, lambda line: None, CptTable(), lambda: -1, quiet_parts()
        )
        self.gone_on: list[str] = []
        self.failed: list[str] = []
        self.held: set[Peer] = set()
        sender: Any = SimpleNamespace(
            relaunch=lambda msg: self.gone_on.append(msg.name),
            fail=lambda msg, number, text: self.failed.append(msg.name),
        )
        self.waiting = Waiting(self.state, sender, lambda peer: None, self.held.__contains__)

    def run(self) -> None:
        while self.state.work_pending:
            self.state.run_deferred()


def message(name: str, target: Nid) -> Any:
    return SimpleNamespace(name=name, target=target)


@pytest.mark.requirement("dyn-020")
@pytest.mark.parametrize("gone", [False, True], ids=["split", "gone"])
def test_those_that_come_over_are_behind_those_that_go_on(gone: bool) -> None:
    """They came before these: when the discovery failed, so many of these failed, and they went on."""
    desk = Desk()
    before, now = Peer(BEFORE), Peer(NOW)
    now.parked = [message(f"own {number}", NOW) for number in range(MANY)]
    before.parked = [message(f"moved {number}", BEFORE) for number in range(MOVED)]
    desk.waiting.known(now, None)
    assert len(desk.gone_on) == TURN and now.going
    desk.held.add(now)  # it is asked anew
    now.parked.append(message("late", NOW))
    now.members = {BEFORE: None, NOW: None}  # type: ignore[dict-item]
    if gone:
        peers: Any = desk.state.peers
        peers.learn = lambda nid: SimpleNamespace(peer=now)
        desk.waiting.move_on(before)
    else:
        desk.waiting.move(before, [now])
    desk.waiting.fail(now, 5, "nobody answers")
    desk.run()
    assert sorted(desk.failed) == sorted([*(f"moved {number}" for number in range(MOVED)), "late"])
    assert desk.gone_on == [f"own {number}" for number in range(MANY)]
    assert (before.parked, now.parked) == ([], [])
    assert desk.failed[-1] == "late", "who waited there since later fails later"
