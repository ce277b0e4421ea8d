"""Ping and brw over real sockets: sizes, checks, offsets, and corrupted data that each side tells."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from selftest.conftest import SID, Lab, until
from selftest.test_framework import client_test, making, order, stat
from ulnet.core.status import LNetError
from ulnet.selftest.exchange import Bulk, Exchange, Incoming
from ulnet.selftest.pattern import blank, is_intact, source_data
from ulnet.selftest.services import BrwClient, PingClient
from ulnet.wire.errors import ByteOrder
from ulnet.wire.selftest import BULK_PORTAL, PAGE, Message
from ulnet.wire.selftest_bodies import BrwReply, BrwRequest, PingReply, PingRequest, TestReply
from ulnet.wire.selftest_values import BULK_LEN, BatchOp, BulkBytes, BulkPages, Check, Direction, Service

pytestmark = pytest.mark.requirement("LST")

MIB = 1 << 20
checks = st.sampled_from(list(Check))


# The data ----------------------------------------------------------------------------------------------


@example(9, Check.SIMPLE, "little", 0)  # both words of the page overlap
@given(st.integers(1, 3 * PAGE + 40), checks, st.sampled_from(("little", "big")), st.integers(0, 511))
def test_what_a_source_sends_is_intact(length: int, check: Check, byteorder: Any, offset: int) -> None:
    data = bytearray(source_data(length, check == Check.SIMPLE, byteorder))
    assert len(data) == length
    assert is_intact(data, check, byteorder)
    if length % 8 == 0:
        assert is_intact(data, check, byteorder, offset * 8)


@given(st.integers(8, 3 * PAGE), st.data())
def test_a_damaged_word_is_found(length: int, data: st.DataObject) -> None:
    memory = bytearray(source_data(length, False))
    memory[data.draw(st.integers(0, length // 8 * 8 - 1))] ^= 1
    assert not is_intact(memory, Check.FULL, "little")
    assert is_intact(memory, Check.NONE, "little") and is_intact(memory, Check.DISCARD, "little")


@pytest.mark.parametrize("place", [0, 7, PAGE - 1, PAGE, 2 * PAGE - 8, 3 * PAGE - 1])
def test_simple_finds_damage_at_the_ends_of_pages(place: int) -> None:
    memory = bytearray(source_data(3 * PAGE, True))
    memory[place] ^= 0x80
    assert not is_intact(memory, Check.SIMPLE, "little")


def test_simple_does_not_look_into_the_middle_and_fragments_begin_behind_the_offset() -> None:
    memory = bytearray(source_data(2 * PAGE, True))
    memory[100] = 0
    assert is_intact(memory, Check.SIMPLE, "little")
    memory[PAGE - 16] ^= (
        1  # the last word of the first page, when the data begin eight bytes behind its start
    )
    assert is_intact(memory, Check.SIMPLE, "little")
    assert not is_intact(memory, Check.SIMPLE, "little", 8)


def test_data_that_never_came_are_found() -> None:
    memory = bytearray(source_data(PAGE, True))
    blank(memory)
    assert not is_intact(memory, Check.SIMPLE, "little") and not is_intact(memory, Check.FULL, "little")


# Ping --------------------------------------------------------------------------------------------------


async def test_ping_is_echoed(lab: Lab) -> None:
    ping = PingRequest(lab.next_id(), 0xBABEFACE, 41, 1, 2)
    assert await lab.ask(ping) == PingReply(0, 0xBABEFACE, 41)
    foreign = replace(ping, rpyid=lab.next_id())
    assert await lab.ask(foreign, features=2) == PingReply(errno.EPROTO, 0xBABEFACE, 41)
    await lab.ask(making(lab), features=0)
    other = replace(ping, rpyid=lab.next_id())
    assert await lab.ask(other, features=BULK_LEN) == PingReply(errno.EPROTO, 0xBABEFACE, 41)


async def test_an_echo_of_another_ping_is_an_error(lab: Lab) -> None:
    async def liar(incoming: Incoming) -> None:
        lying.reply(incoming, PingReply(0, 0xBABEFACE, 12345678), BULK_LEN)

    await lab.tests[2].close()
    lying = Exchange(lab.nodes[2])
    lying.serve(liar)
    with pytest.raises(LNetError, match="echo"):
        await PingClient(lab.tests[0].exchange, lab.nid(2), BULK_LEN, 60).once()
    lying.stop()
    await lying.stopped()


async def test_a_node_is_its_own_client(lab: Lab) -> None:
    await PingClient(lab.tests[1].exchange, lab.nid(1), BULK_LEN, 60).once()
    bulk = BulkBytes(Direction.WRITE, Check.FULL, MIB, 0)
    client = BrwClient(lab.tests[1].exchange, lab.nid(1), BULK_LEN, 60, bulk)
    await client.once()
    client.close()


# Brw ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", list(Direction), ids=lambda one: one.name)
@pytest.mark.parametrize("check", list(Check), ids=lambda one: one.name)
@pytest.mark.parametrize(("length", "offset"), [(1, 0), (4096, 0), (5000, 8), (12345, 4088), (MIB, 0)])
async def test_brw(lab: Lab, direction: Direction, check: Check, length: int, offset: int) -> None:
    bulk = BulkBytes(direction, check, length, offset)
    client = BrwClient(lab.tests[1].exchange, lab.nid(2), BULK_LEN, 60, bulk)
    for _ in range(3):
        await client.once()
    client.close()
    moved = lab.tests[1].exchange.counters(), lab.tests[2].exchange.counters()
    for counters in moved:
        expected = (0, 3 * length) if direction == Direction.READ else (3 * length, 0)
        assert (counters.bulk_get, counters.bulk_put) == expected


@pytest.mark.parametrize("direction", list(Direction), ids=lambda one: one.name)
async def test_whole_pages_in_a_session_without_bulk_len(lab: Lab, direction: Direction) -> None:
    for node in (1, 2):
        await lab.ask(making(lab), to=node, features=0)
    pages = BulkPages(direction, 3, Check.FULL)
    reply = await client_test(
        lab, [2], features=0, service=Service.BRW, parameters=pages, loop=5, concurrency=2
    )
    assert reply == TestReply(0, SID)
    session = lab.tests[1].framework.session
    assert session is not None
    session.batches[5].run()
    await until(lambda: not session.active)
    counters = lab.tests[1].exchange.counters()
    assert counters.bulk_get + counters.bulk_put == 10 * 3 * PAGE + PAGE
    assert session.brw_errors == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"direction": 0},
        {"direction": 3},
        {"check": 0},
        {"check": 5},
        {"length": 0},
        {"length": MIB + 1},
    ],
    ids=str,
)
async def test_bulk_that_cannot_be(lab: Lab, fields: dict[str, int]) -> None:
    request = BrwRequest(lab.next_id(), lab.next_id(), Direction.READ, 4096, Check.FULL)
    assert await lab.ask(replace(request, **fields)) == BrwReply(errno.EINVAL)


async def test_parts_of_pages_and_features_need_bulk_len(lab: Lab) -> None:
    request = BrwRequest(lab.next_id(), lab.next_id(), Direction.READ, 100, Check.FULL)
    assert await lab.ask(request, features=0) == BrwReply(errno.EINVAL)
    request = replace(request, rpyid=lab.next_id())
    assert await lab.ask(request, features=3) == BrwReply(errno.EPROTO)


@pytest.mark.parametrize("check", [Check.SIMPLE, Check.FULL])
async def test_a_server_tells_corrupted_data(lab: Lab, check: Check) -> None:
    await lab.ask(making(lab))
    data = bytearray(source_data(MIB, True))
    data[5 * PAGE] ^= 1
    request = BrwRequest(lab.next_id(), lab.next_id(), Direction.WRITE, MIB, check)
    bulk = Bulk(request.bulkid, data, MIB, source=True)
    assert await lab.ask(request, bulk=bulk) == BrwReply(errno.EBADMSG)
    assert (await stat(lab)).framework.brw_errors == 1
    fewer = Bulk(lab.next_id(), data[:PAGE], PAGE, source=True, optional=True)
    request = BrwRequest(lab.next_id(), fewer.bits, Direction.WRITE, MIB, Check.NONE)
    assert await lab.ask(request, bulk=fewer) == BrwReply(errno.EBADMSG)


async def test_who_asks_counts_answers_and_bulk_that_came_whole(lab: Lab) -> None:
    def counted() -> tuple[int, int, int]:
        rails = lab.tests[0].exchange.rails.values()  # an answer comes by any
        return sum(x.answered for x in rails), sum(x.bulk_get for x in rails), sum(x.bulk_put for x in rails)

    await lab.ask(making(lab))
    assert counted() == (1, 0, 0)
    data = bytearray(source_data(PAGE, True))
    for number, status, moved in ((2, errno.EBADMSG, 0), (3, 0, PAGE)):
        data[0] ^= 1  # the second time this mends it
        request = BrwRequest(lab.next_id(), lab.next_id(), Direction.WRITE, PAGE, Check.FULL)
        bulk = Bulk(request.bulkid, data, PAGE, source=True)
        assert await lab.ask(request, bulk=bulk) == BrwReply(status)
        assert counted() == (number, moved, 0)


async def test_memory_of_another_length_does_not_serve_again(lab: Lab) -> None:
    await lab.ask(making(lab))
    for length in (2 * PAGE, PAGE, 2 * PAGE):
        request = BrwRequest(lab.next_id(), lab.next_id(), Direction.WRITE, length, Check.FULL)
        bulk = Bulk(request.bulkid, bytearray(source_data(length, False)), length, source=True)
        assert await lab.ask(request, bulk=bulk) == BrwReply(0)


async def test_a_client_tells_corrupted_data(lab: Lab) -> None:
    async def liar(incoming: Incoming) -> None:
        request = incoming.request
        assert isinstance(request, BrwRequest)
        data = bytearray(source_data(request.length, False))
        data[-1] ^= 1
        await lab.nodes[2].put(incoming.source, BULK_PORTAL, request.bulkid, data, ack=False)
        lying.reply(incoming, BrwReply(0), BULK_LEN)

    await lab.tests[2].close()
    lying = Exchange(lab.nodes[2])
    lying.serve(liar)
    await lab.ask(making(lab))
    full = BulkBytes(Direction.READ, Check.FULL, MIB, 0)
    reply = await client_test(lab, [2], service=Service.BRW, parameters=full, loop=9, stop_on_error=1)
    assert reply == TestReply(0, SID)
    await order(lab, BatchOp.RUN)
    session = lab.tests[1].framework.session
    assert session is not None
    await until(lambda: not session.active)
    assert (await stat(lab)).framework.brw_errors == 1
    lying.stop()
    await lying.stopped()


async def test_a_big_endian_source_has_its_own_pattern(lab: Lab) -> None:
    cases: list[tuple[ByteOrder, int]] = [("big", 0), ("little", errno.EBADMSG)]
    for byteorder, status in cases:
        bits = lab.next_id()
        data = source_data(PAGE, False, byteorder)
        at = lab.a.attach(BULK_PORTAL, bits, bytearray(data), nid=lab.nid(1))
        request = BrwRequest(lab.next_id(), bits, Direction.WRITE, PAGE, Check.FULL)
        reply = await lab.say_message(Message(request, BULK_LEN, byteorder="big"))
        assert reply.body == BrwReply(status)
        at.close()


async def test_a_server_that_is_silent_is_given_up(lab: Lab) -> None:
    lab.tests[2].exchange.stop()
    exchange = lab.tests[1].exchange
    bulk = BulkBytes(Direction.READ, Check.FULL, MIB, 0)
    with pytest.raises(LNetError) as late:
        await BrwClient(exchange, lab.nid(2), BULK_LEN, 0.3, bulk).once()
    assert late.value.errno == errno.ETIMEDOUT
    assert exchange.counters().rpcs_expired == 1
