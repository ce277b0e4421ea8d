"""A node of a chosen generation on real sockets, told by lines of JSON what to do: see `main`.

`old` is LNet before Multi-Rail: no bit for it in its ping info, no pushes taken, nobody discovered.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from ulnet import Node
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.core.routing.state import RoutingState
from ulnet.core.routing.table import UNDEFINED_HOPS
from ulnet.core.status import LNetError
from ulnet.nid import LNET_PID, Net, Nid
from ulnet.wire.lnet import PING_PORTAL
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

PORTAL = 30
INTERVAL = 1  # seconds between checks of gateways
PATIENCE = 3  # seconds more until a router is announced
LATE = 60  # and, from then on, until it takes a net without checks for down: a busy machine may be late


def take_no_pushes(core: LNet) -> None:
    """From now on pushes find no memory, as on a node of a generation that has no discovery."""
    core.info.stop()
    core.memory.set_lazy(PING_PORTAL, False)
    for md in list(core.memory.mds.values()):
        if md.options & OP_PUT and md.me is not None and md.me.portal.index == PING_PORTAL:
            core.memory.md_unlink(md)


class Member:
    """One node, the routes that it has, and what it heard."""

    def __init__(self, node: Node, old: bool, nids: list[str]) -> None:
        self.node = node
        self.old = old
        self.heard: list[str] = []  # from which NID each PUT came
        self._checks: list[asyncio.Task[None]] = []
        for nid in nids:
            node.add_ni(nid)
        settings = node.core.gateways.settings
        settings.change({"alive_router_check_interval": INTERVAL, "router_ping_timeout": PATIENCE})
        if old:
            self._forget_rails()
        node.attach(PORTAL, 1, bytearray(64), options=OP_PUT | MANAGE_REMOTE, handler=self._on_put)

    def _on_put(self, event: Event) -> None:
        if event.kind is EventKind.PUT:
            self.heard.append(str(event.source))

    def _forget_rails(self) -> None:
        """Take from the node what the older generation did not have."""
        core = self.node.core
        core.discovery.stop()
        take_no_pushes(core)
        self._tell(Feature.NI_STATUS | Feature.RTE_DISABLED)

    def _tell(self, features: Feature) -> None:
        """What a node of that generation answers to pings."""
        core = self.node.core
        ping = core.info._ping
        assert ping is not None
        entries = [NiEntry(nid, NiStatus.UP) for nid in core.nis if nid.net != Net.parse("lo")]
        data = memoryview(PingInfo(int(features), LNET_PID, NiStatus.UP, entries).pack())
        ping.fragments = [data]
        ping.length = data.nbytes

    async def route(self) -> str:
        """Be a router, until it may be announced."""
        router = self.node.core.router
        router.enable(True)
        while router.state is not RoutingState.ENABLED:
            await asyncio.sleep(0.05)
        self.node.core.gateways.settings.change({"router_ping_timeout": LATE})
        if self.old:
            self._tell(Feature.NI_STATUS)
        return "done"

    async def reach(self, net: str, gateways: list[str]) -> str:
        """Have routes to a net, and wait until all can be used."""
        table = self.node.core.gateways
        for gateway in gateways:
            table.add(Net.parse(net), Nid.parse(gateway), UNDEFINED_HOPS, 0)
            if self.old:
                self._checks.append(asyncio.ensure_future(self._check(gateway)))
        while any(table.why_down(route) for route in table.table):
            await asyncio.sleep(0.05)
        return "done"

    async def _check(self, gateway: str) -> None:
        """Ask a gateway now and then, as the router checker of that generation did."""
        while True:
            try:
                await self.node.ping(gateway, timeout=INTERVAL)
            except LNetError as failed:
                print(f"{gateway}: {failed}", file=sys.stderr)
            await asyncio.sleep(INTERVAL)

    async def put(self, target: str, count: int) -> str:
        """Send so many PUTs, one after the other."""
        for _ in range(count):
            await self.node.put(target, PORTAL, 1, b"hello")
        return "done"

    def peer(self, nid: str) -> Any:
        """Whether a peer is Multi-Rail, and its NIDs."""
        found = self.node.core.peers.find(Nid.parse(nid))
        return None if found is None else [found.multi_rail, sorted(map(str, found.nids()))]

    def counts(self) -> dict[str, int]:
        """What was dropped, and what passed through."""
        stats = self.node.core.stats
        return {"dropped": stats.drop_count, "routed": stats.route_count}

    async def close(self) -> None:
        """Ask no gateway any more."""
        for check in self._checks:
            check.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)


async def main(generation: str, *nids: str) -> None:
    """Commands: {"put": NID, "count": N}, {"peer": NID}, {"counts": true}, {"route": true} (be a router),
    {"reach": NET, "over": [NID]}, {"heard": true} (from which NIDs how many PUTs came).
    """
    async with Node() as node:
        member = Member(node, generation == "old", list(nids))
        print(json.dumps("ready"), flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(await _do(member, json.loads(line))), flush=True)
        await member.close()


async def _do(member: Member, command: dict[str, Any]) -> Any:
    if "put" in command:
        return await member.put(command["put"], command["count"])
    if "peer" in command:
        return member.peer(command["peer"])
    if "route" in command:
        return await member.route()
    if "reach" in command:
        return await member.reach(command["reach"], command["over"])
    if "counts" in command:
        return member.counts()
    return [sorted(set(member.heard)), len(member.heard)]


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
