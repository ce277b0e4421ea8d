"""An inbox: messages stay whole, never end, and are counted where there is no room."""

from __future__ import annotations

import asyncio
import errno
import mmap
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.node import Inbox, Message

pytestmark = pytest.mark.requirement("ULP")

HOSTS = [f"127.0.3.{host}@tcp" for host in range(1, 5)]
PORTAL, BITS = 30, 7


@pytest.fixture
async def nodes() -> AsyncIterator[list[Node]]:
    """A receiver, and three senders."""
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    nodes = [Node(tcp=params) for _ in HOSTS]
    for node, nid in zip(nodes, HOSTS, strict=True):
        await node.start()
        node.add_ni(nid)
    yield nodes
    for node in nodes:
        await node.close()


async def take(inbox: Inbox, count: int) -> list[Message]:
    return [await inbox.receive() for _ in range(count)]


async def test_several_senders_tear_nothing_and_the_stream_does_not_end(nodes: list[Node]) -> None:
    receiver, *senders = nodes
    inbox = receiver.inbox(PORTAL, BITS, slots=8, size=600)

    async def send(number: int, node: Node) -> None:
        for turn in range(100):
            payload = bytes([number]) * (turn % 600 + 1)
            while True:
                try:
                    await node.put(HOSTS[0], PORTAL, BITS, payload)
                    break
                except LNetError as full:
                    if full.errno != errno.ENOBUFS:
                        raise

    tasks = [asyncio.create_task(send(number, node)) for number, node in enumerate(senders)]
    got: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for _ in range(300):
        message = await inbox.receive()
        (number,) = set(message.data)
        got[number].append(message.data.nbytes)
    await asyncio.gather(*tasks)
    assert all(sorted(sizes) == list(range(1, 101)) for sizes in got.values())
    inbox.close()


async def test_what_is_held_stays_whole_and_what_finds_no_room_is_counted(nodes: list[Node]) -> None:
    receiver, sender, *_ = nodes
    inbox = receiver.inbox(PORTAL, BITS, slots=4, size=10)
    for number in range(4):
        assert await sender.put(HOSTS[0], PORTAL, BITS, bytes([number]) * 10) == 10
    for _ in range(3):
        with pytest.raises(LNetError) as full:
            await sender.put(HOSTS[0], PORTAL, BITS, b"no room")
        assert full.value.errno == errno.ENOBUFS
    assert inbox.dropped == 3
    held = await take(inbox, 4)
    assert sorted(bytes(message.data) for message in held) == [bytes([n]) * 10 for n in range(4)]
    view = held[0].data
    held[1].release()
    del held
    await asyncio.sleep(0)  # three blocks are free, and attached in the next turn
    before = bytes(view)
    for _ in range(3):
        assert await sender.put(HOSTS[0], PORTAL, BITS, b"x" * 10) == 10
    with pytest.raises(LNetError):
        await sender.put(HOSTS[0], PORTAL, BITS, b"no room")
    assert bytes(view) == before
    inbox.close()


async def test_messages_without_payload_count_as_well(nodes: list[Node]) -> None:
    receiver, sender, *_ = nodes
    inbox = receiver.inbox(PORTAL, BITS, slots=4, size=10)
    for _ in range(100):
        await sender.put(HOSTS[0], PORTAL, BITS, b"")
    assert (len(inbox), inbox.dropped) == (4 * 16, 36)
    inbox.close()


async def test_too_long_and_not_there_are_told_apart(nodes: list[Node]) -> None:
    receiver, sender, *_ = nodes
    with receiver.inbox(PORTAL, BITS, slots=4, size=10) as inbox:
        await sender.put(HOSTS[0], PORTAL, BITS, b"hello")
        with pytest.raises(LNetError) as refused:
            await sender.put(HOSTS[0], PORTAL, BITS, b"x" * 11)
        assert refused.value.errno == errno.EMSGSIZE
        with pytest.raises(LNetError) as refused:
            await sender.put(HOSTS[0], PORTAL, BITS + 1, b"hello")
        assert refused.value.errno == errno.ENOENT
        assert bytes((await inbox.receive()).data) == b"hello"
    with pytest.raises(LNetError) as refused:
        await sender.put(HOSTS[0], PORTAL, BITS, b"hello")
    assert refused.value.errno == errno.ENOENT
    with pytest.raises(StopAsyncIteration):
        await inbox.receive()


async def test_messages_go_to_a_handler(nodes: list[Node]) -> None:
    receiver, sender, *_ = nodes
    got: list[bytes] = []
    receiver.inbox(PORTAL, BITS, slots=4, size=10, handler=lambda message: got.append(bytes(message.data)))
    for number in range(20):
        assert await sender.put(HOSTS[0], PORTAL, BITS, bytes([number])) == 1
    assert got == [bytes([number]) for number in range(20)]


async def test_readers_end_with_the_node(nodes: list[Node]) -> None:
    receiver, *_ = nodes
    inbox = receiver.inbox(PORTAL, BITS)

    async def read() -> list[Message]:
        return [message async for message in inbox]

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    await receiver.close()
    assert await reader == []


async def test_memory_that_another_thread_lets_go_is_used_again(nodes: list[Node]) -> None:
    receiver, sender, *_ = nodes
    inbox = receiver.inbox(PORTAL, BITS, slots=1, size=10)
    await sender.put(HOSTS[0], PORTAL, BITS, b"one")
    held = [await inbox.receive()]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    for _ in range(1000):
        try:
            await sender.put(HOSTS[0], PORTAL, BITS, b"two")
            break
        except LNetError:
            await asyncio.sleep(0)
    assert bytes((await inbox.receive()).data) == b"two"
    inbox.close()


async def test_an_inbox_takes_no_memory_before_messages_come(nodes: list[Node]) -> None:
    nodes[0].inbox(PORTAL, 0, slots=64, size=16384).close()
    before = resident()
    inboxes = [nodes[0].inbox(PORTAL, bits, slots=64, size=16384) for bits in range(1, 51)]  # 50 MiB
    assert resident() - before < 10 << 20
    await nodes[1].put(HOSTS[0], PORTAL, 50, b"one")
    assert bytes((await inboxes[-1].receive()).data) == b"one"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.parametrize(("slots", "size"), [(0, 10), (10, 0), (10, (1 << 20) + 1)])
async def test_what_cannot_be_is_refused(nodes: list[Node], slots: int, size: int) -> None:
    with pytest.raises(LNetError, match="inbox of") as refused:
        nodes[0].inbox(PORTAL, BITS, slots=slots, size=size)
    assert refused.value.errno == errno.EINVAL
