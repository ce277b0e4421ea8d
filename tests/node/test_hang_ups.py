"""Peers that ask for much and hang up: what becomes of the answers is no fault of this node's NI."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from lnd.kit import hello_bytes, lnet_frame, until
from support.ports import free_port
from ulnet import Node
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT
from ulnet.core.status import HealthStatus
from ulnet.core.tunables import LndTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.lnet import Header, MsgType

NODE = Nid.parse("127.0.0.73@tcp")
OTHER = Nid.parse("127.0.1.73@tcp1")  # health is kept where there are several NIs
GREEDY = Nid.parse("127.0.0.74@tcp")
PORTAL = 9
SIZE = 1 << 20


@asynccontextmanager
async def asked_for_much(timeout: int = 50) -> AsyncIterator[tuple[Node, socket.socket]]:
    """A node whose memory a caller has asked for ten times, and the caller's connection."""
    loop = asyncio.get_running_loop()
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=params) as node:
        node.add_ni(str(NODE), lnd_tunables=LndTunables(timeout=timeout))
        node.add_ni(str(OTHER))
        node.attach(PORTAL, 7, bytearray(SIZE), options=OP_GET | MANAGE_REMOTE)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            sock.bind((GREEDY.ip, 0))
            await loop.sock_connect(sock, (NODE.ip, params.accept_port))
            await loop.sock_sendall(sock, ConnRequest(1, NODE).pack() + hello_bytes(GREEDY, NODE))
            assert await loop.sock_recv(sock, 56)
            for number in range(10):
                get = Header(
                    int(MsgType.GET), NODE, GREEDY, LNET_PID, LNET_PID, 0, bytes([number + 1] * 16),
                    match_bits=7, portal=PORTAL, length=SIZE,
                )  # fmt: skip
                await loop.sock_sendall(sock, lnet_frame(get))
            await until(lambda: node.core.stats.msgs_alloc >= 5)  # the kernel has the others
            yield node, sock


def hangs_up(sock: socket.socket) -> None:
    sock.close()


def stops_sending(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


def breaks_a_message_off(sock: socket.socket) -> None:
    sock.send(bytes(10))
    sock.shutdown(socket.SHUT_WR)


def sends_nonsense(sock: socket.socket) -> None:
    sock.send(b"nonsense" * 20)


@pytest.mark.parametrize("ends", [hangs_up, stops_sending, breaks_a_message_off, sends_nonsense])
async def test_who_hangs_up_on_answers_leaves_the_health_of_the_ni(
    ends: Callable[[socket.socket], None],
) -> None:
    async with asked_for_much() as (node, sock):
        ends(sock)
        counts = node.core.stats.by_status
        await until(lambda: counts[HealthStatus.REMOTE_ERROR] or counts[HealthStatus.LOCAL_ERROR])
        await until(lambda: not node.core.stats.msgs_alloc)
        assert not counts[HealthStatus.LOCAL_ERROR]
        assert node.core.nis[NODE].health == 1000


async def test_who_takes_none_of_the_answers_leaves_the_health_of_the_ni() -> None:
    """Two callers that read nothing took all of it: the NI was reported as down to all peers."""
    async with asked_for_much(timeout=1) as (node, _):
        counts = node.core.stats.by_status
        await until(lambda: counts[HealthStatus.NETWORK_TIMEOUT])
        await until(lambda: not node.core.stats.msgs_alloc)
        assert node.core.nis[NODE].health == 1000
        greedy = node.core.peers.find_ni(GREEDY)
        assert greedy is not None
        assert greedy.health_stats.by_status[HealthStatus.NETWORK_TIMEOUT]


async def test_a_peer_with_addresses_of_another_ip_version_is_reached_by_others() -> None:
    """An honest peer of IPv4 and IPv6 took the health of the NI: it was reported as down."""
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=params) as node, Node(tcp=params) as peer:
        for nid in (NODE, OTHER):
            node.add_ni(str(nid))
        peer.add_ni(str(GREEDY))
        peer.attach(PORTAL, 7, bytearray(8), options=OP_PUT | MANAGE_REMOTE)
        node.add_peer(GREEDY, ["fd00::74@tcp"])
        for _ in range(40):
            await node.put(GREEDY, PORTAL, 7, b"x" * 8)
        assert node.core.nis[NODE].health == 1000
        assert not node.core.stats.by_status[HealthStatus.LOCAL_ERROR]
