"""Bulk of any size, over all rails, into and out of the caller's memory."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from rpc.conftest import SERVER
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.status import LNetError
from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.bulk import Meter
from ulnet.rpc.checksum import Checksum
from ulnet.wire.lnet import LNET_MTU

pytestmark = pytest.mark.requirement("ULP")

Nodes = tuple[Node, Node]


def some_bytes(size: int) -> bytes:
    return Random(size).randbytes(size)


@pytest.fixture
async def depot() -> dict[str, bytearray]:
    return {}


@pytest.fixture
async def client(nodes: Nodes, depot: dict[str, bytearray]) -> AsyncIterator[Client]:
    service = Service("depot")

    @service.method("write")
    async def write(call: Call) -> int:
        memory = await call.pull()
        depot[bytes(call.data).decode()] = bytearray(memory)
        return len(memory)

    @service.method("read")
    async def read(call: Call) -> None:
        await call.push(depot[bytes(call.data).decode()])

    @service.method("halves")
    async def halves(call: Call) -> None:
        memory = memoryview(depot["halves"])
        half = len(memory) // 2
        await call.push(memory[:half])
        await call.push(memory[half:])

    @service.method("backwards")
    async def backwards(call: Call) -> bytes:
        """Read the first half, write it to the second, and the other way round."""
        size = call.bulk_size
        memory = await call.pull(bytearray(size // 2))
        await call.push(memory, offset=call.into_size - len(memory))
        memory = await call.pull(offset=size // 2)
        await call.push(memory, offset=0)
        return b""

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "depot") as client:
        yield client


@pytest.mark.parametrize("check", ["", "XXH3", "CRC-32"])
@pytest.mark.parametrize("size", [0, 1, LNET_MTU, LNET_MTU + 1, 20 * LNET_MTU + 12345])
async def test_bulk_there_and_back(
    client: Client,
    nodes: Nodes,
    depot: dict[str, bytearray],
    size: int,
    check: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = some_bytes(size)
    monkeypatch.setattr("ulnet.rpc.checksum._has_xxh3", check == "XXH3")
    answer = await client.call("write", b"x", bulk=data, check=bool(check))
    assert answer.as_type(int) == size
    assert depot["x"] == data
    into = bytearray(size + 10)
    answer = await client.call("read", b"x", into=into, check=bool(check))
    assert answer.pushed == size
    assert into == data + bytes(10)
    if size > 10 * LNET_MTU:
        rails = [ni.stats.sent for ni in nodes[0].core.nis.values() if not ni.nid.is_lo]
        assert all(sum(sent) > 0 for sent in rails), "both rails carry it"


async def test_regions_join_where_offsets_end(
    client: Client, monkeypatch: pytest.MonkeyPatch, depot: dict[str, bytearray]
) -> None:
    for module in ("ulnet.rpc.bulk", "ulnet.wire.rpc"):
        monkeypatch.setattr(f"{module}.REGION", 300_000)
    data = some_bytes(1_000_001)
    await client.call("write", b"x", bulk=data)
    assert depot["x"] == data
    into = bytearray(len(data))
    await client.call("read", b"x", into=into)
    assert into == data


async def test_parts_are_pushed_and_pulled(client: Client, depot: dict[str, bytearray]) -> None:
    data = some_bytes(3_000_000)
    into = bytearray(len(data))
    await client.call("backwards", bulk=data, into=into)
    assert into == data[1_500_000:] + data[:1_500_000]
    depot["halves"] = bytearray(data)
    assert (await client.call("halves", into=into, check=True)).pushed == len(data)
    assert into == data
    with pytest.raises(RpcError, match="with a checksum each push begins") as refused:
        await client.call("backwards", bulk=data, into=into, check=True)
    assert (refused.value.errno, refused.value.executed) == (errno.EINVAL, "yes")


async def test_memory_that_is_missing_short_or_read_only(client: Client, depot: dict[str, bytearray]) -> None:
    depot["x"] = bytearray(100)
    with pytest.raises(RpcError, match="it has to give into=") as refused:
        await client.call("read", b"x")
    assert refused.value.errno == errno.EINVAL
    with pytest.raises(RpcError, match="the client lends 99 bytes") as refused:
        await client.call("read", b"x", into=bytearray(99))
    assert (refused.value.errno, refused.value.executed) == (errno.EINVAL, "yes")
    with pytest.raises(RpcError, match="it has to give bulk="):
        await client.call("write", b"x")
    with pytest.raises(RpcError, match="read-only") as refused:
        await client.call("read", b"x", into=memoryview(b"12345"))
    assert (refused.value.errno, refused.value.executed) == (errno.EINVAL, "no")
    with pytest.raises(RpcError, match="beside bulk") as refused:
        await client.call("write", bytes(100_000), bulk=bytes(100))
    assert (refused.value.errno, refused.value.executed) == (errno.EMSGSIZE, "no")


@pytest.mark.parametrize("kind", ["XXH3", "CRC-32"])
async def test_a_checksum_finds_what_was_changed(
    nodes: Nodes, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ulnet.rpc.checksum._has_xxh3", kind == "XXH3")
    service = Service("liar")
    memory = bytearray(some_bytes(100_000))
    began, go_on = asyncio.Event(), asyncio.Event()

    @service.method("read")
    async def read(call: Call) -> None:
        await call.push(memory)
        assert call.checksum is not None
        await call.checksum.add(memoryview(b"x"))

    @service.method("write")
    async def write(call: Call) -> None:
        began.set()
        await go_on.wait()
        await call.pull()

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "liar") as client:
        with pytest.raises(RpcError, match="arrived with the checksum") as wrong:
            await client.call("read", into=bytearray(100_000), check=True)
        assert (wrong.value.errno, wrong.value.executed) == (errno.EILSEQ, "yes")
        task = asyncio.create_task(client.call("write", bulk=memory, check=True))
        await began.wait()
        memory[5] ^= 1
        go_on.set()
        with pytest.raises(RpcError, match="arrived with the checksum") as wrong:
            await task
        assert wrong.value.errno == errno.EILSEQ


async def test_checksums_are_those_of_the_libraries() -> None:
    for xxh3, empty, words in ((True, 0x38D394C2, 0x67A17DFF), (False, 0, 0xCBF43926)):
        checksum = Checksum(xxh3)
        assert checksum.value == empty
        await checksum.add(memoryview(b"1234"))
        await checksum.add(memoryview(b"56789"))
        assert checksum.value == words


async def test_progress_and_a_rail_that_goes_in_between(nodes: Nodes) -> None:
    service = Service("mover")
    told: list[tuple[int, int]] = []
    data = some_bytes(24 * LNET_MTU + 5)
    first = asyncio.Event()

    def progress(moved: int, total: int) -> None:
        told.append((moved, total))
        if len(told) == 3:
            first.set()

    @service.method("read")
    async def read(call: Call) -> None:
        await call.push(data, progress=progress)

    async with Server(service, nodes[1], window=2), Client(nodes[0], SERVER, "mover") as client:
        into = bytearray(len(data))
        task = asyncio.create_task(client.call("read", into=into))
        await first.wait()
        nodes[1].del_ni("127.4.1.2@tcp1")
        await task
        assert into == data
        assert told[-1] == (len(data), len(data))
        assert [moved for moved, _ in told] == sorted(moved for moved, _ in told)


@pytest.mark.parametrize("way", ["read", "write"])
async def test_the_client_hears_of_each_piece_of_its_memory(client: Client, way: str) -> None:
    data = some_bytes(5 * LNET_MTU + 7)
    await client.call("write", bulk=data)
    told: list[tuple[int, int]] = []

    def progress(moved: int, total: int) -> None:
        told.append((moved, total))

    memory = bytearray(data)
    lent: dict[str, Any] = {"into": memory} if way == "read" else {"bulk": memory}
    await client.call(way, progress=progress, **lent)
    count = len(told)
    assert {total for _, total in told} == {len(data)}
    assert [moved for moved, _ in told] == sorted({moved for moved, _ in told})
    assert all(moved % LNET_MTU in (0, 7) for moved, _ in told)
    if way == "read":  # each piece was acknowledged before the reply left
        assert told[-1] == (len(data), len(data)) and count == 6
    await client.call(way, **lent)
    assert len(told) == count


async def test_a_clients_progress_that_raises_ends_the_call(client: Client, nodes: Nodes) -> None:
    await client.call("write", bulk=some_bytes(5 * LNET_MTU))

    def progress(moved: int, total: int) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await client.call("read", into=bytearray(5 * LNET_MTU), progress=progress)
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()
    assert client.under_way == 0
    into = bytearray(5 * LNET_MTU)
    assert (await client.call("read", into=into)).pushed == len(into)


async def test_a_client_that_gives_up_takes_its_memory_away(nodes: Nodes) -> None:
    service = Service("slow")
    failed: list[BaseException] = []
    began, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @service.method("read")
    async def read(call: Call) -> None:
        began.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            try:
                await call.push(bytes(3 * LNET_MTU))
            except LNetError as gone:
                failed.append(gone)
            ended.set()
            raise

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "slow") as client:
        into = bytearray(3 * LNET_MTU)
        task = asyncio.create_task(client.call("read", into=into))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()
        assert [error.errno for error in failed if isinstance(error, LNetError)] == [errno.ENOENT]


async def test_new_memory_is_bounded(nodes: Nodes) -> None:
    service = Service("bounded")

    @service.method("write")
    async def write(call: Call) -> None:
        await call.pull(most=1000)

    @service.method("echo")
    async def echo(call: Call) -> int:
        return len(call.data)

    async with Server(service, nodes[1], queue_bytes=1 << 20), Client(nodes[0], SERVER, "bounded") as client:
        with pytest.raises(RpcError, match="at most 1000 are taken") as refused:
            await client.call("write", bulk=bytes(1001))
        assert refused.value.errno == errno.EMSGSIZE
        assert (await client.call("echo", bytes(1 << 20))).as_type(int) == 1 << 20
        with pytest.raises(RpcError, match=r"takes at most 1048576; use bulk") as refused:
            await client.call("echo", bytes((1 << 20) + 1))
        assert (refused.value.errno, refused.value.executed) == (errno.EMSGSIZE, "no")


async def test_of_tiny_pieces_some_are_kept_and_told(nodes: Nodes) -> None:
    """A server may write byte by byte, each to another place, for as long as it says that it is at work."""
    told: list[int] = []
    meter = Meter(lambda moved, total: told.append(moved))
    size = 1 << 20
    meter.total = size
    md = nodes[0].core.memory.md_bind(bytearray(size), lambda event: None)
    for offset in range(3000):
        meter(Event(EventKind.PUT, md, None, mlength=1, offset=offset))
    assert told == list(range(1, 1024 + size // 4096 + 1))
    nodes[0].core.memory.md_unlink(md)
