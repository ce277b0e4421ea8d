"""PUTs are sent again where their path was lost, and delivered once: between nodes that keep identities."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.peer import PeerFlag
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode
from ulnet.sim.random_run import Recipe, Shape, find_failure, random_plan
from ulnet.sim.run import Run
from ulnet.sim.scenario import scenario_text
from ulnet.sim.traffic import Operation

RATE = 1e8
LND_TIMEOUT = 50.0
COUNT = 40


def acquainted(sim: Simulation, guards: tuple[bool, bool] = (True, True)) -> tuple[SimNode, SimNode]:
    """Two nodes with two rails, which have discovered each other."""
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim.node("b", "10.0.0.2@tcp", "10.1.0.2@tcp1")
    for node, guard in zip((a, b), guards, strict=True):
        node.core.state.guards = guard
        node.core.info.rebuild()
        node.core.discovery.tell_peers()
    b.attach(30)
    for _ in range(4):
        a.put(b.nid, 30, data=b"hello")
        sim.run_until_quiet()
    return a, b


def load(a: SimNode, b: SimNode, size: int = 100_000, count: int = COUNT) -> list[Operation]:
    return [a.put(b.nid, 30, data=bytes([n % 256]) * size) for n in range(count)]


def once(a: SimNode, b: SimNode, puts: list[Operation]) -> None:
    """All were acknowledged, and delivered whole exactly once."""
    assert [put for put in puts if not put.ok] == []
    times = b.inboxes[0].times
    assert [times[put.number] for put in puts] == [1] * len(puts)


def some_on(sim: Simulation, b: SimNode, port: str) -> None:
    """Until the rail is in use, and more is under way on it."""
    before = b.host.ports[port].received
    sim.run_until(lambda: b.host.ports[port].received > before + 120_000)


CUTS = {
    "link down near": lambda sim: sim.link_down("a.eth1"),
    "link down far": lambda sim: sim.link_down("b.eth1"),
    "black hole": lambda sim: sim.partition(["a.eth1"], ["b.eth1"]),
    "black hole there": lambda sim: sim.partition(["a.eth1"], ["b.eth1"], both=False),
    "black hole back": lambda sim: sim.partition(["b.eth1"], ["a.eth1"], both=False),
}


@pytest.mark.requirement("HEALTH-resend", "snd-045")
@pytest.mark.parametrize("size", [500, 100_000])
@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_rail_costs_no_acknowledged_put(cut: str, size: int) -> None:
    sim = Simulation(seed=cut, link=LinkParams(rate=RATE))
    a, b = acquainted(sim)
    puts = load(a, b, size, COUNT if size > 1000 else 1000)
    some_on(sim, b, "eth1")
    began = sim.now
    CUTS[cut](sim)
    sim.run_until(lambda: all(put.ended for put in puts), LND_TIMEOUT + 30, must=False)
    assert all(put.status == 0 for put in puts)
    assert sim.now - began <= LND_TIMEOUT + 0.2
    once(a, b, puts)
    sim.heal()
    for port in ("a.eth1", "b.eth1"):
        sim.link_up(port)
    sim.run_until_quiet()  # what was left on the rail comes late
    once(a, b, puts)
    assert a.core.stats.resend_count > 0
    assert sim.ledger.duplicates == 0


def test_only_what_has_left_is_sent_twice_when_the_peer_tells_of_its_rail() -> None:
    sim = Simulation(seed=3, link=LinkParams(rate=RATE))
    a, b = acquainted(sim)
    puts = load(a, b, count=200)
    some_on(sim, b, "eth1")
    sim.link_down("b.eth1")  # most of them wait for credits of that rail
    sim.run_until(lambda: all(put.ended for put in puts), LND_TIMEOUT + 30, must=False)
    once(a, b, puts)
    assert 0 < a.core.stats.resend_count < 20
    sim.link_up("b.eth1")
    sim.run_until_quiet()
    once(a, b, puts)


@pytest.mark.parametrize("seconds", [0.3, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("cut", ["black hole", "black hole back", "link down far"])
def test_late_originals_are_recognised(cut: str, seconds: float) -> None:
    sim = Simulation(seed=3, link=LinkParams(rate=RATE))
    a, b = acquainted(sim)
    puts = load(a, b)
    some_on(sim, b, "eth1")
    CUTS[cut](sim)
    sim.run(seconds)
    more = load(a, b)
    sim.heal()
    sim.link_up("b.eth1")
    sim.run_until_quiet()
    once(a, b, puts + more)
    assert a.core.stats.resend_count > 0


@pytest.mark.parametrize("cut", CUTS)
def test_a_peer_without_guard_gets_no_resend_of_what_may_have_arrived(
    cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = Simulation(seed=cut, link=LinkParams(rate=RATE))
    a, b = acquainted(sim, guards=(True, False))
    of_a = a.core.memory

    def identify(memory: Memory, msg: Msg, md: Md, tag: bytes) -> None:
        assert memory is not of_a, "a peer without guard gets no identities"
        msg.wmd = md.wmd

    monkeypatch.setattr(Memory, "identify", identify)
    puts = load(a, b)
    some_on(sim, b, "eth1")
    CUTS[cut](sim)
    sim.run(LND_TIMEOUT + 1)
    sim.heal()
    sim.run_until_quiet(2000)
    assert sim.ledger.duplicates == 0
    if cut.startswith("black hole"):
        assert not all(put.ok for put in puts)  # without the guard, these are reported


def test_a_restarted_peer_is_not_given_what_its_former_life_may_have() -> None:
    sim = Simulation(seed=5, link=LinkParams(rate=RATE))
    a, b = acquainted(sim)
    puts = load(a, b)
    some_on(sim, b, "eth1")
    b.kill(silent=True)
    sim.run(0.5)
    b.restart()
    sim.run_until_quiet(2000)
    assert sim.ledger.duplicates == 0
    assert not all(put.ok for put in puts)
    again = load(a, b)
    sim.run_until_quiet()
    assert all(put.ok for put in again)


def lose_and_wait_for_discovery(a: SimNode, b: SimNode) -> None:
    """All that a has under way to b may be lost; b must be asked for its NIDs before it gets more."""
    peer = a.core.peers.find(b.nid)
    assert peer is not None
    peer.mark(remove=PeerFlag.NIDS_UPTODATE)
    for ni in list(a.core.nis.values()):
        a.loop.enter(a.core.health.again.lost, ni, None)
    a.sim.run(0.1)
    assert peer.parked


@pytest.mark.requirement("HEALTH-resend")
def test_a_put_that_waits_to_set_out_again_and_is_answered_meanwhile_stays() -> None:
    sim = Simulation(seed=3, link=LinkParams(rate=RATE))
    a, b = acquainted(sim)
    a.loop.enter(a.core.memory.set_lazy, 31)
    stuck = [b.put(nid, 31, data=b"x", source=source) for nid, source in zip(a.nids, b.nids, strict=True)]
    sim.run(1.0)
    puts = load(a, b, count=20)
    sim.run(1.0)  # their answers wait behind what waits for memory
    assert not any(put.ended for put in puts)
    assert all(b.inboxes[0].times[put.number] == 1 for put in puts)
    before = a.core.stats.send_count
    lose_and_wait_for_discovery(a, b)
    a.loop.enter(a.core.memory.set_lazy, 31, False)
    sim.run_until_quiet()
    once(a, b, puts)
    assert not any(put.ok for put in stuck)
    assert a.core.stats.resend_count == 0
    assert a.core.stats.send_count - before < 5  # of discovery


def test_a_put_that_waited_for_discovery_is_counted_when_it_sets_out_again() -> None:
    sim = Simulation(seed=3, link=LinkParams(rate=RATE))
    a, b = acquainted(sim)
    sim.partition(["b.eth0", "b.eth1"], ["a.eth0", "a.eth1"], both=False)
    puts = load(a, b, size=100, count=20)
    sim.run(0.02)
    assert not any(put.ended for put in puts)
    lose_and_wait_for_discovery(a, b)
    before = a.core.stats.send_count
    sim.heal()
    sim.run_until_quiet()
    once(a, b, puts)
    assert a.core.stats.resend_count == a.core.stats.send_count - before > 0


SHAPE = Shape(rails=(2, 3), messages=(10, 60), faults=(6, 20), foreign=0.0, configured=0.3)


def with_guards(share: float):  # type: ignore[no-untyped-def]
    def prepare(run: Run) -> None:
        def judge(run: Run) -> str:
            return "" if not run.sim.ledger.duplicates else f"{run.sim.ledger.duplicates} duplicates"

        for at, node in enumerate(run.sim.nodes.values()):
            if share < 1 and at % 2:
                node.core.state.guards = False
                node.core.info.rebuild()
                node.core.discovery.tell_peers()
        run.judges.append(judge)

    return prepare


@pytest.mark.requirement("HEALTH-resend")
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_nothing_is_delivered_twice_by_chance(share: float, tmp_path: Path) -> None:
    recipe = Recipe(lambda seed: random_plan(seed, SHAPE), (with_guards(share),), "guards")
    resends = 0

    def after(seed: int, run: Run) -> None:
        nonlocal resends
        resends += sum(node.core.stats.resend_count for node in run.sim.nodes.values())

    first = int(os.environ.get("ULNET_SEED", "0"))
    found = find_failure(recipe, range(first, first + int(os.environ.get("ULNET_SEEDS", "60"))), after=after)
    if found is not None:
        seed, plan, why = found
        (tmp_path / "failed.yaml").write_text(scenario_text(plan))
        pytest.fail(f"seed {seed}: {why}\n{scenario_text(plan)}")
    assert resends > 60
