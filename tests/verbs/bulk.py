"""Runs in a guest: a node without a daemon serves memory, or moves bulk there and back and compares."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys

from ulnet import Node
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.lnd.o2ib import NiState
from ulnet.nid import Nid

PORTAL, BITS = 30, 7
SIZES = (0, 1, 3976, 3977, 65_536, 1_000_003, 1 << 20)
ROUNDS = 8


async def serve(own: str) -> None:
    """Memory for one PUT at a time."""
    async with Node() as node:
        node.add_ni(own)
        node.attach(PORTAL, BITS, bytearray(1 << 20), options=OP_PUT | OP_GET | TRUNCATE | MANAGE_REMOTE)
        print("serving", flush=True)
        await asyncio.Event().wait()


async def move(own: str, to: str) -> None:
    """PUT and GET of each size, and many small ones at once."""
    async with Node() as node:
        node.add_ni(own)
        for size in SIZES:
            for _ in range(ROUNDS):
                data = os.urandom(size)
                assert await node.put(to, PORTAL, BITS, data, timeout=60) == size
                back = bytearray(size)
                assert await node.get(to, PORTAL, BITS, back, timeout=60) == size
                assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest(), size
            print("moved", ROUNDS, "times", size, "bytes", flush=True)
        many = [node.put(to, PORTAL, BITS, b"x" * 100, timeout=120) for _ in range(500)]
        assert await asyncio.gather(*many) == [100] * 500
        state = node.core.nis[Nid.parse(own)].lnd_data
        assert isinstance(state, NiState)
        assert state.registrations.count == 0 and not state.in_hand, "registrations that are not released"
        print("all is well", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[2]) if sys.argv[1] == "serve" else move(*sys.argv[2:]))
