"""Random failures of slaves, paths, peers and servers: the invariants hold, and all recovers."""

from __future__ import annotations

from random import Random

import pytest

from support.bonded import bond_of, bonded
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model_bond import BondFailover, BondOptions, BondSet, BondSwitch
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode

SERVERS = ["10.0.0.1@tcp", "10.1.0.2@tcp1"]
POLICIES = ("roundrobin", "weights", "dynamic", "congestion")
NODES = 4


class Run:
    """One random run: four nodes, of which two are servers, with two or three slaves each."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"bonds/{seed}")
        ordered = rng.random() < 0.7
        self.sim = Simulation(seed=seed, link=LinkParams(ordered=ordered, loss=rng.choice((0, 0, 0.01))))
        self.nodes: list[SimNode] = []
        for number in range(1, NODES + 1):
            options: dict[str, object] = {"keepalive": 1, "bds": SERVERS}
            if rng.random() < 0.5:
                options |= {"mode": "loadbalance", "policy": rng.choice(POLICIES)}
            else:
                options["failback"] = rng.choice(("return", "stay"))
            nids = [f"10.{rail}.0.{number}@tcp{rail}" for rail in range(rng.choice((2, 3)))]
            self.nodes.append(bonded(self.sim, f"n{number}", *nids, **options))
        for node in self.nodes:
            node.attach(30, keep_data=False)
        self.down: list[str] = []
        self.dead: list[SimNode] = []

    def bond(self, node: SimNode) -> str:
        return str(bond_of(node).ni.nid)

    def traffic(self) -> None:
        alive = [node for node in self.nodes if node.alive]
        for _ in range(self.rng.randrange(1, 12)):
            node, other = self.rng.choice(alive), self.rng.choice(self.nodes)
            number = self.nodes.index(other) + 1
            target = f"10.0.0.{number}@" + self.rng.choice(("bond0", "bond0", "bond0", "tcp0"))
            size = self.rng.choice((0, 100, 5000, 200_000))
            if self.rng.random() < 0.7:
                node.put(target, 30, data=bytes(size), ack=self.rng.random() < 0.8)
            else:
                node.get(target, 30, size=size)

    def fault(self) -> None:
        rng, sim = self.rng, self.sim
        node = rng.choice(self.nodes)
        port = f"{node.name}.eth{rng.randrange(2)}"
        what = rng.choice(("down", "up", "cut", "heal", "kill", "start", "switch", "change", "failover"))
        if what == "down":
            sim.link_down(port)
            self.down.append(port)
        elif what == "up" and self.down:
            sim.link_up(self.down.pop())
        elif what == "cut":
            sim.partition(
                [port], [rng.choice([n for n in self.nodes if n is not node])], both=rng.random() < 0.7
            )
        elif what == "heal":
            sim.heal()
        elif what == "kill" and not self.dead:
            node.kill(silent=rng.random() < 0.5)
            self.dead.append(node)
        elif what == "start" and self.dead:
            self.dead.pop().restart()
        elif node.alive and what in ("switch", "change", "failover"):
            self.command(node, what)

    def command(self, node: SimNode, what: str) -> None:
        bond = bond_of(node)
        nid = self.bond(node)
        try:
            if what == "switch":
                slave = str(self.rng.choice(bond.config.slaves))
                node.request(BondSwitch(nid, slave, self.rng.random() < 0.7))
            elif what == "failover":
                node.request(BondFailover(nid))
            else:
                mode = self.rng.choice(("standby", "loadbalance"))
                node.request(BondSet(nid, None, BondOptions(mode)))
        except DlcError:
            pass  # the last slave that is on; no backup; no active slave: refused with the reason

    def recover(self) -> None:
        """Everything works again: whoever sends gets through, by every bonding NID, within a few minutes."""
        self.sim.heal()
        for port in self.down:
            self.sim.link_up(port)
        for node in self.dead:
            node.restart()
        for node in self.nodes:
            for slave in bond_of(node).config.slaves:
                node.request(BondSwitch(self.bond(node), str(slave), True))
        self.sim.run(120)
        missing = [(one, other) for one in self.nodes for other in self.nodes]
        for _ in range(20):
            tried = [(one, other, one.put(self.bond(other), 30, data=b"again")) for one, other in missing]
            self.sim.run_until(lambda tried=tried: all(put.ended for *_, put in tried), 400)  # type: ignore[misc]
            missing = [(one, other) for one, other, put in tried if not put.ok]
            if not missing:
                break
            self.sim.run(15)
        assert not missing, [(str(one), str(other)) for one, other in missing]
        self.sim.run_until_quiet()


def run(seed: int, rounds: int) -> None:
    one = Run(seed)
    for _ in range(rounds):
        one.traffic()
        if one.rng.random() < 0.6:
            one.fault()
        one.sim.run(one.rng.choice((0.0005, 0.01, 0.3, 3.0)))
    one.recover()  # at rest all has ended, everything was given back, and nothing was delivered twice


@pytest.mark.requirement("BOND-health", "LND-bond")
@pytest.mark.parametrize("seed", range(12))
def test_random_failures(seed: int) -> None:
    run(seed, 40)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_random_failures(seed: int) -> None:
    run(seed, 60)
