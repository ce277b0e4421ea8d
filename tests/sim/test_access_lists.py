"""Access lists in the simulator: its driver asks them as that of tcp does, and random runs find mistakes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from ulnet.control.access import access_of
from ulnet.core.access import Access
from ulnet.core.reception import Reception
from ulnet.lnd.sim import SimLnd, SimStation
from ulnet.sim.node import SimNode
from ulnet.sim.random_run import RECIPES, find_failure, replay
from ulnet.sim.simulation import Simulation

Patch = pytest.MonkeyPatch


def two(sim: Simulation) -> tuple[SimNode, SimNode]:
    nodes = sim.node("a"), sim.node("b")
    for number, node in enumerate(nodes, 1):
        node.add_ni(f"10.0.0.{number}@tcp")
        node.attach(30)
    return nodes


def deny(node: SimNode, *rules: str) -> None:
    node.loop.enter(node.core.set_access, access_of(deny=rules))


def put(sim: Simulation, source: SimNode, target: SimNode, size: int = 10) -> Any:
    operation = source.put(target.nid, 30, 0, bytes(size))
    sim.run_until_quiet()
    return operation


def test_who_is_denied_is_not_called() -> None:
    sim = Simulation(1)
    a, b = two(sim)
    deny(a, "10.0.0.2@tcp")
    refused = put(sim, a, b)
    assert refused.status == -errno.EACCES
    assert "is denied connect" in refused.reason


def test_who_is_denied_cannot_call_and_can_when_the_rule_is_gone() -> None:
    sim = Simulation(1)
    a, b = two(sim)
    deny(b, "10.0.0.1@tcp")
    assert put(sim, a, b).status
    assert not b.inboxes[0].deliveries
    deny(b)
    sim.run(100.0)
    assert put(sim, a, b).ok


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_connection_with_who_is_denied_now_ends(size: int) -> None:
    sim = Simulation(1)
    a, b = two(sim)
    assert put(sim, a, b).ok
    before = len(b.inboxes[0].deliveries)
    under_way = a.put(b.nid, 30, 0, bytes(size))
    deny(b, "10.0.0.1@tcp")
    sim.run_until_quiet()
    assert under_way.status
    assert len(b.inboxes[0].deliveries) == before
    sim.check_at_rest()


def nobody_is_denied(patch: Patch) -> None:
    """The deny list is not asked who may connect."""
    patch.setattr(Access, "why_denied", lambda self, nid, ni, what="connect": "")


def rule_of_portals_forgotten(patch: Patch) -> None:
    """Portals are open to all."""
    patch.setattr(Reception, "_is_admitted", lambda self, receiver, hdr: True)


def connections_stay(patch: Patch) -> None:
    """Rules count for new connections alone."""
    patch.setattr(SimLnd, "access_changed", lambda self, ni: None)


def callers_are_let_in(patch: Patch) -> None:
    """The driver asks of those alone whom it calls itself."""
    patch.setattr(SimStation, "why_denied", lambda self, nid: "")


@pytest.mark.pure  # methods that the compiled build calls without looking them up
@pytest.mark.parametrize(
    "bug", [nobody_is_denied, rule_of_portals_forgotten, connections_stay, callers_are_let_in]
)
def test_a_planted_mistake_is_found(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        bug(patch)
        found = find_failure(RECIPES["access"], range(1, 40), shrink_runs=100)
        assert found is not None, "not found in 40 runs"
        seed, plan, why = found
        assert "came to memory" in why
        assert len(plan.events) <= 6
    assert replay(RECIPES["access"], seed, plan=plan).ok, "it fails without the mistake too"
