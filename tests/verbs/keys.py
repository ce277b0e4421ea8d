"""Runs in a guest: one side lends memory to one of several connections, the other one writes there by all."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import struct
import sys
from collections.abc import Callable
from typing import Any

from ulnet import Node
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT
from ulnet.core.status import LNetError
from ulnet.core.tunables import LndTunables
from ulnet.lnd.o2ib import NiState, abi
from ulnet.lnd.o2ib.conn import Conn
from ulnet.lnd.o2ib.rdma import RdmaDevice
from ulnet.lnd.o2ib.verbs import Piece, Write
from ulnet.nid import Nid

PORTAL, KEY, MEMORY = 30, 1, 2  # match bits
SIZE = 64  # eight bytes for each connection
_KEY = struct.Struct("<QQ")


def fails_once(name: str) -> Callable[[], bool]:
    """A function of the libraries that fails the next time; what tells whether it has."""
    lib: Any = abi.libraries()
    real = getattr(lib, name)
    failed = False

    def fails(*args: object) -> object:
        nonlocal failed
        failed = True
        setattr(lib, name, real)
        ctypes.set_errno(errno.ENOMEM)
        return None

    setattr(lib, name, fails)
    return lambda: failed


def conns_of(node: Node, own: str) -> list[Conn]:
    """Those with the other side; an NI whose health was in doubt has some with itself."""
    state = node.core.nis[Nid.parse(own)].lnd_data
    assert isinstance(state, NiState)
    return [conn for nid, peer in state.peers.items() if nid != Nid.parse(own) for conn in peer.conns]


def count_domains(node: Node, own: str) -> tuple[int, int]:
    """Queue pairs and protection domains of the device, which are those of the queue pairs."""
    state = node.core.nis[Nid.parse(own)].lnd_data
    assert isinstance(state, NiState)
    device = state.device
    assert isinstance(device, RdmaDevice)
    used = {pair.id.contents.qp.contents.pd for pair in device.qps.values()}
    assert used == {domain.pd for domain in device.domains}, "queue pairs are in other domains"
    return len(device.qps), len(used)


async def lend(own: str) -> None:
    """Finds no domain for the first connection. Once there are two, one of them is lent memory."""
    async with Node() as node:
        node.add_ni(own)
        refused = fails_once("ibv_alloc_pd")
        key, memory = bytearray(_KEY.size), bytearray(SIZE)
        node.attach(PORTAL, KEY, key, options=OP_PUT | OP_GET | MANAGE_REMOTE)
        node.attach(PORTAL, MEMORY, memory, options=OP_GET | MANAGE_REMOTE)
        print("lending", flush=True)
        while len(conns := conns_of(node, own)) < 2:
            await asyncio.sleep(0.1)
        assert refused()
        pair = conns[0].pair
        assert pair is not None
        region = pair.register(memoryview(memory), True)
        key[:] = _KEY.pack(region.key, region.address)
        await asyncio.Event().wait()


async def steal(own: str, to: str) -> None:
    """Writes to the memory by all connections."""
    async with Node() as node:
        node.add_ni(own, lnd_tunables=LndTunables(conns_per_peer=2))
        failed = fails_once("ibv_alloc_pd")
        place = bytearray(_KEY.size)
        while not any(place):
            try:
                await node.get(to, PORTAL, KEY, place, timeout=30)
            except LNetError as refused:
                print("refused:", refused, flush=True)
            await asyncio.sleep(0.2)
        assert failed()
        pairs, domains = count_domains(node, own)
        assert pairs == domains >= 2, (pairs, domains)
        key, address = _KEY.unpack(place)
        conns = conns_of(node, own)
        assert len(conns) >= 2  # 3 where both sides call
        sources = []
        for number, conn in enumerate(conns):
            assert conn.pair is not None
            source = conn.pair.register(memoryview(bytes([number + 1] * 8)), False)
            sources.append(source)
            conn.pair.post([Write([Piece(source, 0, 8)], key, address + 8 * number)])
        for _ in range(300):
            if sum(conn in conns_of(node, own) for conn in conns) <= 1:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)
        left = [number for number, conn in enumerate(conns) if conn in conns_of(node, own)]
        memory = bytearray(SIZE)
        await node.get(to, PORTAL, MEMORY, memory, timeout=60)
        print("connections left:", left, "memory:", memory.hex(), flush=True)
        assert len(left) == 1
        wanted = bytearray(SIZE)
        wanted[8 * left[0] : 8 * left[0] + 8] = bytes([left[0] + 1] * 8)
        assert memory == wanted
        for source in sources:
            source.release()
        pairs, domains = count_domains(node, own)
        assert pairs == domains
        print("all is well", flush=True)


if __name__ == "__main__":
    asyncio.run(lend(sys.argv[2]) if sys.argv[1] == "lend" else steal(*sys.argv[2:]))
