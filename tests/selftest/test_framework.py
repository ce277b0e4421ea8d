"""The framework services over real sockets: each row of the specification, and what gets no answer."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from selftest.conftest import SID, Lab, until
from ulnet.core.notices import Notices
from ulnet.core.status import LNetError
from ulnet.nid import LNET_PID, Nid
from ulnet.node.turns import Turns
from ulnet.selftest.exchange import Bulk
from ulnet.selftest.services import BrwClient
from ulnet.selftest.sessions import ASK_AT_ONCE, Batch, Room, Session, Test
from ulnet.selftest.targets import PER_PAGE, pack_targets, read_targets, targets_size
from ulnet.sim import Simulation
from ulnet.wire.selftest import PAGE, TEST_PORTAL, Message, pack_message
from ulnet.wire.selftest_bodies import (
    REPLIES,
    BatchReply,
    BatchRequest,
    BrwRequest,
    DebugReply,
    DebugRequest,
    JoinRequest,
    MakeSessionReply,
    MakeSessionRequest,
    PingReply,
    PingRequest,
    RailsReply,
    RailsRequest,
    RemoveSessionReply,
    RemoveSessionRequest,
    Reply,
    Request,
    StatReply,
    StatRequest,
    TestReply,
    TestRequest,
)
from ulnet.wire.selftest_values import (
    ANY_SESSION,
    BULK_LEN,
    RAILS_KNOWN,
    BatchOp,
    BulkBytes,
    BulkPages,
    Check,
    Direction,
    PingParameters,
    Service,
    SessionId,
)

pytestmark = pytest.mark.requirement("LST")

OTHER = SessionId(SID.nid, 78)


def new_turns() -> Turns:
    return Turns(asyncio.get_running_loop(), ASK_AT_ONCE)


def making(lab: Lab, sid: SessionId = SID, **more: Any) -> MakeSessionRequest:
    return MakeSessionRequest(lab.next_id(), sid, **more)


def ping_test(lab: Lab, **more: Any) -> TestRequest:
    fields: dict[str, Any] = {"service": Service.PING, "loop": 1, "concurrency": 1}
    fields |= {"parameters": PingParameters(), **more}
    return TestRequest(lab.next_id(), 0, SID, 5, **fields)


async def client_test(lab: Lab, targets: list[int], *, features: int = BULK_LEN, **more: Any) -> TestReply:
    """Make node 1 the client of a test against other nodes."""
    request = replace(ping_test(lab, is_client=1, targets=len(targets), **more), bulkid=lab.next_id())
    nids = [lab.nid(target) for target in targets]
    bulk = Bulk(request.bulkid, pack_targets(nids), targets_size(len(nids), features), source=True)
    reply = await lab.ask(request, bulk=bulk, features=features)
    assert isinstance(reply, TestReply)
    return reply


async def order(lab: Lab, op: int, index: int = 0, arg: int = 0, **more: Any) -> BatchReply:
    fields: dict[str, Any] = {"sid": SID, "batch": 5, **more}
    request = BatchRequest(lab.next_id(), op=op, index=index, arg=arg, **fields)
    reply = await lab.ask(request)
    assert isinstance(reply, BatchReply)
    return reply


async def stat(lab: Lab, to: int = 1) -> StatReply:
    reply = await lab.ask(StatRequest(lab.next_id(), SID), to=to)
    assert isinstance(reply, StatReply)
    return reply


# Sessions ----------------------------------------------------------------------------------------------


async def test_sessions_are_made_held_and_let_go(lab: Lab) -> None:
    assert await lab.ask(DebugRequest(lab.next_id())) == DebugReply(errno.ESRCH)
    assert await lab.ask(making(lab, ANY_SESSION)) == MakeSessionReply(errno.EINVAL, ANY_SESSION)
    assert await lab.ask(making(lab, name="one")) == MakeSessionReply(0, SID, 100, mark=RAILS_KNOWN)
    assert await lab.ask(making(lab, name="one")) == MakeSessionReply(0, SID, 100, mark=RAILS_KNOWN)
    assert await lab.ask(DebugRequest(lab.next_id())) == DebugReply(0, SID, 100, 0, "one")
    busy = MakeSessionReply(errno.EBUSY, SID, 100, "one")
    assert await lab.ask(making(lab, OTHER, name="two")) == busy
    assert await lab.ask(making(lab, ANY_SESSION)) == MakeSessionReply(errno.EINVAL, SID)

    leave = RemoveSessionReply(errno.EBUSY, SID)
    assert await lab.ask(RemoveSessionRequest(lab.next_id(), OTHER)) == leave
    assert await lab.ask(RemoveSessionRequest(lab.next_id(), SID)) == RemoveSessionReply(0, SID)
    assert await lab.ask(RemoveSessionRequest(lab.next_id(), SID)) == RemoveSessionReply(0, ANY_SESSION)
    gone = RemoveSessionReply(errno.ESRCH)
    assert await lab.ask(RemoveSessionRequest(lab.next_id(), SID)) == gone


async def test_force_takes_the_place_of_another_session(lab: Lab) -> None:
    await lab.ask(making(lab, name="one"))
    assert await client_test(lab, [2], loop=0xFFFFFFFF) == TestReply(0, SID)
    await order(lab, BatchOp.RUN)
    assert await lab.ask(making(lab, OTHER, name="two", force=1)) == MakeSessionReply(
        0, OTHER, 100, mark=RAILS_KNOWN
    )
    framework = lab.tests[1].framework
    await until(lambda: not framework.zombies)
    assert await lab.ask(DebugRequest(lab.next_id())) == DebugReply(0, OTHER, 100, 0, "two")


async def test_features_that_nobody_has_are_refused(lab: Lab) -> None:
    assert await lab.ask(making(lab), features=2) == MakeSessionReply(
        errno.EPROTO, ANY_SESSION, 100, mark=RAILS_KNOWN
    )
    await lab.ask(making(lab), features=0)
    assert (await lab.ask(StatRequest(lab.next_id(), SID), features=0)).status == 0
    for request in (
        StatRequest(lab.next_id(), SID),
        BatchRequest(lab.next_id(), SID, 5, BatchOp.RUN),
        RemoveSessionRequest(lab.next_id(), SID),
        ping_test(lab),
    ):
        assert (await lab.ask(request, features=BULK_LEN)).status == errno.EPROTO
    assert (await lab.ask(making(lab), features=BULK_LEN)).status == 0  # it only holds the session
    assert (await lab.ask(DebugRequest(lab.next_id()), features=BULK_LEN)).status == 0


async def test_a_reply_has_the_features_of_the_session(lab: Lab) -> None:
    exchange = lab.tests[0].exchange
    asked = await exchange.call(lab.nid(1), DebugRequest(exchange.next_id()), 0, timeout=60)
    assert asked.features == BULK_LEN
    await lab.ask(making(lab), features=0)
    asked = await exchange.call(lab.nid(1), DebugRequest(exchange.next_id()), BULK_LEN, timeout=60)
    assert asked.features == 0


async def test_a_session_of_which_nobody_asks_expires(lab: Lab) -> None:
    framework = lab.tests[1].framework
    framework.session_timeout = 0.2
    await lab.ask(making(lab))
    assert await client_test(lab, [2], loop=0xFFFFFFFF) == TestReply(0, SID)
    await order(lab, BatchOp.RUN)
    await until(lambda: framework.session is None and not framework.zombies)
    assert (await stat(lab)).status == errno.ESRCH
    framework.session_timeout = 0.0
    await lab.ask(making(lab))
    assert framework._timer is None  # never


async def test_what_is_asked_of_another_session(lab: Lab) -> None:
    assert await stat(lab) == StatReply(errno.ESRCH, ANY_SESSION)
    assert await order(lab, BatchOp.RUN) == BatchReply(errno.ESRCH, ANY_SESSION)
    assert await lab.ask(ping_test(lab)) == TestReply(errno.ENOENT, ANY_SESSION)
    await lab.ask(making(lab, OTHER))
    assert await stat(lab) == StatReply(errno.ESRCH, OTHER)
    assert await lab.ask(StatRequest(lab.next_id(), ANY_SESSION)) == StatReply(errno.EINVAL, OTHER)
    assert await order(lab, BatchOp.RUN) == BatchReply(errno.ESRCH, OTHER)
    assert await lab.ask(ping_test(lab)) == TestReply(errno.ENOENT, OTHER)


async def test_rails_are_told_to_the_session_one_by_one(lab: Lab) -> None:
    async def ask(index: int, **more: Any) -> Reply:
        return await lab.ask(RailsRequest(lab.next_id(), SID, index), **more)

    assert await ask(0) == RailsReply(errno.ESRCH, ANY_SESSION)
    await lab.ask(making(lab))
    assert await ask(0, features=0) == RailsReply(errno.EPROTO, SID)
    bulk = BulkBytes(Direction.WRITE, Check.NONE, 4096, 0)
    client = BrwClient(lab.tests[2].exchange, lab.nid(1), BULK_LEN, 60, bulk)
    for _ in range(8):
        await client.once()
    client.close()
    told = [await ask(index) for index in (0, 1)]
    assert all(isinstance(one, RailsReply) and (one.status, one.rails) == (0, 2) for one in told)
    rails = [one for one in told if isinstance(one, RailsReply)]
    assert [one.nid for one in rails] == [lab.nid(1, rail).nid4 for rail in (0, 1)]
    assert sum(one.bulk_get for one in rails) == 8 * 4096 and sum(one.answered for one in rails) > 8
    assert await ask(2) == RailsReply(errno.ENOENT, SID, 2)


# Tests and batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"loop": 0},
        {"concurrency": 0},
        {"concurrency": 1025},
        {"is_client": 1},
        {"targets": 256 * PER_PAGE + 1},
        {"service": 10, "parameters": bytes(12)},
        {"service": 13, "parameters": bytes(12)},
        {"sid": ANY_SESSION},
        {"service": Service.BRW, "parameters": BulkBytes(3, Check.NONE, 4096, 0)},
        {"service": Service.BRW, "parameters": BulkBytes(Direction.READ, 5, 4096, 0)},
        {"service": Service.BRW, "parameters": BulkBytes(Direction.READ, Check.FULL, 0, 0)},
        {"service": Service.BRW, "parameters": BulkBytes(Direction.READ, Check.FULL, (1 << 20) + 1, 0)},
        {"service": Service.BRW, "parameters": BulkBytes(Direction.READ, Check.FULL, 4096, 4)},
        {"service": Service.BRW, "parameters": BulkBytes(Direction.READ, Check.FULL, 4096, 4096)},
    ],
    ids=str,
)
async def test_tests_that_cannot_be(lab: Lab, fields: dict[str, Any]) -> None:
    await lab.ask(making(lab))
    assert await lab.ask(replace(ping_test(lab), **fields)) == TestReply(errno.EINVAL, SID)


async def test_a_server_s_test_has_no_units(lab: Lab) -> None:
    await lab.ask(making(lab))
    assert await lab.ask(ping_test(lab)) == TestReply(0, SID)
    assert await order(lab, BatchOp.RUN) == BatchReply(0, SID, 0)


async def test_a_client_s_test_runs_so_many_loops(lab: Lab) -> None:
    for node in (1, 2):
        await lab.ask(making(lab), to=node)
    assert await client_test(lab, [2, 0], loop=10, concurrency=3) == TestReply(0, SID)
    assert await order(lab, BatchOp.QUERY) == BatchReply(0, SID, 0)
    assert await order(lab, BatchOp.RUN) == BatchReply(0, SID, 1)
    framework = lab.tests[1].framework
    assert framework.session is not None
    units = framework.session.batches[5].tests[0].units
    await until(lambda: not units)
    counters = await stat(lab)
    assert (counters.rpc.rpcs_sent, counters.rpc.errors) == (2 * 3 * 10, 0)
    assert (counters.framework.ping_errors, counters.framework.active_batches) == (0, 0)
    assert counters.lnet.send_count > 60
    assert (await stat(lab, to=2)).rpc.rpcs_rcvd == 3 * 10 + 2  # and making the session, and this


async def test_a_batch_is_queried_and_stopped(lab: Lab) -> None:
    await lab.ask(making(lab))
    assert await order(lab, BatchOp.RUN) == BatchReply(errno.ENOENT, SID)
    for _ in range(2):
        assert await client_test(lab, [2], loop=0xFFFFFFFF, concurrency=4) == TestReply(0, SID)
    assert await order(lab, BatchOp.RUN) == BatchReply(0, SID, 2)
    assert await order(lab, BatchOp.QUERY) == BatchReply(0, SID, 2)
    assert await order(lab, BatchOp.QUERY, index=2) == BatchReply(0, SID, 4)
    assert await order(lab, BatchOp.QUERY, index=3) == BatchReply(errno.ENOENT, SID)
    assert await client_test(lab, [2]) == TestReply(errno.EBUSY, SID)
    assert (await stat(lab)).framework.active_batches == 1
    assert (await order(lab, BatchOp.STOP)).status == 0

    async def active() -> int:
        return (await order(lab, BatchOp.QUERY)).active

    async with asyncio.timeout(60):
        while await active():
            await asyncio.sleep(0.01)
    await order(lab, BatchOp.RUN)
    await order(lab, BatchOp.STOP, arg=1)
    async with asyncio.timeout(60):
        while await active():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stop", [0, 1])
async def test_a_unit_ends_with_its_first_error_or_goes_on(lab: Lab, stop: int) -> None:
    await lab.ask(making(lab))
    lab.tests[2].switch(False)
    assert await client_test(lab, [2], loop=3, stop_on_error=stop) == TestReply(0, SID)
    await order(lab, BatchOp.RUN)
    session = lab.tests[1].framework.session
    assert session is not None
    await until(lambda: not session.active)
    assert (await stat(lab)).framework.ping_errors == (1 if stop else 3)


async def test_a_list_that_is_none_is_no_test(lab: Lab) -> None:
    await lab.ask(making(lab))
    request = replace(ping_test(lab, is_client=1, targets=3), bulkid=lab.next_id())
    short = Bulk(request.bulkid, pack_targets([lab.nid(2)])[:12], 12, source=True, optional=True)
    assert await lab.ask(request, bulk=short) == TestReply(errno.EPROTO, SID)
    request = replace(ping_test(lab, is_client=1, targets=1), bulkid=lab.next_id())
    anybody = Bulk(request.bulkid, b"\xff" * 12, 12, source=True, optional=True)
    assert await lab.ask(request, bulk=anybody) == TestReply(errno.EPROTO, SID)
    assert await order(lab, BatchOp.QUERY) == BatchReply(errno.ENOENT, SID)


async def test_without_bulk_len_the_list_is_whole_pages(lab: Lab) -> None:
    await lab.ask(making(lab), features=0)
    assert await client_test(lab, [2], features=0) == TestReply(0, SID)


async def test_what_has_no_room_is_refused(lab: Lab) -> None:
    await lab.ask(making(lab))
    big = BulkBytes(Direction.READ, Check.FULL, 1 << 20, 0)
    fields: dict[str, Any] = {"service": Service.BRW, "parameters": big, "concurrency": 1024}
    refused = await lab.ask(ping_test(lab, is_client=1, targets=2, **fields))
    assert refused == TestReply(errno.ENOMEM, SID)
    refused = await lab.ask(ping_test(lab, is_client=1, targets=87_000, concurrency=1024))
    assert refused == TestReply(errno.ENOMEM, SID)


async def test_all_tests_together_have_no_more_room(lab: Lab) -> None:
    """Each of them alone has: the units of those that run at once count, and what is kept of all."""
    await lab.ask(making(lab))
    many: dict[str, Any] = {"concurrency": 1024, "loop": 1 << 31}
    assert await client_test(lab, [2] * 16, **many) == TestReply(0, SID)
    assert await client_test(lab, [2], **many) == TestReply(errno.ENOMEM, SID)
    request = replace(ping_test(lab, is_client=1, targets=1), bulkid=lab.next_id(), batch=6)
    one = Bulk(request.bulkid, pack_targets([lab.nid(2)]), 12, source=True)
    assert await lab.ask(request, bulk=one) == TestReply(0, SID)
    session = lab.tests[1].framework.session
    assert session is not None
    assert await order(lab, BatchOp.RUN) == BatchReply(0, SID, 1)
    assert await order(lab, BatchOp.RUN, batch=6) == BatchReply(errno.ENOMEM, SID)
    assert 0 < len(session.batches[5].tests[0].units) < 16_384, "they begin in many turns of the loop"
    await order(lab, BatchOp.STOP, arg=1)
    await until(lambda: not session.active)
    assert await order(lab, BatchOp.RUN, batch=6) == BatchReply(0, SID, 1)
    await until(lambda: not session.active)


@pytest.mark.parametrize("batches", [1, 63])
async def test_many_units_are_given_up_in_many_turns_of_the_loop(batches: int) -> None:
    """65,536 that were cancelled in one turn kept all else of the daemon waiting."""

    waiting = 0

    class Waiting:
        async def once(self) -> None:
            nonlocal waiting
            waiting += 1
            await asyncio.Event().wait()

        def close(self) -> None:
            nonlocal waiting
            waiting -= 1

    def clients() -> list[Any]:
        return [Waiting() for _ in range(1008 // batches)]

    session = Session(SID, "s", 0, 0.0, Notices(lambda: 0.0, print))
    for number in range(batches):
        batch = session.batches[number] = Batch(session.room)
        batch.add(Test(Service.PING, 1 << 31, False, clients, session.failed, new_turns(), batch.changed))
        batch.run()
    # A unit that has not begun ends a turn sooner than one that waits: all wait first.
    await until(lambda: waiting == 1008)
    session.abort()
    left = [waiting]
    async with asyncio.timeout(60):
        while session.active:
            await asyncio.sleep(0)
            left.append(waiting)
    assert max(before - after for before, after in pairwise(left)) <= 100
    assert not waiting


@pytest.mark.parametrize("fails", [False, True])
async def test_of_units_that_run_few_ask_in_a_turn_of_the_loop(fails: bool) -> None:
    """65,536 of which all were ready at once, after their pause or for good, kept all else waiting."""
    asked: Counter[int] = Counter()  # by each unit
    in_turn = 0

    class Ready:
        async def once(self) -> None:
            nonlocal in_turn
            in_turn += 1
            asked[id(self)] += 1
            if fails:
                raise LNetError(errno.EHOSTUNREACH, "no route")
            await asyncio.sleep(0)

        def close(self) -> None:
            pass

    ready: list[Any] = [Ready() for _ in range(500)]
    batch = Batch(Room())
    batch.add(
        Test(
            Service.PING,
            1 << 31,
            False,
            lambda: ready,
            lambda service, error: None,
            new_turns(),
            batch.changed,
        )
    )
    batch.run()
    most = 0
    async with asyncio.timeout(60):
        while len(asked) < 500 or min(asked.values()) < 3:
            await asyncio.sleep(0)
            most, in_turn = max(most, in_turn), 0
    batch.stop(at_once=True)
    await until(lambda: not batch.active)
    assert most <= 2 * ASK_AT_ONCE, "a turn begins anywhere between two looks"


def test_a_unit_whose_requests_fail_asks_less_and_less_until_one_ends_well() -> None:
    sim = Simulation(1)
    loop = sim.node("n", "10.0.0.1@tcp").loop
    asked: list[float] = []
    well = False

    class Lost:
        async def once(self) -> None:
            asked.append(loop.time())
            if not well:
                raise LNetError(errno.EHOSTUNREACH, "no route")
            await asyncio.sleep(1.0)

        def close(self) -> None:
            pass

    lost: list[Any] = [Lost()]
    turns: Turns = Turns(loop)
    batch = Batch(Room())
    test = Test(Service.PING, 1 << 31, False, lambda: lost, lambda service, error: None, turns, batch.changed)
    batch.add(test)
    loop.enter(batch.run)
    sim.run(100.0)
    first = [*asked]
    well = True
    sim.run(10.0)
    well = False
    asked.clear()
    sim.run(5.0)
    loop.enter(batch.stop, True)
    sim.run(1.0)
    assert not batch.active
    pauses = [after - before for before, after in pairwise(first)]
    assert pauses[:7] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2], rel=0.01)
    assert len(first) < 40
    assert asked[1] - asked[0] == pytest.approx(0.1, rel=0.01)


async def test_a_session_has_no_tests_without_end(lab: Lab) -> None:
    await lab.ask(making(lab))
    session = lab.tests[1].framework.session
    assert session is not None
    for number in range(100, 104):
        batch = session.batches[number] = Batch(session.room)
        for _ in range(1023):
            batch.add(Test(Service.PING, 1, False, list, session.failed, new_turns(), batch.changed))
    replies = [await lab.ask(ping_test(lab)) for _ in range(5)]
    assert replies == [TestReply(0, SID)] * 4 + [TestReply(errno.ENOMEM, SID)]


@pytest.mark.parametrize("count", [1, PER_PAGE, PER_PAGE + 1, 1000])
def test_lists_of_nodes_come_back(count: int) -> None:
    nids = [Nid.parse(f"10.0.{index >> 8}.{index & 255}@tcp") for index in range(count)]
    packed = pack_targets(nids)
    assert len(packed) == -(-count // PER_PAGE) * PAGE == targets_size(count, 0)
    size = targets_size(count, BULK_LEN)
    assert size == (12 * count if count <= PER_PAGE else len(packed))
    assert read_targets(memoryview(packed)[:size], count, "little") == nids
    if count > PER_PAGE:  # nothing in the last four bytes of a page
        assert packed[PAGE : PAGE + 12] == struct.pack("<QI", nids[PER_PAGE].nid4, LNET_PID)
        assert packed[PAGE - 4 : PAGE] == bytes(4)


# Other byte orders, versions, lengths, services ------------------------------------------------------


async def test_a_big_endian_console_is_served(lab: Lab) -> None:
    made = await lab.say_message(Message(making(lab, name="big"), BULK_LEN, byteorder="big"))
    assert made.body == MakeSessionReply(0, SID, 100, mark=RAILS_KNOWN)
    told = await lab.say_message(Message(DebugRequest(lab.next_id()), BULK_LEN, byteorder="big"))
    assert told.body == DebugReply(0, SID, 100, 0, "big")
    test = replace(ping_test(lab), parameters=BulkPages(Direction.WRITE, 3, Check.FULL), service=Service.BRW)
    assert (await lab.say_message(Message(test, 1, byteorder="big"))).body.status == errno.EINVAL  # type: ignore[attr-defined]


def every_request(lab: Lab) -> list[Request]:
    """One of each service that a node has."""
    return [
        making(lab),
        DebugRequest(lab.next_id()),
        RemoveSessionRequest(lab.next_id(), SID),
        StatRequest(lab.next_id(), SID),
        BatchRequest(lab.next_id(), SID, 5, BatchOp.RUN),
        ping_test(lab),
        RailsRequest(lab.next_id(), SID),
        PingRequest(lab.next_id(), 0xBABEFACE, 1),
        BrwRequest(lab.next_id(), lab.next_id(), Direction.READ, 4096, Check.NONE),
    ]


async def test_another_version_is_refused(lab: Lab) -> None:
    for request in every_request(lab):
        reply = await lab.say_message(Message(request, BULK_LEN, version=2))
        assert reply.body == _refusal(request, errno.EPROTO)
    assert lab.tests[1].framework.session is None


def _refusal(request: Request, status: int) -> Reply:
    if isinstance(request, PingRequest):
        return PingReply(status, 0xBABEFACE, request.sequence)
    return REPLIES[request.SERVICE](status)  # type: ignore[call-arg]


async def test_what_is_no_request_is_dropped(lab: Lab) -> None:
    debug = pack_message(Message(DebugRequest(lab.next_id()), BULK_LEN))
    ping = pack_message(Message(PingRequest(lab.next_id(), 0xBABEFACE, 0), BULK_LEN))
    for raw, service, portal in (
        (debug[:159], Service.DEBUG, 51),
        (b"\1" + debug[1:], Service.DEBUG, 51),
        (debug[:8] + b"\x63" + debug[9:], Service.DEBUG, 51),  # a type that nobody knows
        (debug, Service.TEST, 51),  # another service's
        (debug, Service.DEBUG, TEST_PORTAL),
        (ping, Service.PING, 51),
        (pack_message(Message(DebugReply(0))), Service.DEBUG, 51),
        (pack_message(Message(JoinRequest(lab.next_id(), SID))), Service.JOIN, 51),
        (pack_message(Message(PingRequest(lab.next_id(), 1, 0))), Service.PING, TEST_PORTAL),
    ):
        before = lab.tests[1].exchange.dropped
        await lab.a.put(lab.nid(1), portal, service, raw, ack=False)
        await until(lambda before=before: lab.tests[1].exchange.dropped == before + 1)
    # A longer one finds no memory.
    with pytest.raises(LNetError):
        await lab.a.put(lab.nid(1), 51, Service.DEBUG, debug + b"\0", ack=True, timeout=0.5)
    await lab.ask(making(lab))
    before = lab.tests[1].exchange.dropped
    odd = BatchRequest(lab.next_id(), SID, 5, op=9)
    await lab.ask(ping_test(lab))
    await lab.a.put(lab.nid(1), 51, Service.BATCH, pack_message(Message(odd, BULK_LEN)), ack=False)
    await until(lambda: lab.tests[1].exchange.dropped == before + 1)


async def test_while_it_is_off_everything_is_refused_at_once(lab: Lab) -> None:
    await lab.ask(making(lab))
    lab.tests[1].switch(False)
    for request in every_request(lab):
        assert await lab.ask(request) == _refusal(request, errno.EOPNOTSUPP)
    lab.tests[1].switch(True)
    assert (await lab.ask(DebugRequest(lab.next_id()))).status == errno.ESRCH
