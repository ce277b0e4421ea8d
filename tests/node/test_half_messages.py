"""Messages to an inbox of which the rest is kept back, on real sockets (docs/security.md)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack

import pytest

from lnd.kit import hello_bytes, lnet_frame, until
from support.ports import free_port
from ulnet import Node
from ulnet.core.delayed import SLOW
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import LNET_PID, Nid
from ulnet.node import Inbox
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.lnet import NO_WMD, Header, MsgType

pytestmark = pytest.mark.requirement("ULP")

NODE, HONEST, SLOW_ONE, FOE = [Nid.parse(f"127.0.6.{host}@tcp") for host in range(1, 5)]
PORTAL, BITS, SIZE = 30, 7, 10


class Raw:
    """Connections that send what no node does."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._port = port
        self._stack = stack
        self._pid = 1000

    async def begin(self, source: Nid, wmd: bytes = NO_WMD) -> socket.socket:
        """A process of that host sends all but the last byte of a message."""
        loop = asyncio.get_running_loop()
        self._pid += 1
        sock = self._stack.enter_context(socket.socket())
        sock.setblocking(False)
        sock.bind((source.ip, 0))
        await loop.sock_connect(sock, (NODE.ip, self._port))
        hello = hello_bytes(source, NODE, pid=self._pid)
        await loop.sock_sendall(sock, ConnRequest(1, NODE).pack() + hello)
        assert await loop.sock_recv(sock, 1 << 16)  # its HELLO
        header = Header(
            int(MsgType.PUT), NODE, source, LNET_PID, self._pid, SIZE, wmd, match_bits=BITS, portal=PORTAL
        )
        await loop.sock_sendall(sock, lnet_frame(header, bytes(SIZE))[:-1])
        return sock


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def raw(port: int) -> Iterator[Raw]:
    with ExitStack() as stack:
        yield Raw(port, stack)


@pytest.fixture
async def nodes(port: int) -> AsyncIterator[tuple[Node, Node]]:
    params = TcpParams(accept="all", accept_port=port, reserved_ports=False)
    async with Node(tcp=params) as node, Node(tcp=params) as honest:
        node.add_ni(str(NODE))
        honest.core.set_discovery(0)
        honest.add_ni(str(HONEST))
        yield node, honest


async def begun(node: Node, inbox: Inbox, count: int) -> None:
    """Until so many messages have begun, or none of them finds room."""
    peer = node.core.peers.find_ni
    await until(lambda: (foe := peer(FOE)) is not None and foe.refs + inbox.dropped >= count)


def coming(inbox: Inbox) -> int:
    """How many messages are coming into its memory."""
    return sum([len(me.md.arriving or ()) for me in inbox._entries.values() if me.md is not None])


async def put(honest: Node, count: int) -> int:
    """How many of so many messages find no room."""
    refused = 0
    for _ in range(count):
        try:
            await honest.put(NODE, PORTAL, BITS, bytes(SIZE))
        except LNetError as full:
            if full.errno != errno.ENOBUFS:
                raise
            refused += 1
    return refused


async def test_half_messages_in_each_block_take_no_room_from_others(
    nodes: tuple[Node, Node], raw: Raw
) -> None:
    """An inbox had no room for the 50 s until the connections of four of them were closed."""
    node, honest = nodes
    got = 0

    def take(_: object) -> None:
        nonlocal got
        got += 1

    inbox = node.inbox(PORTAL, BITS, slots=4, size=SIZE, handler=take)
    halves = []
    for turn in range(1, 5):
        for _ in range(4):
            halves.append(await raw.begin(FOE, bytes(range(16))))
        await begun(node, inbox, 4 * turn)
        assert await put(honest, 20) <= 1  # which finds that all four blocks are used up
    assert got >= 4 * 19
    assert not node.core.stats.drops[SLOW]  # there was room
    assert len(inbox._live) <= 20
    halves += [await raw.begin(FOE, bytes(range(16))) for _ in range(8)]
    await begun(node, inbox, 24)
    assert await put(honest, 20) <= 8
    assert len(inbox._live) <= 20
    given_up = node.core.stats.drops[SLOW]
    assert given_up >= 4  # those that began first
    for half in halves:
        await asyncio.get_running_loop().sock_sendall(half, b"\0")
    await until(lambda: got + inbox.dropped == 100 + 24)
    assert await put(honest, 1) == 0
    acks = node.core.nis[NODE].stats.sent[MsgType.ACK]
    assert acks == 100 + 1 + 24  # also of what was given up: that nothing was taken
    inbox.close()


