"""Many connections that each send the beginning of a push, on real sockets (docs/security.md)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

from lnd.kit import hello_bytes, lnet_frame, until
from support.ports import free_port
from ulnet import Node
from ulnet.core.delayed import SLOW
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.lnet import NO_WMD, PING_MATCH_BITS, PING_PORTAL, Header, MsgType
from ulnet.wire.ping import MIN_INFO_SIZE

NODE = Nid.parse("127.0.0.71@tcp")
HONEST = ("127.0.0.72@tcp", "127.0.1.72@tcp1")
CALLERS = 80  # more than there are buffers for pushes


async def half_push(sock: socket.socket, source: Nid, port: int) -> None:
    """Connect, and send the header of a push and half of its payload."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    sock.bind((source.ip, 0))
    await loop.sock_connect(sock, (NODE.ip, port))
    await loop.sock_sendall(sock, ConnRequest(1, NODE).pack() + hello_bytes(source, NODE))
    assert await loop.sock_recv(sock, 1)  # its HELLO
    header = Header(
        int(MsgType.PUT), NODE, source, LNET_PID, LNET_PID, MIN_INFO_SIZE, NO_WMD,
        match_bits=PING_MATCH_BITS, portal=PING_PORTAL,
    )  # fmt: skip
    await loop.sock_sendall(sock, lnet_frame(header, bytes(MIN_INFO_SIZE // 2)))


async def test_half_pushes_of_many_addresses_keep_no_other_push_waiting() -> None:
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=params) as node, Node(tcp=params) as honest:
        node.add_ni(str(NODE))
        with ExitStack() as stack:
            for number in range(CALLERS):
                source = Nid.parse(f"127.0.2.{1 + number}@tcp")
                await half_push(stack.enter_context(socket.socket()), source, params.accept_port)
            given_up = node.core.stats.drops
            await until(lambda: given_up[SLOW] == CALLERS - 64)
            for nid in HONEST:
                honest.add_ni(nid)
            await honest.discover(NODE, timeout=10)
            peer = node.core.peers.find(Nid.parse(HONEST[0]))
            assert peer is not None
            await until(lambda: len(peer.members) == 2)
            assert given_up[SLOW] == CALLERS - 63
        await until(lambda: len(node.core.info._pushes._mds) == 1)
