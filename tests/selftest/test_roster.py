"""What a console says to many nodes: few are asked in a turn of the loop, and no more than 256 at once."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from selftest.conftest import until
from ulnet.core.status import LNetError
from ulnet.dlc.model_selftest import TestAdd
from ulnet.nid import Nid
from ulnet.selftest import roster as rosters
from ulnet.selftest.members import Batch, Group, Member
from ulnet.selftest.roster import Roster
from ulnet.selftest.sessions import ASK_AT_ONCE
from ulnet.wire.selftest import Message
from ulnet.wire.selftest_bodies import REPLIES, Request
from ulnet.wire.selftest_values import BULK_LEN, SessionId

pytestmark = pytest.mark.requirement("LST")

MANY = 600


class Crowd:
    """Nodes that all answer when `free` is set."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.asked = self.in_turn = self.under_way = 0
        self.targets: list[Nid] = []

    @staticmethod
    def next_id() -> int:
        return 1

    next_bulk_id = next_id

    async def call(self, target: Nid, request: Request, features: int, **more: Any) -> Message:
        self.asked += 1
        self.targets.append(target)
        self.in_turn += 1
        self.under_way += 1
        if getattr(request, "is_client", True):
            await self.free.wait()
        self.under_way -= 1
        return Message(REPLIES[request.SERVICE](0), features)  # type: ignore[call-arg]


def new_roster(crowd: Any) -> Roster:
    sid = SessionId(Nid.parse("10.0.0.1@tcp").nid4, 1)
    roster = Roster(crowd, key=1, name="s", features=BULK_LEN, idle=0, force=False, sid=sid)
    for number in range(1, MANY + 1):
        roster.member(Nid.parse(f"10.0.{number >> 8}.{number & 255}@tcp"))
    return roster


def join(roster: Roster) -> Coroutine[Any, Any, object]:
    return roster.join(roster.members.values(), 10.0)


def leave(roster: Roster) -> Coroutine[Any, Any, object]:
    return roster.leave(roster.members.values())


def add_test(roster: Roster) -> Coroutine[Any, Any, object]:
    roster.groups["s"] = Group("s", roster.groups["g"].members[:1])
    return roster.add_test(Batch("b", 1), TestAdd("g", "s"), 10.0)


def keep_alive(roster: Roster) -> Coroutine[Any, Any, object]:
    tasks = []
    return roster.keep_alive(lambda work: tasks.append(asyncio.create_task(work)))


@pytest.mark.parametrize("say", [join, leave, add_test, keep_alive])
async def test_many_nodes_are_told_few_in_a_turn(
    say: Callable[[Roster], Coroutine[Any, Any, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """600 that were asked in one turn kept all else of the console's node waiting for 0.1 to 0.2 s."""
    monkeypatch.setattr(rosters, "_SHORTEST_SILENCE", 0.02)
    crowd: Any = Crowd()
    roster = new_roster(crowd)
    members = list(roster.members.values())
    roster.groups["g"] = Group("g", members)
    for member in members if say is not join else ():
        member.state, member.joined, member.heard = "active", True, -1e9
    told, most = asyncio.create_task(say(roster)), 0

    async def watch() -> None:
        nonlocal most
        while True:
            await asyncio.sleep(0)
            most, crowd.in_turn = max(most, crowd.in_turn), 0

    watching = asyncio.create_task(watch())
    await until(lambda: crowd.under_way >= 256)
    await asyncio.sleep(0.05)
    at_once = crowd.under_way
    crowd.free.set()
    await until(lambda: crowd.asked == MANY + (say is add_test) and not crowd.under_way)
    for task in (told, watching):
        task.cancel()
    assert most <= 2 * ASK_AT_ONCE, "a turn begins anywhere between two looks"
    assert at_once == 256


async def test_silent_nodes_do_not_keep_a_session_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands were waited for in turns, 80 s for 4,096, also where lnetd ended. Who answers is first."""
    monkeypatch.setattr(rosters, "_ALL_LEAVE_TIMEOUT", 0.2)
    crowd: Any = Crowd()
    roster = new_roster(crowd)
    members = list(roster.members.values())
    for number, member in enumerate(members):
        member.state, member.joined = "down" if number < MANY - 2 else "active", True
    await asyncio.wait_for(roster.leave(members), 10)
    assert not any(member.joined for member in members)
    assert crowd.targets[:2] == [member.nid for member in members[-2:]]
    assert crowd.asked == 256


async def test_no_further_node_is_told_once_one_has_refused() -> None:
    roster = new_roster(Crowd())
    members = list(roster.members.values())
    told = []

    async def tell(member: Member) -> None:
        told.append(member)
        await asyncio.sleep(0)
        if member is members[5]:
            raise LNetError(errno.EBUSY, "no")

    with pytest.raises(LNetError):
        await roster.each(members, tell)
    await asyncio.sleep(0.05)
    assert 256 <= len(told) < 300, "those that were asked when it refused, and few more"
