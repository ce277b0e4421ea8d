"""Floods of requests: a turn of the loop has a bounded part of the work, and who floods loses its own."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from selftest.conftest import SID, Foe, Lab, foe_of, until
from selftest.test_framework import making, new_turns, order, ping_test, stat
from ulnet.core.notices import Notices
from ulnet.nid import Nid
from ulnet.selftest.exchange import Incoming
from ulnet.selftest.pattern import source_data
from ulnet.selftest.sessions import Batch, Needs, Room, Session, Test, total
from ulnet.wire.selftest import FRAMEWORK_PORTAL, Message, pack_message
from ulnet.wire.selftest_bodies import BatchReply, BrwRequest, DebugReply, DebugRequest, Reply, TestReply
from ulnet.wire.selftest_values import BULK_LEN, BatchOp, Check, Direction, Service

pytestmark = pytest.mark.requirement("LST")


async def most_in_a_turn(count: Callable[[], int], over: Callable[[], bool]) -> int:
    """By how much a count grows between two looks, one in each turn of the loop, until it is over."""
    most, before = 0, count()
    async with asyncio.timeout(60):
        while not over():
            await asyncio.sleep(0)
            most, before = max(most, count() - before), count()
    return most


class Waiting:
    """A client whose request never ends by itself."""

    async def once(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        pass


def waiting(session: Session, batch: Batch, units: int, needs: Needs | None = None) -> Test:
    """A test of so many units that wait."""

    def clients() -> list[Any]:
        return [Waiting() for _ in range(units)]

    needs = needs or Needs(1, units)
    return Test(Service.PING, 1 << 31, False, clients, session.failed, new_turns(), batch.changed, needs)


def new_session() -> Session:
    return Session(SID, "s", 0, 0.0, Notices(lambda: 0.0, print))


# Requests about sessions and tests -------------------------------------------------------------------


async def test_nobody_looks_at_all_tests_to_answer(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 of them took 1 to 2 ms, for each request that came."""
    looks = 0
    active: Any = vars(Test)["active"]

    def look(test: Test) -> bool:
        nonlocal looks
        looks += 1
        return bool(active.fget(test))

    await lab.ask(making(lab))
    for batch in range(1, 5):
        for _ in range(50):
            assert await lab.ask(replace(ping_test(lab), batch=batch)) == TestReply(0, SID)
    monkeypatch.setattr(Test, "active", property(look))
    assert (await stat(lab)).framework.active_batches == 0
    for op in (BatchOp.RUN, BatchOp.QUERY, BatchOp.STOP):
        assert await order(lab, op, batch=1) == BatchReply(0, SID, 0)
    assert await lab.ask(replace(ping_test(lab), batch=1)) == TestReply(0, SID)
    assert looks <= 5


