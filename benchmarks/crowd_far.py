"""The other side of many peers: nodes with two rails each, in one process. `crowd_far.py COUNT PORT`."""

from __future__ import annotations

import asyncio
import sys

from competitors.ulnet_base import CREDITS, PORTAL, new_node
from ulnet import Node
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.core.tunables import NetTunables

SIZE = 1 << 14  # bytes of the largest message


def nids_of(number: int) -> tuple[str, str]:
    """Of that node."""
    return f"127.2.{number >> 8}.{number & 255}@tcp", f"127.3.{number >> 8}.{number & 255}@tcp1"


async def _serve(count: int, port: int) -> None:
    inbox = bytearray(SIZE)
    nodes: list[Node] = []
    for number in range(count):
        node = new_node(port)
        await node.start()
        nodes.append(node)
        for nid in nids_of(number):
            node.add_ni(nid, tunables=NetTunables(peer_credits=CREDITS))
        options = OP_PUT | MANAGE_REMOTE | TRUNCATE
        node.attach(PORTAL, 1, inbox, options=options, handler=lambda event: None)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until who started this is gone
    for node in nodes:
        await node.close(0)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