async def test_a_slow_sender_keeps_its_room_while_another_has_more(
    nodes: tuple[Node, Node], raw: Raw
) -> None:
    node, honest = nodes
    inbox = node.inbox(PORTAL, BITS, slots=4, size=SIZE)
    slow = await raw.begin(SLOW_ONE)
    await until(lambda: (peer := node.core.peers.find_ni(SLOW_ONE)) is not None and peer.refs)
    for count in range(1, 25):
        await raw.begin(FOE)
        await begun(node, inbox, count)
        await put(honest, 2)
        while inbox:
            await inbox.receive()
    await asyncio.get_running_loop().sock_sendall(slow, b"\0")
    message = await asyncio.wait_for(inbox.receive(), 10)
    assert message.initiator == SLOW_ONE
    inbox.close()


async def test_of_many_honest_senders_none_is_given_up(nodes: tuple[Node, Node], port: int) -> None:
    """Those that found the first blocks used up had the messages of others given up, who heard nothing."""
    node, _ = nodes
    params = TcpParams(accept="all", accept_port=port, reserved_ports=False)
    inbox = node.inbox(PORTAL, BITS, slots=4, size=1 << 20, handler=lambda _: None)
    ended = []

    async def send(sender: Node) -> None:
        for _ in range(4):
            try:
                await sender.put(NODE, PORTAL, BITS, bytes(1 << 20))
                ended.append(0)
            except LNetError as full:
                ended.append(full.errno)

    async with AsyncExitStack() as stack:
        senders = []
        for host in range(10, 34):
            sender = await stack.enter_async_context(Node(tcp=params))
            sender.core.set_discovery(0)
            sender.add_ni(f"127.0.6.{host}@tcp")
            senders.append(sender)
        await asyncio.wait_for(asyncio.gather(*[send(sender) for sender in senders]), 60)
    assert set(ended) <= {0, errno.ENOBUFS}
    assert ended.count(errno.ENOBUFS) == inbox.dropped
    assert not node.core.stats.drops[SLOW]
    inbox.close()


async def test_what_two_keep_back_is_given_up_after_a_while(nodes: tuple[Node, Node], raw: Raw) -> None:
    node, honest = nodes
    inbox = node.inbox(PORTAL, BITS, slots=4, size=SIZE, handler=lambda _: None)
    for turn in range(1, 6):
        for _ in range(2):
            await raw.begin(FOE)
            await raw.begin(SLOW_ONE)
        await until(lambda: coming(inbox) == 4 * turn)  # noqa: B023 - it is waited for
        await put(honest, 1)  # which finds that all four blocks are used up
    await until(lambda: len(inbox._since) == 20)
    assert await put(honest, 2) == 2
    assert not node.core.stats.drops[SLOW]
    await until(lambda: node.core.stats.drops[SLOW])
    assert await put(honest, 1) == 0
    inbox.close()
    assert inbox._timer is None


async def test_who_is_given_up_is_told_that_nothing_was_taken(nodes: tuple[Node, Node]) -> None:
    node, honest = nodes
    inbox = node.inbox(PORTAL, BITS, slots=16, size=1 << 20, handler=lambda _: None)
    given_up = 0
    while not given_up:  # some messages come at once
        task = asyncio.create_task(honest.put(NODE, PORTAL, BITS, bytes(1 << 20)))
        while not task.done() and not given_up:
            await asyncio.sleep(0)
            mds = [me.md for me in inbox._entries.values() if me.md is not None]
            given_up = sum([node.core.give_up(md) for md in mds])
        if not given_up:
            await task
    with pytest.raises(LNetError, match="127") as full:
        await asyncio.wait_for(task, 10)
    assert full.value.errno == errno.ENOBUFS
    await honest.put(NODE, PORTAL, BITS, bytes(1 << 20))  # on the same connection
    inbox.close()
