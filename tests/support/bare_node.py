"""A node that sends PUTs without ACK, told by lines of JSON what to do: see `main`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from ulnet import Node
from ulnet.core.event import Event
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.core.tunables import LndTunables, NetTunables
from ulnet.nid import Nid

PORTAL = 30
TIMEOUT = 3  # seconds


async def main(nid: str) -> None:
    """Commands: {"put": NID, "size": BYTES, "count": N}, {"ended": true} (status and reason of each),
    {"taken": true} (how many came here), {"drops": true} (the node's drops by reason).
    """
    ended: list[tuple[int, str]] = []
    taken = 0

    def on_put(event: Event) -> None:
        nonlocal taken
        taken += 1

    async with Node() as node:
        tunables = NetTunables(peer_credits=256)
        node.add_ni(nid, tunables=tunables, lnd_tunables=LndTunables(timeout=TIMEOUT))
        node.attach(PORTAL, 1, bytearray(1 << 20), options=OP_PUT | MANAGE_REMOTE, handler=on_put)
        print(json.dumps("ready"), flush=True)
        loop = asyncio.get_running_loop()

        def do(command: dict[str, Any]) -> Any:
            nonlocal taken
            if "put" in command:
                for _ in range(command["count"]):
                    md = node.core.memory.md_bind(
                        bytes(command["size"]),
                        lambda event: ended.append((event.status, event.reason)),
                        threshold=1,
                    )
                    node.core.put(md, Nid.parse(command["put"]), PORTAL, 1, ack=False)
                return "put"
            if "ended" in command:
                answer, ended[:] = list(ended), []
                return answer
            return taken if "taken" in command else dict(node.core.stats.drops)

        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(do(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
