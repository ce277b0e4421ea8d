"""Worlds with routers in the simulator; nodes are ours or of the generation before multi-rail."""

from __future__ import annotations

from collections.abc import Sequence

from ulnet.nid import Net, Nid
from ulnet.sim import SimNode, Simulation
from ulnet.sim.foreign import Heard, SingleRailNode
from ulnet.sim.routed import gate_at_rest
from ulnet.wire.lnet import Header
from ulnet.wire.ping import Feature, PingInfo

__all__ = [
    "INTERVAL",
    "PORTAL",
    "SETTLED",
    "OldEnd",
    "SingleRailRouter",
    "add_route",
    "gate_at_rest",
    "make_router",
    "old_end",
    "old_router",
    "quick_checks",
    "why_down",
]

PORTAL = 30
INTERVAL = 5  # seconds between checks of gateways in these worlds, so that tests are short
SETTLED = 2 * (INTERVAL + 5) + 2.0  # by then a router is announced, and all have seen it


class SingleRailRouter(SingleRailNode):
    """A router of the generation before multi-rail: it passes on what names another net."""

    forwarded = 0

    def info(self) -> PingInfo:
        """It routes."""
        told = super().info()
        return PingInfo(told.features & ~int(Feature.RTE_DISABLED), told.pid, told.sequence, told.entries)

    def _answer(self, heard: Heard) -> None:
        hdr = heard.hdr
        if hdr.dest_nid == heard.at:
            super()._answer(heard)
            return
        via = next((nid for nid in self.nids if nid.net == hdr.dest_nid.net), None)
        if via is not None:
            self.forwarded += 1
            self.send(via, hdr.dest_nid, hdr, heard.payload)


class OldEnd(SingleRailNode):
    """An end node of that generation, which reaches other nets by one gateway."""

    gateway: Nid

    def put_over(self, to: Nid, data: bytes) -> None:
        """Send a PUT that wants no ACK to a node on another net."""
        hdr = Header(1, to, self.nid, 12345, 12345, len(data), match_bits=0, portal=PORTAL)
        self.send(self.nid, self.gateway, hdr, data)


def old_router(sim: Simulation, name: str, *nids: str) -> SingleRailRouter:
    """A router of the generation before multi-rail."""
    host, known = sim._host(name, nids)
    return sim._keep(SingleRailRouter(name, host, known))


def old_end(sim: Simulation, name: str, nid: str, gateway: str, *others: str) -> OldEnd:
    """An end node of that generation; it pings all of its gateways, and sends over the first."""
    host, known = sim._host(name, [nid])
    made = sim._keep(
        OldEnd(name, host, known, lambda heard: sim.ledger.delivered(heard.hdr.hdr_data, heard.payload))
    )
    made.gateway = Nid.parse(gateway)

    def check() -> None:  # as the router checker of that generation did
        for one in (gateway, *others):
            made.ping(made.nid, Nid.parse(one))
        sim.scheduler.after(INTERVAL, check)

    check()
    return made


def quick_checks(node: SimNode) -> None:
    """Check gateways often; also in its next life."""

    def set_pace() -> None:
        settings = node.core.gateways.settings
        settings.alive_router_check_interval = INTERVAL
        settings.router_ping_timeout = 5

    node.loop.enter(set_pace)
    node._startup.append(set_pace)


def make_router(node: SimNode) -> SimNode:
    """Let a node route, from now on and in its next life."""
    quick_checks(node)

    def enable() -> None:
        node.core.router.enable(True)

    node.loop.enter(enable)
    node._startup.append(enable)
    return node


def add_route(
    node: SimNode, net: str, gateways: str | Sequence[str], hops: int = -1, priority: int = 0
) -> None:
    """Reach a net over gateways, from now on and in its next life."""
    names = [gateways] if isinstance(gateways, str) else gateways
    quick_checks(node)

    def add() -> None:
        for name in names:
            node.core.gateways.add(Net.parse(net), Nid.parse(name), hops, priority)

    node.loop.enter(add)
    node._startup.append(add)


def why_down(node: SimNode) -> dict[str, str]:
    """Of each route of a node, by net and gateway, why it cannot be used."""
    gateways = node.core.gateways
    return {f"{route.net} {route.gateway}": gateways.why_down(route) for route in gateways.table}
