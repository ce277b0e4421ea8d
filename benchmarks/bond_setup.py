"""What Multi-Rail and bonding take to set up, counted in the simulator: commands, configuration, messages.

Counts are the same on every machine. Nodes have two rails; of those with bonds, one is a bonding data server.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import to_builtins

import rails  # noqa: F401 - puts the test kit's folder on the path
from support.bonded import bond_of, bonded
from ulnet.dlc.model import Export
from ulnet.dlc.yaml_out import emit_document
from ulnet.sim import Simulation
from ulnet.sim.node import SimNode
from ulnet.sim.traffic import Operation

__all__ = ["COMMANDS", "Setup", "bonding", "multi_rail", "table"]

NODES = 8
MESSAGES = 100  # on each connection
_SERVER = 8
_PORTAL = 30

COMMANDS = {
    "Multi-Rail": ("lnetctl net add --net tcp --if eth0", "lnetctl net add --net tcp1 --if eth1"),
    "bond": (
        "lnetctl net add --net tcp --if eth0",
        "lnetctl net add --net tcp1 --if eth1",
        "lnetctl net add --net bond0 --slaves '*@tcp,*@tcp1' --bds 10.0.0.8@tcp",
    ),
}


@dataclass(slots=True)
class Setup:
    """Of one node, or of one connection between two."""

    lines: int  # of its exported configuration
    messages: float  # of LNet's own, sent by all nodes, until MESSAGES PUTs are acknowledged on a connection
    lookups: float | None = None  # at all servers
    registrations: float | None = None  # of one node


def _nids(number: int) -> tuple[str, str]:
    return f"10.0.0.{number}@tcp", f"10.1.0.{number}@tcp1"


def _talk(sim: Simulation, nodes: list[SimNode], net: str) -> float:
    """All send to all; the messages a connection that were not theirs."""
    for node in nodes:
        node.attach(_PORTAL, keep_data=False)
    sim.run(1)  # whoever registers has done so
    before = sum(node.core.stats.send_count for node in nodes)
    ways = [(node, at + 1) for node in nodes for at, other in enumerate(nodes) if other is not node]
    operations: list[Operation] = []

    def done() -> bool:
        return all(one.ended for one in operations)

    for _ in range(MESSAGES):
        operations += [node.put(f"10.0.0.{there}@{net}", _PORTAL, data=b"x") for node, there in ways]
        sim.run_until(done)
    assert all(one.ok for one in operations)
    own = sum(node.core.stats.send_count for node in nodes) - before - 2 * len(operations)
    return own / len(ways)


def _lines(node: SimNode) -> int:
    return len(emit_document(to_builtins(node.request(Export(backup=True)).document)).splitlines())


def multi_rail() -> Setup:
    """Nodes that find each other by discovery."""
    sim = Simulation(seed=1)
    nodes = [sim.node(f"n{number}", *_nids(number)) for number in range(1, NODES + 1)]
    lines = _lines(nodes[0])
    return Setup(lines, _talk(sim, nodes, "tcp"))


def bonding() -> Setup:
    """Nodes that find each other by a bonding data server, which is one of them."""
    sim = Simulation(seed=1)
    servers = [_nids(_SERVER)[0]]
    nodes = [
        bonded(sim, f"n{number}", *_nids(number), mode="loadbalance", bds=servers)
        for number in range(1, NODES + 1)
    ]
    lines = _lines(nodes[0])
    messages = _talk(sim, nodes, "bond0")
    registry = bond_of(nodes[_SERVER - 1]).data.registry
    ways = NODES * (NODES - 1)
    return Setup(lines, messages, registry.lookups / ways, registry.registrations / (NODES - 1))


def table() -> list[str]:
    """Lines of markdown."""
    found = {"Multi-Rail": multi_rail(), "bond": bonding()}
    rows = {
        "commands on each node": [str(len(COMMANDS[name])) for name in found],
        "lines of its exported configuration": [str(one.lines) for one in found.values()],
        "messages of LNet's own a connection": [f"{one.messages:.1f}" for one in found.values()],
        "lookups at the data server a connection": [_or_none(one.lookups) for one in found.values()],
        "registrations a node": [_or_none(one.registrations) for one in found.values()],
    }
    return [
        f"What it takes to set up, counted in the simulator: {NODES} nodes with two rails, all of which send "
        f"{MESSAGES} acknowledged messages to all others; one of those with bonds is the data server.",
        "",
        "| | " + " | ".join(found) + " |",
        "| --- | ---: | ---: |",
        *(f"| {title} | " + " | ".join(cells) + " |" for title, cells in rows.items()),
    ]


def _or_none(number: float | None) -> str:
    return "–" if number is None else f"{number:.2f}"
