"""What handlers raise in a program: the node goes on, and what ends the program gets through its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from support.ports import free_port
from ulnet import Node, new_event_loop
from ulnet.core.event import Event
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid

A, B = "127.0.9.31@tcp", "127.0.9.32@tcp"
PORTAL, BITS = 7, 1
OPTIONS = OP_PUT | TRUNCATE | MANAGE_REMOTE
COUNT = 20
ENDS = [KeyboardInterrupt, SystemExit]


@pytest.fixture(params=[asyncio.new_event_loop, new_event_loop], ids=["asyncio", "ulnet"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop: asyncio.AbstractEventLoop = request.param()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class Pair:
    """Two nodes; the handler of B's memory raises what `error` says at its fifth event."""

    def __init__(self, raises: Callable[[], object]) -> None:
        port = free_port()
        self.reports: list[str] = []
        self.a, self.b = (
            Node(tcp=TcpParams(accept="all", accept_port=port), report=self.reports.append) for _ in range(2)
        )
        self.raises = raises
        self.heard = 0

    async def start(self) -> None:
        for node, nid in ((self.a, A), (self.b, B)):
            await node.start()
            node.add_ni(nid)
        self.b.attach(PORTAL, BITS, bytearray(64), options=OPTIONS, handler=self.hear)
        await self.put()

    def hear(self, event: Event) -> None:
        self.heard += 1
        if self.heard == 5:
            self.raises()

    async def put(self) -> int:
        return await self.a.put(B, PORTAL, BITS, b"p" * 64)

    async def put_many(self) -> list[int | BaseException]:
        return await asyncio.gather(*(self.put() for _ in range(COUNT)), return_exceptions=True)

    async def close(self) -> None:
        await self.a.close()
        await self.b.close()


def test_a_future_that_was_cancelled_costs_no_message(loop: asyncio.AbstractEventLoop) -> None:
    future = loop.create_future()
    future.cancel()
    pair = Pair(future.result)
    loop.run_until_complete(pair.start())
    assert loop.run_until_complete(pair.put_many()) == [64] * COUNT
    assert pair.heard == 1 + COUNT
    assert [line for line in pair.reports if "event handler failed" in line and "CancelledError" in line]
    loop.run_until_complete(pair.close())


@pytest.mark.parametrize("error", ENDS)
def test_what_ends_the_program_leaves_the_loop_and_a_node_that_works(
    loop: asyncio.AbstractEventLoop, error: type[BaseException]
) -> None:
    def ends() -> None:
        raise error("mine")

    pair = Pair(ends)
    loop.run_until_complete(pair.start())
    many = loop.create_task(pair.put_many())
    with pytest.raises(error, match="mine"):
        loop.run_until_complete(many)
    assert loop.run_until_complete(many) == [64] * COUNT
    assert pair.heard == 1 + COUNT
    assert not [line for line in pair.reports if "failed" in line]
    loop.run_until_complete(pair.close())


@pytest.mark.parametrize("error", ENDS)
def test_deadlines_are_kept_after_what_ends_the_program(
    loop: asyncio.AbstractEventLoop, error: type[BaseException]
) -> None:
    """A handler sets the first and ends the program: the tick that should ask the loop for it raises."""

    def ends() -> None:
        state = pair.b.core.state
        state.timers.at(state.clock() + 0.05, later.set)
        raise error("mine")

    pair, later = Pair(ends), asyncio.Event()
    loop.run_until_complete(pair.start())
    many = loop.create_task(pair.put_many())
    with pytest.raises(error, match="mine"):
        loop.run_until_complete(many)
    assert pair.b._timer is not None
    loop.run_until_complete(many)
    loop.run_until_complete(asyncio.wait_for(later.wait(), 10.0))
    loop.run_until_complete(pair.close())


@pytest.mark.parametrize("error", ENDS)
def test_a_node_is_closed_whole_before_its_last_events_end_the_program(
    loop: asyncio.AbstractEventLoop, error: type[BaseException]
) -> None:
    def ends(event: Event) -> None:
        if event.status:
            raise error("mine")

    async def close() -> None:
        core = pair.a.core
        core.put(core.memory.md_bind(b"", ends), Nid.parse("127.0.9.33@tcp"), PORTAL, BITS)
        await pair.a.close(drain=0.0)

    pair = Pair(lambda: None)
    loop.run_until_complete(pair.start())
    with pytest.raises(error, match="mine"):
        loop.run_until_complete(close())
    assert not pair.a.running
    assert pair.a._timer is None
    loop.run_until_complete(pair.close())
