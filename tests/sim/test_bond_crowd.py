"""Bonding NIs that connect anew, many at once: first messages arrive, though some overtake their HELLO."""

from __future__ import annotations

import pytest

from support.bonded import ScriptedBond, bond_of, bond_yaml, bonded
from ulnet.dlc.model_bond import BondOptions, BondSet
from ulnet.nid import Nid
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode
from ulnet.sim.traffic import Operation
from ulnet.wire.bond import BondHello, Configuration, SlaveEntry

STRANGE = "another node of that net sent it than its source"
A, B = ([f"10.{rail}.0.{at}@tcp{rail or ''}" for rail in range(3)] for at in (1, 2))
B_BOND = "10.0.0.2@bond0"


class Crowd:
    """Nodes with two rails, the first of which is slow; all send to all. The last one is a data server."""

    def __init__(self, seed: int, count: int, mode: str, served: bool) -> None:
        self.sim = Simulation(seed=seed)
        options: dict[str, object] = {"mode": mode}
        if served:
            options["bds"] = [f"10.0.0.{count}@tcp"]
        self.nodes: list[SimNode] = [self._node(f"n{at}", at, options) for at in range(1, count + 1)]

    def _node(self, name: str, number: int, options: dict[str, object]) -> SimNode:
        node = self.sim.node(name)
        nids = f"10.0.0.{number}@tcp", f"10.1.0.{number}@tcp1"
        for nid, delay in zip(nids, (0.004, 0.0001), strict=True):
            self.sim.add_port(node, nid, LinkParams(delay=delay, jitter=delay))
            node.add_ni(nid)
        assert not node.configure(bond_yaml(*nids, **options))
        return node

    def talk(self) -> None:
        for node in self.nodes:
            node.attach(30, keep_data=False)
        self.sim.run(3)  # who registers has done so
        operations: list[Operation] = []
        for node in self.nodes:
            for there, other in enumerate(self.nodes, 1):
                if other is not node:
                    operations += [node.put(f"10.0.0.{there}@bond0", 30, data=b"x") for _ in range(4)]
        self.sim.run_until(lambda: all(one.ended for one in operations), 300)
        assert [one.reason for one in operations if not one.ok] == []
        assert [node.core.stats.drops[STRANGE] for node in self.nodes] == [0] * len(self.nodes)


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
@pytest.mark.parametrize("served", [True, False])
def test_first_messages_of_a_crowd_arrive(seed: int, mode: str, served: bool) -> None:
    crowd = Crowd(seed, 2 + 3 * seed, mode, served)
    crowd.talk()
    for node in crowd.nodes[::2]:
        node.restart()
    crowd.talk()
    crowd.sim.run_until_quiet()


@pytest.mark.requirement("BOND-hello")
def test_messages_wait_while_the_peer_asks_slaves_that_are_gone() -> None:
    """It believes a slave that is new to it when it has waited for those that it knows, which are down."""
    sim = Simulation(seed=1)
    a = bonded(sim, "a", *A[:2], mode="loadbalance")
    b = bonded(sim, "b", *B, mode="loadbalance")
    b.attach(30)
    first = a.put(B_BOND, 30, data=b"x")
    sim.run_until(lambda: first.ended, 10)
    a.add_ni(A[2])
    sim.link_down("a.eth0")
    sim.link_down("a.eth1")
    a.request(BondSet(str(bond_of(a).ni.nid), [*A], BondOptions()))
    puts = [a.put(B_BOND, 30, data=b"x") for _ in range(4)]
    sim.run_until(lambda: all(put.ended for put in puts), 60)
    assert [put.reason for put in puts if not put.ok] == []
    assert b.core.stats.drops[STRANGE] == 0
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-hello")
def test_messages_do_not_wait_for_ever_for_a_peer_that_does_not_say_what_it_took() -> None:
    """Its HELLO set out before ours came, which it had from another slave than our first one."""
    sim = Simulation(seed=1)
    a = bonded(sim, "a", A[0], "10.0.1.1@tcp", mode="loadbalance")
    b = ScriptedBond(sim, "b", "10.0.0.2@tcp")
    sim.link_down("a.eth0")
    put = a.put(b.bond, 30, data=b"x", ack=False)
    sim.run_until(lambda: bool(b.hellos), 10)
    b.hello(Nid.parse("10.0.1.1@tcp"), 0)
    peer = bond_of(a).peers[b.bond]
    sim.run(0.1)
    assert peer.connected
    sim.run(20)
    assert put.ok, put.reason
    assert len(b.data) == 1
    assert len(b.hellos) < 6
    assert peer.told == bond_of(a).incarnation
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-hello")
def test_many_peers_hear_of_a_change_in_several_turns() -> None:
    """4,000 HELLOs left in one turn, in which the node did nothing else."""
    sim = Simulation(seed=1)
    node = bonded(sim, "a", *A[:2], mode="standby")
    bond = bond_of(node)
    for number in range(2, 202):
        first = Nid.parse(f"10.0.0.{number}@tcp")
        configuration = Configuration(Nid.parse(f"10.0.0.{number}@bond0"), (SlaveEntry(first),))
        hello = BondHello(5, bond.incarnation, configuration, (3,))
        node.loop.enter(bond.handshake.take_hello, hello, bond.slaves.nis[0], first)
    for peer in bond.peers.values():  # the answers of this node have arrived
        peer.greeting = False
    assert [peer.connected for peer in bond.peers.values()] == [True] * 200
    bond.renew()
    assert sum(peer.greeting for peer in bond.peers.values()) == 64
    bond.renew()  # once more meanwhile
    sim.run(0.01)
    assert sum(peer.greeting for peer in bond.peers.values()) == 200
