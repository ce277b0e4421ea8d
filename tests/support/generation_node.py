"""A node of a chosen generation on real sockets, told by lines of JSON what to do: see `main`.

`old` is LNet before Multi-Rail: no bit for it in its ping info, no pushes taken, nobody discovered.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import PING_PORTAL
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

PORTAL = 30


def make_old(node: Node, nids: list[str]) -> None:
    """Take from a node what the older generation did not have."""
    core = node.core
    core.discovery.stop()
    core.info.stop()
    core.memory.set_lazy(PING_PORTAL, False)
    push, ping = core.info._push, core.info._ping
    assert push is not None
    assert ping is not None
    core.memory.md_unlink(push)
    entries = [NiEntry(Nid.parse(nid), NiStatus.UP) for nid in nids]
    info = PingInfo(int(Feature.NI_STATUS | Feature.RTE_DISABLED), LNET_PID, NiStatus.UP, entries)
    data = memoryview(info.pack())
    ping.fragments = [data]
    ping.length = data.nbytes


async def main(generation: str, *nids: str) -> None:
    """Commands: {"put": NID, "count": N}, {"peer": NID}, {"heard": true} (who sent PUTs, from which NID)."""
    async with Node() as node:
        for nid in nids:
            node.add_ni(nid)
        if generation == "old":
            make_old(node, list(nids))
        heard: list[str] = []

        def on_put(event: Event) -> None:
            if event.kind is EventKind.PUT:
                heard.append(str(event.source))

        node.attach(PORTAL, 1, bytearray(64), options=OP_PUT | MANAGE_REMOTE, handler=on_put)
        print(json.dumps("ready"), flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(await _do(node, json.loads(line), heard)), flush=True)


async def _do(node: Node, command: dict[str, Any], heard: list[str]) -> Any:
    if "put" in command:
        for _ in range(command["count"]):
            await node.put(command["put"], PORTAL, 1, b"hello")
        return "done"
    if "peer" in command:
        peer = node.core.peers.find(Nid.parse(command["peer"]))
        return None if peer is None else [peer.multi_rail, sorted(map(str, peer.nids()))]
    return [sorted(set(heard)), len(heard), node.core.stats.drop_count]


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
