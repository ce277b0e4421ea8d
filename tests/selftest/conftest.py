"""Nodes with selftest, on loopback addresses, and a peer that says what a test wants it to say."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lnd.kit import hello_bytes, lnet_frame
from support.ports import free_port
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import LNET_PID, Nid
from ulnet.selftest import Selftest
from ulnet.selftest.exchange import Exchange
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.lnet import NO_WMD, Header, MsgType
from ulnet.wire.selftest import (
    BULK_PORTAL,
    FRAMEWORK_PORTAL,
    TEST_PORTAL,
    Message,
    is_framework,
    pack_message,
    unpack_message,
)
from ulnet.wire.selftest_bodies import Reply, Request
from ulnet.wire.selftest_values import BULK_LEN, SessionId

SID = SessionId(Nid.parse("127.4.0.1@tcp").nid4, 77)


@dataclass
class Lab:
    """Some nodes with two rails each; `a` asks, the others have selftest, too."""

    nodes: list[Node]
    tests: list[Selftest]
    port: int
    ids: int = 1 << 20
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def a(self) -> Node:
        return self.nodes[0]

    def nid(self, index: int, rail: int = 0) -> Nid:
        return Nid.parse(f"127.4.{rail}.{index + 1}@tcp{rail or ''}")

    def next_id(self) -> int:
        self.ids += 1
        return self.ids

    async def ask(self, request: Request, *, to: int = 1, features: int = BULK_LEN, **bulk: Any) -> Reply:
        """The reply to a request of `a`."""
        exchange = self.tests[0].exchange
        request = replace(request, rpyid=exchange.next_id())  # type: ignore[type-var]
        message = await exchange.call(self.nid(to), request, features, timeout=60.0, **bulk)
        assert isinstance(message.body, Reply)
        return message.body

    async def say(self, raw: bytes, service: int, bits: int, *, to: int = 1) -> Message:
        """The reply to bytes that are sent as they are, of which the reply goes to match bits `bits`."""
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def handle(event: Event) -> None:
            if event.kind is EventKind.PUT and not heard.done():
                heard.set_result(bytes(event.data))

        at = self.a.attach(BULK_PORTAL, bits, bytearray(160), nid=self.nid(to), handler=handle)
        portal = FRAMEWORK_PORTAL if is_framework(service) else TEST_PORTAL
        try:
            await self.a.put(self.nid(to), portal, service, raw, ack=False)
            async with asyncio.timeout(60):
                return unpack_message(await heard)
        finally:
            at.close()

    async def say_message(self, message: Message, *, to: int = 1) -> Message:
        """The same for a message."""
        assert isinstance(message.body, Request)
        return await self.say(pack_message(message), message.service, message.body.rpyid, to=to)


def assert_clean(node: Node) -> None:
    """Nothing of selftest is left in the node's memory."""
    core = node.core
    core.settle()
    portals = [core.memory.portals[number] for number in (TEST_PORTAL, FRAMEWORK_PORTAL, BULK_PORTAL)]
    assert [me for portal in portals if portal is not None for me in portal.entries()] == []
    assert [md for md in core.memory.mds.values() if md.me is None and md.linked] == []
    assert core.stats.msgs_alloc == 0


async def until(true: Any) -> None:
    """Wait for a state, for a minute at most."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


@dataclass
class Foe:
    """A bare connection to node 1, that reads no more than its HELLO."""

    lab: Lab
    sock: socket.socket
    nid: Nid

    async def send(self, requests: Sequence[Request], source: Nid | None = None) -> None:
        """Send them, as its own or in the name of another NID; node 1 has them all then."""
        exchange = self.lab.tests[1].exchange
        before, frames, source = exchange.received, [], source or self.nid
        for request in requests:
            raw, service = pack_message(Message(request, BULK_LEN)), int(request.SERVICE)
            portal = FRAMEWORK_PORTAL if is_framework(service) else TEST_PORTAL
            hdr = Header(int(MsgType.PUT), self.lab.nid(1), source, LNET_PID, LNET_PID, len(raw), NO_WMD,
                         match_bits=service, portal=portal)  # fmt: skip
            frames.append(lnet_frame(hdr, raw))
        await asyncio.get_running_loop().sock_sendall(self.sock, b"".join(frames))
        await until(lambda: exchange.received >= before + len(requests))


@asynccontextmanager
async def foe_of(lab: Lab, host: int = 9) -> AsyncIterator[Foe]:
    """A foe with an address of its own."""
    nid, node, loop = Nid.parse(f"127.4.0.{host}@tcp"), lab.nid(1), asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.bind((nid.ip, 0))
        await loop.sock_connect(sock, (node.ip, lab.port))
        await loop.sock_sendall(sock, ConnRequest(1, node).pack() + hello_bytes(nid, node))
        assert await loop.sock_recv(sock, 1)
        yield Foe(lab, sock, nid)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    nodes = [Node(tcp=params) for _ in range(3)]
    found = Lab(nodes, [], params.accept_port)
    for index, node in enumerate(nodes):
        await node.start()
        for rail in (0, 1):
            node.add_ni(found.nid(index, rail))
        found.tests.append(Selftest(node))
        found.tests[-1].start()
    yield found
    for one in found.tests:
        await one.close()
    for node in nodes:
        await until(lambda node=node: node.core.stats.msgs_alloc == 0)
        assert_clean(node)
        await node.close()
