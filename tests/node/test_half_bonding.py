"""A neighbour that sends control messages of bonding, whole ones and beginnings, on real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest

from lnd.kit import hello_bytes, lnet_frame, until
from support.ports import free_port
from ulnet import Node
from ulnet.bond import BondLnd
from ulnet.bond.config import bond_config
from ulnet.core.delayed import SLOW
from ulnet.core.msg import Incoming
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import LNET_PID, Net, NetType, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.bond import MATCH_BITS, Kind, Resolve
from ulnet.wire.lnet import NO_WMD, PING_PORTAL, Header, MsgType

pytestmark = pytest.mark.requirement("BOND-hello")

SLAVE, HONEST, FOE = (Nid.parse(f"127.0.0.{number}@tcp") for number in (74, 75, 76))
BOND = Net.of(NetType.BOND)
QUESTION = Resolve(1, Nid.of(BOND, HONEST.address), Nid.of(BOND, FOE.address)).pack()


@pytest.fixture
async def nodes() -> AsyncIterator[tuple[Node, Node, int]]:
    """Each with a bonding NI over one slave, and their port."""
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=params) as node, Node(tcp=params) as honest:
        for one, nid in ((node, SLAVE), (honest, HONEST)):
            one.add_ni(str(nid))
            one.driver(BondLnd).add(bond_config(BOND, [nid], one.core.nis))
        yield node, honest, params.accept_port


async def connect(sock: socket.socket, port: int, pid: int) -> None:
    """As the foe, with a PID of its own."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    sock.bind((FOE.ip, 0))
    await loop.sock_connect(sock, (SLAVE.ip, port))
    await loop.sock_sendall(sock, ConnRequest(1, SLAVE).pack() + hello_bytes(FOE, SLAVE, pid=pid))
    assert await loop.sock_recv(sock, 1)  # its HELLO


def question(pid: int) -> bytes:
    header = Header(
        int(MsgType.PUT), SLAVE, FOE, LNET_PID, pid, len(QUESTION), NO_WMD,
        match_bits=MATCH_BITS | Kind.RESOLVE, portal=PING_PORTAL,
    )  # fmt: skip
    return lnet_frame(header, QUESTION)


async def test_half_control_messages_keep_no_handshake_waiting(nodes: tuple[Node, Node, int]) -> None:
    """Sixteen had all buffers, and HELLOs of others were dropped."""
    node, honest, port = nodes
    loop = asyncio.get_running_loop()
    node.attach(30, 1, bytearray(10), options=1)
    with ExitStack() as stack:
        for number in range(80):
            sock = stack.enter_context(socket.socket())
            await connect(sock, port, 20_000 + number)
            await loop.sock_sendall(sock, question(20_000 + number)[:-1])
        await until(lambda: node.core.stats.drops[SLOW] == 16)
        await honest.put(Nid.of(BOND, SLAVE.address), 30, 1, b"x", timeout=4)


async def test_control_messages_leave_nothing_behind(nodes: tuple[Node, Node, int]) -> None:
    """Each left its descriptor, its match entry and itself."""
    node, _, port = nodes
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        await connect(sock, port, LNET_PID)
        await loop.sock_sendall(sock, question(LNET_PID) * 100)
        await until(lambda: node.core.stats.recv_count >= 100)
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, Incoming)]


async def test_answers_that_nobody_acknowledges_are_few(nodes: tuple[Node, Node, int]) -> None:
    """All waited, and those whose time was over together kept the node from anything else for a second."""
    node, _, port = nodes
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        await connect(sock, port, LNET_PID)
        await loop.sock_sendall(sock, question(LNET_PID) * 2000)
        await until(lambda: node.core.stats.recv_count >= 2000)
        assert len(node.core.memory.mds) <= 1024 + 8
        drops = node.core.stats.drops
        assert drops["more bonding questions than answers may be under way"] == 2000 - 1024
    await until(lambda: len(node.core.memory.mds) == 4)
    (bond,) = node.driver(BondLnd).bonds.values()
    assert not bond.data._answers
