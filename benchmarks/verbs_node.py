"""Runs in a guest: PUTs or GETs of ulnet over o2ib, a window of them under way; what each costs."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import INFINITE, MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.lnd.o2ib.rdma_pair import RdmaPair
from ulnet.nid import Nid

PORTAL, BITS = 30, 7
WARM = 5.0  # seconds before anything is counted: an emulator translates code when it runs first


async def serve(own: str, size: int) -> None:
    """Memory that is written again and again."""
    async with Node() as node:
        node.add_ni(own)
        options = OP_PUT | OP_GET | TRUNCATE | MANAGE_REMOTE
        node.attach(PORTAL, BITS, bytearray(size), options=options, handler=lambda event: None)
        print("serving", flush=True)
        await asyncio.Event().wait()


class Counted:
    """Calls of the device by name."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def watch(self, pair: RdmaPair) -> None:
        for name in ("_post_send", "_post_recv", "_poll", "_notify"):
            setattr(pair, name, self._counting(name, getattr(pair, name)))

    def _counting(self, name: str, call: Any) -> Any:
        self.calls[name] = 0

        def counted(*arguments: Any) -> Any:
            self.calls[name] += 1
            return call(*arguments)

        return counted


async def load(kind: str, own: str, to: str, size: int, seconds: float, window: int) -> None:
    """Keep a window under way; bytes in a second, CPU and calls of each."""
    async with Node() as node:
        node.add_ni(own)
        await node.ping(to)
        done, ended = 0, asyncio.Event()
        wanted = EventKind.ACK if kind == "put" else EventKind.REPLY
        until = float("inf")

        def again() -> None:
            if kind == "put":
                node.core.put(md, target, PORTAL, BITS)
            else:
                node.core.get(md, target, PORTAL, BITS)

        def handle(event: Event) -> None:
            nonlocal done
            assert not event.status, event
            if event.kind is wanted:
                done += 1
                if time.monotonic() < until:
                    again()
                else:
                    ended.set()

        target = Nid.parse(to)
        md = node.core.memory.md_bind(bytearray(size), handle, threshold=INFINITE)
        for _ in range(window):
            again()
        await asyncio.sleep(WARM)
        counted = Counted()
        state: Any = node.core.nis[Nid.parse(own)].lnd_data
        for peer in state.peers.values():
            for conn in peer.conns:
                counted.watch(conn.pair)
        done, begin, cpu = 0, time.monotonic(), time.process_time()
        until = begin + seconds
        await ended.wait()
        count, took, used = done, time.monotonic() - begin, time.process_time() - cpu
        calls = {name.strip("_"): round(number / count, 2) for name, number in counted.calls.items()}
        print(
            json.dumps(
                {"rate": count * size / took, "each": count / took, "cpu": used / count, "calls": calls}
            )
        )
        await asyncio.sleep(1.0)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "serve":
        asyncio.run(serve(words[1], int(words[2])))
    else:
        asyncio.run(load(words[0], words[1], words[2], int(words[3]), float(words[4]), int(words[5])))
