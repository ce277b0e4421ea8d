"""Thousands of streams of one client that go on at one moment: other work has its turns between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rpc.conftest import SERVER, assert_conserved
from ulnet import Node
from ulnet.node.turns import Turns
from ulnet.node.watch import Watch
from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.runner import Runner
from ulnet.rpc.topic import Topic
from ulnet.sim import Simulation

pytestmark = pytest.mark.requirement("ULP")

Nodes = tuple[Node, Node]
MOST = 64  # steps in a turn …
SEEN = 2 * MOST  # … which begins anywhere between two looks of a test
STREAMS = 640  # of one client
PATIENCE = 60.0  # seconds within which a state is reached


class Counted:
    """How often something happened in each turn of the loop."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()
        self._turn = 0
        self._end = False
        self._loop = asyncio.get_running_loop()
        self._count()

    def _count(self) -> None:
        self._turn += 1
        if not self._end:
            self._loop.call_soon(self._count)

    def happened(self) -> None:
        self.times[self._turn] += 1

    def stop(self) -> None:
        self._end = True


class Shop:
    """A service whose streams go on all at once, and many streams of one client, begun."""

    def __init__(self, nodes: Nodes) -> None:
        self.service = Service("shop")
        self.server = Server(self.service, nodes[1])
        self.topic: Topic = self.service.topic("news")
        self.gate = asyncio.Event()
        self.counted = Counted()
        self.ended = 0
        self.read = 0
        self.clients = [Client(nodes[0], SERVER, "shop") for _ in range(STREAMS // 64)]
        self.readers: list[asyncio.Task[None]] = []

        @self.service.stream("count")
        async def count(call: Call) -> AsyncIterator[bytes]:
            try:
                await self.gate.wait()
                for _ in range(20):
                    yield b"x"
                    self.counted.happened()  # the chunk was sent
            finally:
                self.ended += 1

        @self.service.stream("wait")
        async def wait(call: Call) -> AsyncIterator[bytes]:
            try:
                yield b"begun"
                await asyncio.sleep(1000)
            finally:
                self.counted.happened()
                self.ended += 1

    async def open(self, method: str, timeout: float | None = None) -> None:
        async def read(client: Client) -> None:
            with suppress(RpcError):
                async for _ in client.stream(method, timeout=timeout):
                    self.read += 1

        for number in range(STREAMS):
            self.readers.append(asyncio.create_task(read(self.clients[number // 64])))

    async def until(self, state: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not state():
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        self.counted.stop()
        for reader in self.readers:
            reader.cancel()
        await asyncio.gather(*self.readers, return_exceptions=True)
        for client in self.clients:
            await client.close()


@pytest.fixture
async def shop(nodes: Nodes) -> AsyncIterator[Shop]:
    shop = Shop(nodes)
    async with shop.server:
        yield shop
        await shop.close()
        await shop.until(
            lambda: not any(shop.server.kept()[what] for what in ("handlers", "bytes to clients"))
        )
    for node in nodes:
        assert_conserved(node)


async def test_of_streams_that_go_on_at_once_64_send_in_a_turn(shop: Shop) -> None:
    await shop.open("count")
    await shop.until(lambda: shop.server.running == STREAMS)
    shop.gate.set()
    await shop.until(lambda: shop.read == 20 * STREAMS)
    assert max(shop.counted.times.values()) <= SEEN
    assert shop.counted.times.total() == 20 * STREAMS


async def test_of_subscribers_that_are_told_something_64_go_on_in_a_turn(shop: Shop) -> None:
    await shop.open("news")
    await shop.until(lambda: shop.topic.subscribers == STREAMS)

    class Told(bytes):
        """A notification; each time that it is sent its length is asked for."""

        def __len__(self) -> int:
            shop.counted.happened()
            return 1

    for number in range(1, 4):
        shop.topic.publish(Told(b"x"))
        await shop.until(lambda: shop.read == number * STREAMS)  # noqa: B023
    assert shop.counted.times.total() >= 3 * STREAMS
    assert max(shop.counted.times.values()) <= 2 * SEEN


async def test_of_streams_that_are_given_up_at_once_64_end_in_a_turn(shop: Shop) -> None:
    """As many sessions end, of 64 streams each."""
    await shop.open("wait")
    await shop.until(lambda: shop.read == STREAMS)
    await asyncio.gather(*(client.close() for client in shop.clients))
    await shop.until(lambda: shop.ended == STREAMS)
    assert max(shop.counted.times.values()) <= SEEN


def test_clients_have_their_turns_one_after_the_other() -> None:
    """Thousands of one keep no other one waiting for more than a turn; none waits when there is room."""

    async def main() -> None:
        turns: Turns = Turns(asyncio.get_running_loop())
        seen: list[str] = []
        steps = [lambda: seen.append("greedy") for _ in range(1000)]
        for step in steps:
            turns.add("greedy", step)
        assert seen == ["greedy"] * MOST, "those for which there is room go on at once"
        turns.add("honest", lambda: seen.append("honest"))
        waited = asyncio.create_task(turns.wait("third"))
        turns.discard("greedy", steps[-1])
        turns.discard("greedy", steps[-1])
        turns.discard("nobody", steps[-1])
        while len(seen) == MOST:
            await asyncio.sleep(0)
        assert seen.index("honest") <= MOST + 2
        assert 2 * MOST - 1 <= len(seen) <= 2 * MOST
        for _ in range(3):
            await asyncio.sleep(0)
        assert waited.done()
        given_up = asyncio.create_task(turns.wait("third"))
        await asyncio.sleep(0)
        given_up.cancel()
        while len(seen) < 1000:
            before = len(seen)
            await asyncio.sleep(0)
            assert len(seen) - before <= MOST
        assert given_up.cancelled()
        assert seen.count("greedy") == 999
        for _ in range(3):
            await asyncio.sleep(0)
        assert not turns.waiting
        assert [turns.take() for _ in range(MOST + 1)] == [True] * MOST + [False]

    asyncio.run(main())


class Named:
    """What a runner knows of a call."""

    def __init__(self, client: str) -> None:
        self.session = SimpleNamespace(owner=client)
        self.method = SimpleNamespace(most=None)
        self.task: object = None


@pytest.mark.pure
def test_handlers_of_a_client_begin_by_turns_with_those_of_others() -> None:
    """One that waits ends a turn, and thousands of streams of one client do: others do not wait for them."""

    async def main() -> None:
        begun: list[Any] = []
        gate = asyncio.Event()

        async def handler(call: Any) -> None:
            begun.append(call)
            await gate.wait()

        def called(client: str, count: int) -> list[Any]:
            return [Named(client) for _ in range(count)]

        nothing: Callable[..., None] = lambda *_: None  # noqa: E731
        loop = asyncio.get_running_loop()
        runner = Runner(loop, copy_context(), handler, nothing, nothing, lambda: False)
        greedy, honest, third = called("greedy", 1000), called("honest", 3), called("third", 1)
        for call in greedy + honest + third:
            runner.add(call)
        for call in greedy[1:500]:
            assert runner.remove(call)
        assert not runner.remove(greedy[1]) and runner.remove(third[0]) and not runner.remove(third[0])
        assert begun == []
        while len(begun) < 504:
            await asyncio.sleep(0)
        assert not runner.remove(greedy[0])
        gate.set()
        await runner.ended()
        assert begun[:6] == [greedy[0], honest[0], greedy[500], honest[1], greedy[501], honest[2]]
        assert begun[6:] == greedy[502:]
        assert not runner.remove(honest[0])

    asyncio.run(main())


class Item:
    def __init__(self) -> None:
        self.due_at = 0.0


def test_of_items_that_are_due_at_once_64_are_in_a_turn() -> None:
    sim = Simulation(1)
    loop = sim.node("n", "10.0.0.1@tcp").loop
    seen: list[Item] = []
    between: list[int] = []
    items = [Item() for _ in range(1000)]

    def due(item: Item) -> None:
        seen.append(item)
        if len(seen) == sum(between) + 1:
            loop.call_soon(lambda: between.append(len(seen) - sum(between)))
        if item is items[0]:
            watch.discard(items[500])
            watch.add(items[501], begin + 2.0)
            watch.add(late, begin + 1.5)

    watch: Watch[Item] = Watch(loop, due)
    late, begin = Item(), loop.time()
    for item in items:
        watch.add(item, begin + 1.0)
    sim.run(1.2)
    assert max(between) == MOST
    assert between.count(MOST) == 1000 // MOST - 1, "and of others two were taken out"
    assert seen == [item for item in items if item not in (items[500], items[501])]
    sim.run(1.0)
    assert seen[998:] == [late, items[501]]
    assert len(watch) == 0


def test_items_that_wait_for_their_turn_are_not_called_once_all_is_over() -> None:
    sim = Simulation(1)
    loop = sim.node("n", "10.0.0.1@tcp").loop
    seen: list[Item] = []

    def due(item: Item) -> None:
        seen.append(item)
        if len(seen) == 10:
            loop.call_soon(watch.close)

    watch: Watch[Item] = Watch(loop, due)
    for _ in range(1000):
        watch.add(Item(), loop.time() + 1.0)
    sim.run(2.0)
    assert len(seen) == MOST
    assert len(watch) == 0


def test_clients_have_their_turns_one_by_one_and_each_has_its_steps_in_order() -> None:
    soon: list[Callable[[], None]] = []
    turns = Turns(cast(Any, SimpleNamespace(call_soon=soon.append)), most=2)
    done: list[str] = []
    for name in ("a1", "a2", "a3", "a4", "a5", "b1", "b2", "c1"):
        turns.add(name[0], partial(done.append, name))
    turned = [done.copy()]
    while soon:
        done.clear()
        soon.pop()()
        turned.append(done.copy())
    assert turned == [["a1", "a2"], ["a3", "b1"], ["c1", "a4"], ["b2", "a5"], []]
    assert not turns.waiting
