"""A peer whose process was killed: who waits for its answers is told, and who watches peers."""

from __future__ import annotations

import asyncio
import errno
import sys

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid

PORTAL = 30
NID = "127.0.0.2@tcp"
PEER = """
import asyncio, sys
from ulnet import Node
from ulnet.lnd.tcp import TcpParams

async def main():
    params = TcpParams(accept="all", accept_port=int(sys.argv[1]), reserved_ports=False)
    async with Node(tcp=params) as node:
        node.add_ni("127.0.0.2@tcp")
        node.core.memory.set_lazy(30)
        print("ready", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


async def started(port: int) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PEER, str(port), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def ended(process: asyncio.subprocess.Process) -> None:
    process.kill()
    assert process.stdout is not None
    await process.stdout.read()
    await process.wait()


async def test_who_waits_for_a_killed_process_is_told(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    told: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    params = TcpParams(accept="all", accept_port=port, reserved_ports=False)
    process = await started(port)
    try:
        async with asyncio.timeout(60), Node(tcp=params) as node:
            node.add_ni("127.0.0.1@tcp")
            stop = node.watch_peers(lambda nid, there, reason: told.put_nowait((str(nid), there)))
            await node.discover(NID)
            peer = node.core.peers.find_ni(Nid.parse(NID))
            assert peer is not None
            pushed = peer.stats.sent[1]
            put = asyncio.ensure_future(node.put(NID, PORTAL, 0, b"nobody takes it"))
            while peer.stats.sent[1] == pushed:
                await asyncio.sleep(0.01)
            await ended(process)
            with pytest.raises(LNetError, match="the peer is gone") as failed:
                await put
            assert failed.value.errno == errno.ECONNREFUSED
            assert await told.get() == (NID, False)
            process = await started(port)
            while True:
                try:
                    await node.ping(NID)
                    break
                except LNetError:
                    await asyncio.sleep(0.05)
            assert await told.get() == (NID, True)
            stop()
            assert not node.core.health.presence.watchers
    finally:
        if process.returncode is None:
            await ended(process)
