"""Peers that send anything, and nodes that answer anything: others go on serving and commanding."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selftest.conftest import Lab, foe_of, until
from ulnet.cli.lst_text import Picked, error_lines, rates
from ulnet.core.status import LNetError
from ulnet.dlc import model_selftest as ask
from ulnet.dlc.documents_selftest import CountersDocument, CountersView, NodeCounters
from ulnet.nid import Nid
from ulnet.selftest.console import Console
from ulnet.selftest.exchange import Exchange, Incoming
from ulnet.selftest.members import Member, read_ids, server_loop, span_of
from ulnet.selftest.services import PING_MAGIC, BrwClient
from ulnet.wire.selftest import (
    BULK_PORTAL,
    MESSAGE_SIZE,
    Message,
    pack_message,
    unpack_message,
)
from ulnet.wire.selftest_bodies import (
    REPLIES,
    BrwReply,
    DebugReply,
    DebugRequest,
    PingReply,
    PingRequest,
    RailsReply,
    RailsRequest,
    Reply,
)
from ulnet.wire.selftest_values import BULK_LEN, BulkBytes, Check, Direction

pytestmark = pytest.mark.requirement("LST")


def any_message(rng: Random, kind: int) -> bytes:
    """A message of that type: small numbers and large ones, names of any bytes."""
    body = b"".join(
        rng.choice([bytes(4), b"\xff" * 4, rng.randbytes(4), rng.randrange(20).to_bytes(4, "little")])
        for _ in range(34)
    )
    head = [0xEEB0F00D, rng.choice([1, 1, 1, 2]), kind, 0, 0, rng.choice([0, 1, 1, 3])]
    order: Any = rng.choice(["little", "big"])
    return b"".join(word.to_bytes(4, order) for word in head) + body


async def test_any_requests_leave_a_node_serving(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    rng = Random(20)
    for _ in range(600):
        raw = any_message(rng, 2 * rng.randrange(9))
        service = unpack_message(raw).service
        portal = 51 if service < 10 else 50
        try:
            await lab.a.put(lab.nid(1), portal, service, raw, ack=False)
        except LNetError as refused:
            raise AssertionError(refused) from None
    exchange = lab.tests[1].exchange
    await until(lambda: exchange.received >= 600)
    reply = await lab.ask(DebugRequest(lab.next_id()))
    assert isinstance(reply, DebugReply)
    assert not [record for record in caplog.records if record.exc_info]


async def test_any_replies_leave_a_console_commanding(lab: Lab) -> None:
    rng = Random(21)
    lying = Exchange(lab.nodes[2])

    async def lie(incoming: Incoming) -> None:
        service = incoming.message.service
        kind = {0: 11, 1: 1, 2: 3, 3: 5, 4: 9, 5: 7, 11: 13, 12: 15}[service]
        body = unpack_message(any_message(rng, kind)).body
        assert isinstance(body, Reply) and type(body) is REPLIES[service]
        if rng.random() < 0.7:
            body = type(body)(
                *[0 if name == "status" else getattr(body, name) for name in body.__match_args__]
            )
        lying.reply(incoming, body, BULK_LEN)

    await lab.tests[2].close()
    lying.serve(lie)
    console = Console(lab.tests[0].exchange)
    brw = ask.Brw("write", 4096, "full")
    for _ in range(30):
        for command in (
            ask.SessionNew(force=True),
            ask.GroupAdd("c", [str(lab.nid(1))]),
            ask.GroupAdd("s", [str(lab.nid(2))]),
            ask.TestAdd("c", "s", loop=1, brw=brw),
            ask.BatchRun(),
            ask.Counters(["c", "s"]),
            ask.BatchQuery(),
            ask.NodesPing(),
            ask.BatchStop(),
            ask.BatchList("batch"),
            ask.GroupUpdate("s", refresh=True),
            ask.SessionEnd(),
        ):
            try:
                document = await console.do(ask.Lst(1, command))
            except LNetError:
                continue
            msgspec.json.encode(document)
    lying.stop()
    await lying.stopped()
    await until(lambda: lab.tests[1].framework.session is None)


async def test_a_reply_to_another_service_is_no_reply(lab: Lab) -> None:
    lying = Exchange(lab.nodes[2])

    async def lie(incoming: Incoming) -> None:
        lying.reply(incoming, BrwReply(0), BULK_LEN)

    await lab.tests[2].close()
    lying.serve(lie)
    with pytest.raises(LNetError, match="is no answer to DebugRequest"):
        await lab.ask(DebugRequest(lab.next_id()), to=2)
    lying.stop()
    await lying.stopped()


async def test_rails_that_cannot_be_are_not_known(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(lab.tests[0].exchange)
    framework = lab.tests[2].framework
    answer = framework.answer
    said: list[RailsReply] = []

    async def lie(incoming: Incoming) -> Reply | None:
        if isinstance(incoming.request, RailsRequest):
            return said[min(incoming.request.index, len(said) - 1)]
        return await answer(incoming)

    monkeypatch.setattr(framework, "answer", lie)
    for command in (ask.SessionNew(), ask.GroupAdd("s", [str(lab.nid(2))])):
        await console.do(ask.Lst(1, command))
    sid, nid = console.roster.sid if console.roster is not None else None, lab.nid(2).nid4
    assert sid is not None
    for lies, known in (
        ([RailsReply(0, sid, 1, 0xFFFF << 48)], {"<?>"}),  # of no net that there is
        ([RailsReply(5, sid, 1, nid)], set()),
        ([RailsReply(0, sid, 0, nid)], {str(lab.nid(2))}),
        ([RailsReply(0, sid, 0xFFFFFFFF, nid)], {str(lab.nid(2))}),  # the same one again and again
    ):
        said[:] = lies
        told = await console.do(ask.Lst(1, ask.Counters(["s"], rails=True)))
        assert isinstance(told, CountersDocument)
        assert set(told.of[0].nodes[0].rails) == known and not told.of[0].nodes[0].error
    await console.close()


async def test_only_who_was_asked_is_heard(lab: Lab) -> None:
    """A third node sends a reply to the very match bits; so does the right one, from its other rail."""
    exchange = lab.tests[0].exchange
    lab.tests[1].exchange.stop()
    request = DebugRequest(exchange.next_id())
    call = asyncio.create_task(exchange.call(lab.nid(1), request, BULK_LEN, timeout=60))
    await until(lambda: exchange.sent)
    for status, node in ((1, 2), (2, 1)):
        assert not call.done()
        reply = pack_message(Message(DebugReply(status), BULK_LEN))
        rail = lab.nid(node, 1)
        taken = await lab.nodes[node].put(lab.nid(0, 1), BULK_PORTAL, request.rpyid, reply, source=rail)
        assert taken == len(reply), "their memory is one: it is taken, and not looked at"
    assert (await call).body == DebugReply(2)
    assert not exchange.busy


async def test_a_flood_of_bulk_moves_in_turns(lab: Lab) -> None:
    """More requests than bulk may move at the same time; none is lost."""
    bulk = BulkBytes(Direction.WRITE, Check.FULL, 4096, 0)
    clients = [BrwClient(lab.tests[1].exchange, lab.nid(2), BULK_LEN, 60, bulk) for _ in range(500)]
    await asyncio.gather(*(client.once() for client in clients))
    for client in clients:
        client.close()
    assert lab.tests[2].exchange.counters().bulk_get == 500 * 4096


# Counters that lie ------------------------------------------------------------------------------------


def view(at: float, **counts: int) -> CountersView:
    return CountersView("g", [NodeCounters("a", at, rpc=counts, lnet=counts, framework=counts)])


def test_rates_of_counters_that_run_over_or_begin_anew() -> None:
    picked = Picked(bandwidth=False, write=False, pieces=("Avg",))
    before = view(0.0, recv_count=(1 << 32) - 10)
    assert list(rates(before, view(2.0, recv_count=10), picked))[1] == "[R] Avg: 10       RPC/s"
    assert list(rates(view(0.0, recv_count=900), view(2.0, recv_count=10), picked))[1] == (
        "[R] Avg: 0        RPC/s"
    )
    assert list(rates(before, before, picked)) == ["[LNet Rates of g]"]  # no time has passed


@given(st.dictionaries(st.sampled_from(["recv_count", "brw_errors", "errors", "x"]), st.integers(0, 2**64)))
def test_any_counters_can_be_shown(counts: dict[str, int]) -> None:
    assert list(rates(view(0.0, **counts), view(1.0), Picked()))
    assert list(error_lines(view(0.0, **counts), False))[-1].startswith("Total ")


def test_errors_are_told_with_their_counters() -> None:
    bad = NodeCounters("a", 1.0, "", {"brw_errors": 1, "ping_errors": 0}, {"errors": 20, "rpcs_dropped": 3})
    good = NodeCounters("b", 1.0)
    silent = NodeCounters("c", error="silent")
    lines = list(error_lines(CountersView("g", [bad, good, silent]), False))
    assert lines == [
        "g:",
        "12345-a: [Session: 1 brw errors, 0 ping errors] [RPC: 20 errors, 3 dropped, 0 expired]",
        "12345-c: silent",
        "Total 2 error nodes in g",
    ]
    only = list(error_lines(CountersView("g", [bad]), True))
    assert only[1] == "12345-a: [Session: 1 brw errors, 0 ping errors]"


# How clients share servers ----------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 8), st.integers(1, 8))
def test_clients_get_their_span_in_a_circle(clients: int, servers: int, distribute: int, span: int) -> None:
    members = [Member(Nid.parse(f"10.0.0.{number}@tcp")) for number in range(1, servers + 1)]
    spans = [span_of(index, members, distribute, span) for index in range(clients)]
    assert all(len(one) == span for one in spans)
    assert all(spans[index] == spans[index // distribute * distribute] for index in range(clients))
    first = spans[0]
    assert first == [members[step % servers].nid for step in range(span)]
    load = max(sum(one.count(member.nid) for one in spans) for member in members)
    if span <= servers and servers % span == 0:
        assert load <= server_loop(clients, servers, distribute, span, 1)


def test_ids_may_have_pids_and_ranges() -> None:
    found = read_ids(["12345-10.0.0.[1-2]@tcp", "10.0.0.2@tcp 99-10.0.0.3@tcp"])
    assert [str(nid) for nid in found] == ["10.0.0.1@tcp", "10.0.0.2@tcp", "10.0.0.3@tcp"]


def test_a_message_is_160_bytes() -> None:
    assert len(any_message(Random(1), 10)) == MESSAGE_SIZE


async def test_who_takes_no_replies_gets_no_more(lab: Lab) -> None:
    """All replies waited, also of a node that takes no tests: 503,800 took 921 MB."""
    served = lab.tests[1]
    served.switch(False)
    async with foe_of(lab) as foe:
        await foe.send([PingRequest(1, PING_MAGIC, 1)] * 9000)
        assert served.exchange.dropped == 9000 - 8192
        assert lab.nodes[1].core.stats.msgs_alloc <= 8192 + 8
        reply = await lab.ask(PingRequest(lab.next_id(), PING_MAGIC, 1))
        assert isinstance(reply, PingReply)
    await until(lambda: not served.exchange.busy)
    assert not served.exchange._replies.taken
