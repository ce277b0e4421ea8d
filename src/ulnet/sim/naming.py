"""Random runs of discovery with upper layers that name peers: what must hold of a name at any time."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from ulnet.core.peer_rules import named
from ulnet.sim.discovering import prepare as prepare_discovery
from ulnet.sim.discovering import random_discoveries
from ulnet.sim.node import SimNode
from ulnet.sim.plan import Event, Plan
from ulnet.sim.recipe import Recipe, register
from ulnet.sim.run import Run

__all__ = ["RECIPE", "names_last", "random_names"]


def names_last(node: SimNode) -> str:
    """The first name given in this life of a node stays its peer's; the others may give way to earlier ones.

    A name that gave way is any NID from then on, even if its node falls apart again.
    """
    earliest = min((locked_at for _, locked_at in node.names), default=0)
    for name, locked_at in node.names:
        peer = node.core.peers.find(name)
        if locked_at == earliest:
            if peer is None:
                return f"{name}, which an upper layer named, is no peer's"
            if not named(peer):
                return f"{name} was locked, and peer {peer.primary_nid} ({peer.flags:#x}) is not"
            if peer.primary_nid != name:
                return f"{name} was named before {peer.primary_nid}, which took its place"
        elif peer is not None and named(peer) and peer.primary_nid != name and peer.locked_at > locked_at:
            return f"{name} was named before {peer.primary_nid}, which took its place"
    return ""


def prepare(run: Run) -> None:
    """Look at names all the time, besides discovery."""
    prepare_discovery(run)
    run.sim.properties.append(names_last)


def random_names(seed: int) -> Plan:
    """Random discoveries, in which nodes are told of some NIDs of others; all are truly of one node."""
    plan = random_discoveries(seed)
    rng = Random(f"names/{seed}")
    ours = [name for name, node in plan.nodes.items() if node.kind == "node"]
    told = []
    for _ in range(rng.randint(1, 6)):
        name = rng.choice(ours)
        nids = plan.nodes[rng.choice([other for other in plan.nodes if other != name])].nids
        some = rng.sample(nids, rng.randint(1, len(nids)))
        at = round(rng.choice([0.0, 2e-4, 2e-3, 0.02, 1.0]) * rng.random(), 9)
        told.append(Event(at=at, kind="name_peer", words={"node": name, "nids": some}))
    events = sorted([*plan.events, *told], key=lambda event: event.at)
    return msgspec.structs.replace(plan, events=events)


RECIPE: Final = Recipe(random_names, (prepare,), "peers that are named while they discover each other")
register("naming", RECIPE)