async def test_few_requests_are_served_in_a_turn(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that came in one turn, on any number of connections, were served in the next."""
    framework, served = lab.tests[1].framework, 0
    answer = framework.answer

    async def count(incoming: Incoming) -> Reply | None:
        nonlocal served
        served += 1
        return await answer(incoming)

    monkeypatch.setattr(framework, "answer", count)
    async with AsyncExitStack() as stack:
        foes = [await stack.enter_async_context(foe_of(lab, host)) for host in range(10, 26)]
        watch = asyncio.create_task(most_in_a_turn(lambda: served, lambda: served >= 1600))
        await asyncio.gather(*(foe.send([DebugRequest(1)] * 100) for foe in foes))
        assert await watch <= 2 * 4, "a turn begins anywhere between two looks"
    await until(lambda: not lab.tests[1].exchange.busy)


async def test_who_floods_loses_its_own_requests(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the places that others leave are one peer's; nothing is kept of it in the end."""
    framework, exchange = lab.tests[1].framework, lab.tests[1].exchange
    go_on = asyncio.Event()
    answer = framework.answer

    async def slow(incoming: Incoming) -> Reply | None:
        if incoming.source not in (lab.nid(0), lab.nid(0, 1)):
            await go_on.wait()
        return await answer(incoming)

    monkeypatch.setattr(framework, "answer", slow)
    async with foe_of(lab) as foe, foe_of(lab, 10) as other:
        await foe.send([DebugRequest(1)] * 9000)
        assert exchange.dropped == 9000 - 2048
        await other.send([DebugRequest(1)] * 9000)
        assert exchange.dropped == 18_000 - 2048 - 1024
        assert await lab.ask(DebugRequest(lab.next_id())) == DebugReply(errno.ESRCH)
        go_on.set()
    await until(lambda: not exchange.busy)
    assert not exchange._requests.taken and exchange._turns is not None and not exchange._turns.waiting


async def test_requests_that_wait_are_forgotten_when_it_stops(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    selftest = lab.tests[1]
    exchange = selftest.exchange
    answer = selftest.framework.answer
    goes_on = asyncio.Event()

    async def slow(incoming: Incoming) -> Reply | None:
        await goes_on.wait()
        return await answer(incoming)

    monkeypatch.setattr(selftest.framework, "answer", slow)
    async with foe_of(lab) as foe:
        await foe.send([DebugRequest(1)] * 1000)
        await until(lambda: exchange._requests.taken == 1000)
        await foe.send([DebugRequest(1)] * 1000)
        await selftest.close()
        assert not exchange._requests.taken and not exchange._tasks
        answered = sum(rail.answered for rail in exchange.rails.values())
        for _ in range(10):
            await asyncio.sleep(0)
        assert sum(rail.answered for rail in exchange.rails.values()) == answered
    goes_on.set()
    selftest.start()
    assert await lab.ask(DebugRequest(lab.next_id())) == DebugReply(errno.ESRCH)


def asked_by(lab: Lab) -> Any:
    """A request of node 0 about tests, as it arrives at node 1."""
    asked, who = Message(DebugRequest(1), BULK_LEN), lab.nid(0)
    return SimpleNamespace(
        data=pack_message(asked), match_bits=asked.service, source=who, target=lab.nid(1), initiator=who
    )


@pytest.mark.pure  # a message that is none
@pytest.mark.parametrize("then", ["stopped", "served anew", "node closed"])
async def test_requests_that_wait_are_not_served_later(lab: Lab, then: str) -> None:
    exchange, arrival = lab.tests[1].exchange, asked_by(lab)
    before: list[Incoming] = []
    after: list[Incoming] = []
    exchange.serve(before.append)
    for _ in range(100):
        assert exchange._take(arrival, FRAMEWORK_PORTAL)
    assert 0 < len(before) < 100
    begun = len(before)
    if then == "stopped":
        exchange.stop()
        assert exchange._turns is not None and not exchange._turns.waiting
    elif then == "served anew":
        exchange.serve(after.append)
    else:
        exchange._inboxes[0].close()  # as its node does
    for _ in range(100):
        await asyncio.sleep(0)
    assert (len(before), after) == (begun, [])


@pytest.mark.pure  # a message that is none
async def test_no_request_is_taken_of_who_takes_no_replies(lab: Lab) -> None:
    exchange, arrival = lab.tests[1].exchange, asked_by(lab)
    served: list[Incoming] = []
    exchange.serve(served.append)
    while exchange._replies.take(lab.nid(0)):
        pass
    assert not exchange._take(arrival, FRAMEWORK_PORTAL)
    exchange._replies.give(lab.nid(0))
    assert exchange._take(arrival, FRAMEWORK_PORTAL)
    assert len(served) == 1


# Units -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batches", "units"), [(1, 1), (1, 0), (20, 50)])
async def test_units_of_all_batches_begin_in_many_turns(batches: int, units: int) -> None:
    """Tests with few units or none were gone through at once, and each batch began 64 units in a turn."""
    session, begun = new_session(), 0

    def clients() -> list[Any]:
        nonlocal begun
        begun += max(units, 1)
        return [Waiting() for _ in range(units)]

    for number in range(batches):
        batch = session.batches[number] = Batch(session.room)
        for _ in range(1000 // batches if units < 2 else 1):
            batch.add(Test(Service.PING, 1 << 31, False, clients, session.failed, new_turns(), batch.changed))

    async def run() -> None:
        for batch in session.batches.values():
            batch.run()

    watch = asyncio.create_task(most_in_a_turn(lambda: begun, lambda: begun >= 1000))
    await asyncio.sleep(0)
    await run()
    assert await watch <= 2 * (64 + units), "a turn begins anywhere between two looks"
    session.abort()
    await until(lambda: not session.active)


async def test_a_unit_is_given_up_once(lab: Lab) -> None:
    """Each STOP went through all units that were there still, in all turns that this took."""
    cancelled = 0

    class Counting(asyncio.Task[Any]):
        def cancel(self, msg: Any = None) -> bool:
            nonlocal cancelled
            cancelled += 1
            return super().cancel(msg)

    session = new_session()
    batch = Batch(session.room)
    test = waiting(session, batch, 500)
    batch.add(test)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, work, **more: Counting(work, loop=loop, **more))
    try:
        batch.run()
        await until(lambda: len(test.units) == 500)
        for _ in range(50):
            batch.run()
            batch.stop(at_once=True)
        async with asyncio.timeout(60):
            while batch.active:
                await asyncio.sleep(0)
    finally:
        loop.set_task_factory(None)
    assert cancelled == 500


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_counted_is_what_there_is(seed: int) -> None:
    """Batches that run and stop at random: their counts are those of all tests, and come back to none."""
    rng, session = Random(seed), new_session()
    batches = [session.batches.setdefault(number, Batch(session.room)) for number in range(4)]
    for batch in batches:
        for _ in range(rng.randrange(5)):
            units = rng.choice([0, 1, 40, 100])
            batch.add(waiting(session, batch, units, Needs(rng.randrange(9), units, rng.randrange(9))))

    def check() -> None:
        for batch in batches:
            assert batch.active == sum(test.active for test in batch.tests)
        running = [batch for batch in batches if batch.active]
        assert set(running) == set(session.room.running)
        assert session.room._needs == total([batch.needs for batch in running])

    for _ in range(300):
        batch = rng.choice(batches)
        if rng.random() < 0.2:
            batch.run()
        elif rng.random() < 0.2:
            batch.stop(at_once=rng.random() < 0.8)
        else:
            await asyncio.sleep(0)
        check()
    session.abort()
    await until(lambda: not session.active)
    check()
    room: Room = session.room
    assert (room.tests, room.targets) == (
        sum(len(batch.tests) for batch in batches),
        sum(batch.needs.targets for batch in batches),
    )
    assert not room._beginning and not room._leaving


# Bulk ------------------------------------------------------------------------------------------------


async def reads_that_wait(foe: Foe) -> tuple[list[BrwRequest], Callable[[], None]]:
    """Requests that wait for a place, for bulk that finds no way; and what frees all places."""
    places = foe.lab.tests[1]._services._places
    others = [
        peer for peer in map(foe.lab.nid, range(10, 99)) for _ in range(128) if places._shares.take(peer)
    ]
    assert len(others) == 128
    reads = [BrwRequest(1, 1, Direction.READ, 8192 + 8 * number, Check.SIMPLE) for number in range(3000)]
    for first in range(6):
        await foe.send(reads[first::6], Nid.parse(f"10.9.9.{first}@tcp7"))
    assert places._waits == len(reads)

    def free() -> None:
        for other in others:
            places.end(other)

    return reads, free


async def test_bulk_that_cannot_be_sent_begins_in_many_turns(lab: Lab) -> None:
    """All that waited for a place went through 128 places in each turn, long after the foe had left."""
    exchange, services = lab.tests[1].exchange, lab.tests[1]._services
    async with foe_of(lab) as foe:
        reads, free = await reads_that_wait(foe)
    free()
    # The bulk of each, and its answer, find no way: two errors.
    most = await most_in_a_turn(lambda: exchange.errors, lambda: exchange.errors >= 2 * len(reads))
    assert most <= 4 * 2 * 8, "what began in some turns may end in one"
    assert services._turns is not None and not services._turns.waiting
    places = services._places
    assert (places._waits, places._queues, places._shares.taken) == (0, {}, 0)


async def test_bulk_that_waits_for_its_turn_is_forgotten_when_it_stops(lab: Lab) -> None:
    selftest = lab.tests[1]
    async with foe_of(lab) as foe:
        _, free = await reads_that_wait(foe)
    free()
    await selftest.close()
    errors, places = selftest.exchange.errors, selftest._services._places
    for _ in range(10):
        await asyncio.sleep(0)
    assert selftest.exchange.errors == errors
    assert (places._waits, places._queues, places._shares.taken) == (0, {}, 0)
    selftest.start()
    assert await lab.ask(DebugRequest(lab.next_id())) == DebugReply(errno.ESRCH)


def test_data_of_all_lengths_are_parts_of_the_same() -> None:
    """Each other length was made anew, up to 1 MiB in three copies."""
    whole = memoryview(source_data(1 << 20, True))
    for length, simple in ((4096, True), (8200, True), (1000, False), (1001, False)):
        assert memoryview(source_data(length, simple)).obj is whole.obj
