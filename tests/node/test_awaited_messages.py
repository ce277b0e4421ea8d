"""Many awaited PUTs over real sockets: each comes once, ends once, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid

PORTAL, BITS = 30, 1
A, B = "127.0.45.1@tcp", "127.0.45.2@tcp"


class Ends:
    """A node that sends and one that notes the header data of what comes."""

    def __init__(self, **params: int) -> None:
        tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False, **params)  # type: ignore[arg-type]
        self.a, self.b = Node(tcp=tcp), Node(tcp=tcp)
        self.came: list[int] = []
        self.inbox = bytearray(1 << 15)

    async def start(self) -> None:
        for node, nid in ((self.a, A), (self.b, B)):
            await node.start()
            node.add_ni(nid, tunables=NetTunables(peer_credits=32))

        def on_put(event: Event) -> None:
            if event.kind is EventKind.PUT:
                self.came.append(event.hdr_data)

        options = OP_PUT | MANAGE_REMOTE | TRUNCATE
        self.b.attach(PORTAL, BITS, self.inbox, options=options, handler=on_put)
        await self.a.put(B, PORTAL, BITS, b"warm")  # discovery, connections
        await self.b.discover(A)
        await self.rest()
        self.came.clear()

    async def rest(self) -> None:
        """Until nothing is under way."""
        async with asyncio.timeout(30):
            while any(node.core.stats.msgs_alloc or node.core.memory.awaits_any for node in (self.a, self.b)):
                await asyncio.sleep(0.005)

    async def put_all(self, numbers: range, sizes: list[int], *, ack: bool, tasks: int = 40) -> list[int]:
        """Send these numbers as header data; what each task was told."""
        left = iter(numbers)
        told: list[int] = []

        async def sender() -> None:
            for number in left:
                data = bytes(sizes[number % len(sizes)])
                told.append(await self.a.put(B, PORTAL, BITS, data, ack=ack, hdr_data=number))

        await asyncio.gather(*(sender() for _ in range(tasks)))
        return told

    def check(self, mds: int) -> None:
        core = self.a.core
        assert len(core.memory.mds) == mds
        for pni in core.peers.nis():
            assert (pni.refs, pni.tx_queued_bytes, pni.answers) == (1, 0, 0)
            assert pni.tx_credits == pni.max_tx_credits


@pytest.fixture
async def ends() -> AsyncIterator[list[Ends]]:
    made: list[Ends] = []
    yield made
    for one in made:
        await one.a.close(drain=0)
        await one.b.close(drain=0)


@pytest.mark.parametrize("ack", [False, True], ids=["one-way", "acknowledged"])
@pytest.mark.parametrize("sizes", [[64], [0, 8, 900, 4096, 4097, 9000, 40000]], ids=["64", "mixed"])
async def test_all_arrive_and_are_told(ends: list[Ends], sizes: list[int], ack: bool) -> None:
    one = Ends()
    ends.append(one)
    await one.start()
    mds = len(one.a.core.memory.mds)
    told = await one.put_all(range(1000), sizes, ack=ack)
    took = [sizes[number % len(sizes)] for number in range(1000)]
    assert sorted(told) == sorted(min(size, 1 << 15) if ack else size for size in took)
    async with asyncio.timeout(30):
        while len(one.came) < 1000:
            await asyncio.sleep(0.005)
    assert sorted(one.came) == list(range(1000))
    await one.rest()
    one.check(mds)


async def test_batches_that_leave_and_come_in_pieces(ends: list[Ends]) -> None:
    """Names, like all else of a frame, are cut anywhere."""
    one = Ends(tx_buffer_size=4608, rx_buffer_size=4608, min_bulk=8192)
    ends.append(one)
    await one.start()
    mds = len(one.a.core.memory.mds)
    assert await one.put_all(range(900), [700], ack=True) == [700] * 900
    assert sorted(one.came) == list(range(900))
    await one.rest()
    one.check(mds)


async def test_cancelled_ones_come_at_most_once_and_hold_no_memory(ends: list[Ends]) -> None:
    one = Ends()
    ends.append(one)
    await one.start()
    mds = len(one.a.core.memory.mds)
    data = [bytearray(64) for _ in range(300)]

    async def send(number: int) -> int:
        return await one.a.put(B, PORTAL, BITS, data[number], ack=number % 3 > 0, hdr_data=number)

    tasks = [asyncio.create_task(send(number)) for number in range(300)]
    for round_ in range(6):
        await asyncio.sleep(0)
        for task in tasks[round_::7]:
            task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    well = {number for number, end in enumerate(ended) if end == 64}
    assert all(end == 64 or isinstance(end, asyncio.CancelledError) for end in ended)
    assert len(well) >= 40
    await one.rest()
    async with asyncio.timeout(30):
        while not well <= set(one.came):
            await asyncio.sleep(0.005)
    assert len(one.came) == len(set(one.came))
    one.check(mds)
    del tasks, ended
    gc.collect()
    for one_of_them in data:
        one_of_them.extend(b"more")  # as long as anyone has a view of it, its size is fixed
    assert await one.put_all(range(1000, 1100), [64], ack=True) == [64] * 100


async def test_what_is_wrong_is_said_and_changes_nothing(ends: list[Ends]) -> None:
    one = Ends()
    ends.append(one)
    await one.start()
    await one.put_all(range(50), [64], ack=True)
    mds = len(one.a.core.memory.mds)
    kept = one.a.core.memory.at_hop(Nid.parse(B))
    for wrong in (
        one.a.put(B, 1 << 32, BITS, b""),
        one.a.put(B, PORTAL, -1, b""),
        one.a.put(B, PORTAL, BITS, bytes((1 << 20) + 1)),
        one.a.put(B, PORTAL, BITS, b"", timeout=-1),
        one.a.put(B, PORTAL, BITS, [b""] * 257),
        one.a.put(B, PORTAL, BITS, memoryview(bytes(8))[::2]),
        one.a.put(B, PORTAL, BITS, b"", cpt=77),
        one.a.put(B, PORTAL, BITS, b"", source="127.0.45.9@tcp"),
        one.a.put("nonsense@@", PORTAL, BITS, b""),
        one.a.put(B, PORTAL, BITS, 7),  # type: ignore[arg-type]
    ):
        with pytest.raises(LNetError):
            await wrong
    assert len(one.a.core.memory.mds) == mds
    assert set(one.a.core.memory.at_hop(Nid.parse(B))) <= set(kept)
    assert await one.put_all(range(50), [64], ack=True) == [64] * 50
    assert set(one.a.core.memory.at_hop(Nid.parse(B))) <= set(kept)  # none of them was lost


@pytest.mark.parametrize("bad", [{"offset": 1.5}, {"match_bits": "x"}, {"timeout": "x"}, {"portal": None}])
async def test_a_call_that_raises_takes_no_descriptor_away(ends: list[Ends], bad: dict[str, object]) -> None:
    """Descriptors are used again, and found by where they sent to: those that were lost stayed there."""
    one = Ends()
    ends.append(one)
    await one.start()
    await one.put_all(range(5), [4], ack=True, tasks=1)
    mds = len(one.a.core.memory.mds)
    kept = one.a.core.memory.at_hop(Nid.parse(B))
    usual: dict[str, Any] = {"portal": PORTAL, "match_bits": BITS}
    for _ in range(5):
        assert await one.a.put(B, PORTAL, BITS, b"good") == 4
        with pytest.raises(TypeError):
            await one.a.put(B, data=b"bad", **{**usual, **bad})
        with pytest.raises(TypeError):
            await one.a.get(B, buffer=bytearray(4), **{**usual, **bad})
    assert await one.a.put(B, PORTAL, BITS, b"good") == 4
    assert len(one.a.core.memory.at_hop(Nid.parse(B))) <= len(kept)
    one.check(mds)


@pytest.mark.parametrize("ack", [False, True], ids=["one-way", "acknowledged"])
async def test_a_node_that_is_closed_under_them_ends_each(ends: list[Ends], ack: bool) -> None:
    one = Ends()
    ends.append(one)
    await one.start()
    await one.put_all(range(50), [64], ack=ack)
    tasks = [asyncio.create_task(one.put_all(range(4000), [64], ack=ack, tasks=8)) for _ in range(4)]
    await asyncio.sleep(0.02)
    await one.a.close(drain=0)
    async with asyncio.timeout(20):
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, LNetError) for end in ended)
    with pytest.raises(LNetError, match="start it first"):
        await one.a.put(B, PORTAL, BITS, b"")
    await one.a.start()  # the next life has operations of its own
    one.a.add_ni(A, tunables=NetTunables(peer_credits=32))
    assert await one.put_all(range(50), [64], ack=True) == [64] * 50


async def test_a_put_of_which_nothing_is_taken_is_an_error() -> None:
    """Memory that is used up: who sends hears of it, and what went before is whole."""
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=tcp) as a, Node(tcp=tcp) as b:
        a.add_ni(A)
        b.add_ni(B)
        b.attach(PORTAL, BITS, bytearray(10))
        assert await a.put(B, PORTAL, BITS, b"12345678") == 8
        assert await a.put(B, PORTAL, BITS, b"12345678") == 2
        with pytest.raises(LNetError, match="its memory took none of the bytes") as full:
            await a.put(B, PORTAL, BITS, b"12345678")
        assert full.value.errno == errno.ENOBUFS
        assert await a.put(B, PORTAL, BITS, b"") == 0
        assert await a.put(B, PORTAL, BITS, b"12345678", ack=False) == 8
        assert await a.get(B, PORTAL, BITS, bytearray(3)) == 0
