"""Random worlds in which a router's routing is switched and its NIs come and go while peers discover it.

When all is quiet, whoever has a peer at a NID of the router that it can reach knows all its NIDs, and only
these. The router keeps an NI on a net of each peer: who could not be told at all that the NIDs it knew went
holds them for those of another node, until that one says otherwise or its peer is deleted.
"""

from __future__ import annotations

from random import Random

import pytest

from ulnet.core.peer import PeerFlag
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.sim import SimNode, Simulation
from ulnet.sim.discovering import discovery_in_order

PORTAL = 30
DISCOVERED = int(PeerFlag.DISCOVERED)


class World:
    """A router with up to six NIs, and up to three peers on some of its nets."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = Random(f"routers/{seed}")
        self.sim = Simulation(seed)
        self.sim.properties.append(discovery_in_order)
        rails, each = rng.randint(1, 3), rng.randint(1, 2)
        self.nids = [f"10.{rail}.0.{8 + at}@tcp{rail or ''}" for rail in range(rails) for at in range(each)]
        self.router = self.sim.node("r", *self.nids)
        self.peers = [self._peer(number, rails) for number in range(rng.randint(1, 3))]
        for node in (self.router, *self.peers):
            node.attach(PORTAL)
            pace = {"alive_router_check_interval": rng.choice([5, 60]), "router_ping_timeout": 5}
            node.loop.enter(node.core.gateways.set, pace)

    def _peer(self, number: int, rails: int) -> SimNode:
        mine = sorted(self.rng.sample(range(rails), self.rng.randint(1, rails)))
        return self.sim.node(f"p{number}", *(f"10.{rail}.0.{20 + number}@tcp{rail or ''}" for rail in mine))

    def play(self) -> None:
        """All that happens; then ten minutes in which nobody does anything."""
        rng = self.rng
        time = rng.choice([0.005, 0.5, 5.0, 300.0])
        steps = [(rng.random() * time, self.meet) for _ in range(rng.randint(2, 6))]
        steps += [(rng.random() * time, self.switch) for _ in range(rng.randint(1, 5))]
        for _ in range(rng.randint(1, 6)):
            at = rng.random() * time
            steps += [(at, self.delete), (at + rng.choice([1e-5, 1e-3, 0.1, 30.0]), self.add)]
        for at, step in sorted(steps, key=lambda one: one[0]):
            self.sim.run(max(at - self.sim.now, 0.0))
            try:
                step()
            except LNetError:
                pass  # the NID is a peer's by now
        self.sim.run(600.0)

    def meet(self) -> None:
        """Somebody sends something, or discovers the router."""
        rng, peer = self.rng, self.rng.choice(self.peers)
        nid, how = Nid.parse(rng.choice(self.nids)), rng.random()
        if how < 0.4:
            discover = peer.core.discovery.discover
            peer.loop.enter(lambda: discover(nid, force=how < 0.2, done=lambda error, found: None))
        elif how < 0.8:
            peer.put(nid, PORTAL, data=b"x")
        else:
            self.router.put(rng.choice(peer.nids), PORTAL, data=b"x")

    def switch(self) -> None:
        """Routing is switched on or off."""
        self.router.loop.enter(self.router.core.router.enable, self.rng.random() < 0.6)

    def delete(self) -> None:
        """An NI of the router goes, unless it is the last one on the nets of a peer."""
        going = self.rng.choice(self.router.nids)
        left = {nid.net for nid in self.router.nids if nid != going}
        if all(left & {nid.net for nid in peer.nids} for peer in self.peers):
            self.router.del_ni(going)

    def add(self) -> None:
        """An NI of the router comes back, if any is away."""
        away = [nid for nid in self.nids if Nid.parse(nid) not in self.router.nids]
        if away:
            self.router.add_ni(self.rng.choice(away))

    def differing(self) -> list[str]:
        """Peers that hold another set of NIDs for the router's than it has."""
        has = set(self.router.nids)
        return [
            f"{node} knows {sorted(map(str, peer.members))}, the router has {sorted(map(str, has))}"
            for node in self.peers
            for peer in node.core.peers
            if peer.flags & DISCOVERED and has & set(peer.members) and set(peer.members) != has
        ]


@pytest.mark.requirement("HLD-fsm", "dyn-050")
@pytest.mark.parametrize("start", range(0, 200, 50))
def test_whoever_knows_a_router_knows_its_nis_when_all_is_quiet(start: int) -> None:
    for seed in range(start, start + 50):
        world = World(seed)
        world.play()
        assert world.differing() == [], f"seed {seed}"
