"""Faults by chance: nothing twice, nothing silently lost, and all well again when they stop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ulnet.core.ni import MAX_HEALTH
from ulnet.nid import LO_NID, Nid
from ulnet.sim.node import SimNode
from ulnet.sim.random_run import Recipe, Shape, find_failure, random_plan, replay
from ulnet.sim.run import Run
from ulnet.sim.scenario import scenario_text
from ulnet.sim.simulation import Simulation

SLICES = 4
PER_SLICE = 100
SHAPE = Shape(rails=(2, 3), messages=(5, 30), faults=(4, 16), foreign=0.0, configured=0.7)
RECOVERED_WITHIN = 4000.0  # virtual seconds: the longest pause between pings is 900


def consistent(node: SimNode) -> str:
    """What health says of itself agrees, at any time."""
    core = node.core
    recovery = core.health.recovery
    for ni in core.nis.values():
        if not 0 <= ni.health <= MAX_HEALTH:
            return f"{ni.nid} has health {ni.health}"
        if ni.up != (not ni.fatal and not ni.reported_down) or (ni.reported_down and ni.health == MAX_HEALTH):
            return f"{ni.nid} is {'up' if ni.up else 'down'} at {ni.health}"
        if (ni.health < MAX_HEALTH) != (ni in recovery.local.patients()):
            return f"{ni.nid} has health {ni.health}, not so in recovery"
        if ni.health < MAX_HEALTH and not ni.unhealthy:
            return f"{ni.nid} has health {ni.health} and is not watched"
    for pni in core.peers.nis():
        if not 0 <= pni.health <= MAX_HEALTH:
            return f"peer NI {pni.nid} has health {pni.health}"
        sick = pni.health < MAX_HEALTH and pni.heard_at >= 0
        if sick != (pni in recovery.peers.patients()):
            return f"peer NI {pni.nid} has health {pni.health}, heard {pni.heard_at}, not so in recovery"
    counted = core.stats.by_status
    if any(sum(ni.health_stats.by_status[at] for ni in core.nis.values()) > counted[at] for at in range(11)):
        return "an NI counted more failures than the node"
    return ""


def prepare(run: Run) -> None:
    run.sim.properties.append(consistent)
    run.judges.append(once_and_well)


def once_and_well(run: Run) -> str:
    """At the end: nothing came twice, every message was told of, and whoever can be well is."""
    sim = run.sim
    if sim.ledger.duplicates:
        return f"{sim.ledger.duplicates} messages were delivered twice"
    crashes = any(event.kind in ("kill", "restart") for event in run.plan.events)
    for operation in run.operations:
        if operation.status is None and not crashes:  # a node that crashes takes its own along
            return f"{operation} never ended"
    sim.run_until(lambda: all_well(sim), RECOVERED_WITHIN, must=False)
    sick = [f"{node} {nid} {health}" for node, nid, health in unwell(sim)]
    if sick:
        return f"not well again: {', '.join(sick)}"
    if any(node.core.health.resender.pausing for node in sim.nodes.values() if node.alive):
        return "a message still pauses between attempts"
    sim.run_until_quiet()
    return ""


def all_well(sim: Simulation) -> bool:
    return not any(True for _ in unwell(sim))


def unwell(sim: Simulation) -> Iterator[tuple[SimNode, Nid, int]]:
    """Those that should be well by now: local NIs, and peer NIs that exist and were heard from."""
    there: dict[Nid, SimNode] = {
        nid: node for node in sim.nodes.values() if node.alive for nid in node.core.nis
    }
    for node in sim.nodes.values():
        if not node.alive:
            continue
        nets = {ni.net.net for ni in node.core.nis.values()}
        for ni in node.core.nis.values():
            if ni.health < MAX_HEALTH:
                yield node, ni.nid, ni.health
        for pni in node.core.peers.nis():
            reached = pni.nid != LO_NID and pni.nid in there and pni.nid.net in nets
            if reached and pni.heard_at >= 0 and pni.health < MAX_HEALTH:
                yield node, pni.nid, pni.health


RECIPE = Recipe(lambda seed: random_plan(seed, SHAPE), (prepare,), "health: many faults, then recovery")
REGRESSIONS: dict[int, str] = {}


def run_all(seeds: range, tmp_path: Path) -> None:
    events = resends = 0

    def after(seed: int, run: Run) -> None:
        nonlocal events, resends
        events += sum(event.kind not in ("put", "get", "ping", "repair") for event in run.plan.events)
        resends += sum(node.core.stats.resend_count for node in run.sim.nodes.values())

    found = find_failure(RECIPE, seeds, after=after)
    if found is not None:
        seed, plan, why = found
        path = tmp_path / "failed.yaml"
        path.write_text(scenario_text(plan))
        pytest.fail(f"seed {seed}: {why}\n{scenario_text(plan)}")
    assert events > 5 * len(seeds)  # the runs are worth something
    assert resends > len(seeds) / 4


@pytest.mark.requirement("HEALTH-resend", "HEALTH-value", "HEALTH-monitor", "snd-050")
@pytest.mark.parametrize("part", range(SLICES))
def test_faults_by_chance_duplicate_nothing_and_leave_nobody_sick(part: int, tmp_path: Path) -> None:
    run_all(range(part * PER_SLICE, (part + 1) * PER_SLICE), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_very_many_faults(part: int, tmp_path: Path) -> None:
    """ULNET_SIM_HEALTH_RUNS says how many runs (10,000 unless told otherwise), of some ten faults each."""
    count = int(os.environ.get("ULNET_SIM_HEALTH_RUNS", "10000")) // 20
    run_all(range(1_000_000 + part * count, 1_000_000 + (part + 1) * count), tmp_path)


@pytest.mark.parametrize("seed", REGRESSIONS or [7], ids=str)
def test_what_failed_once_does_well(seed: int) -> None:
    outcome = replay(RECIPE, seed, thorough=True)
    assert outcome.ok, outcome.failure


@pytest.mark.requirement("hlt-005", "hlt-010", "snd-080", "snd-085", "HEALTH-resend")
@pytest.mark.parametrize("end", ["a.eth0", "b.eth0"], ids=["near", "far"])
def test_a_rail_is_cut_and_comes_back(end: str) -> None:
    """Only what the cut rail's connection had taken may fail; the rest goes over the other one."""
    sim = Simulation(seed=7)
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim.node("b", "10.0.0.2@tcp", "10.1.0.2@tcp1")
    a.add_peer("10.0.0.2@tcp", "10.1.0.2@tcp1")
    b.add_peer("10.0.0.1@tcp", "10.1.0.1@tcp1")
    inbox = b.attach(30)
    first = [a.put("10.0.0.2@tcp", 30, data=bytes(100_000)) for _ in range(100)]
    sim.run(0.0005)
    sim.link_down(end)
    later = [a.put("10.0.0.2@tcp", 30, data=bytes(1000)) for _ in range(20)]
    sim.run_until_quiet()
    assert sum(not put.ok for put in first) <= 8  # the credits of one peer NI
    assert sim.ledger.duplicates == 0
    assert len(inbox) >= sum(put.ok for put in (*first, *later))
    assert any(put.ok for put in later)
    sim.link_up(end)
    sim.run_until(lambda: all_well(sim), RECOVERED_WITHIN)
    assert all(not node.core.health.recovery.busy for node in (a, b))
    used = [a.put("10.0.0.2@tcp", 30, data=bytes(1000)) for _ in range(20)]
    sim.run_until_quiet()
    assert all(put.ok for put in used)
    peer = a.core.peers.find(Nid.parse("10.0.0.2@tcp"))
    assert peer is not None
    assert min(pni.stats.sent[1] for pni in peer.members.values()) > 0
