"""Fault rules on simulated nodes: the same requests, the same seed, the same trace (spec net-fault.md)."""

from __future__ import annotations

from ulnet.core.faults import Fault, FaultKind
from ulnet.dlc.documents_faults import FaultDocument, FaultView
from ulnet.dlc.model import StatsReset
from ulnet.dlc.model_faults import FaultAdd, FaultShow
from ulnet.nid import ANY_NID
from ulnet.sim import Simulation
from ulnet.sim.node import SimNode


def two_rails(seed: int, *, trace: bool = False) -> tuple[Simulation, SimNode, SimNode]:
    sim = Simulation(seed=seed, trace=trace)
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim.node("b", "10.0.0.2@tcp", "10.1.0.2@tcp1")
    a.add_peer("10.0.0.2@tcp", "10.1.0.2@tcp1")
    b.add_peer("10.0.0.1@tcp", "10.1.0.1@tcp1")
    return sim, a, b


def shown(node: SimNode, kind: str) -> list[FaultView]:
    document = node.request(FaultShow(kind)).document  # type: ignore[arg-type]
    assert isinstance(document, FaultDocument)
    return document.fault


def test_what_a_rule_fails_when_it_is_sent_is_resent_and_arrives_once() -> None:
    sim, a, b = two_rails(5)  # with some seeds the rule strikes one message three times
    inbox = b.attach(30)
    a.request(FaultAdd("drop", "*", "*", rate=10, portals=[30], health_errors=["local_dropped"]))
    puts = [a.put("10.0.0.2@tcp", 30, data=bytes(1000)) for _ in range(100)]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert len(inbox) == 100
    (rule,) = shown(a, "drop")
    assert rule.ds_dropped == rule.fs_put
    assert 10 <= rule.fs_put <= 14
    assert a.core.stats.resend_count == rule.ds_dropped
    assert a.core.stats.by_status[2] == rule.ds_dropped


def test_what_was_sent_again_is_known_after_the_counters_are_reset() -> None:
    """The ledger allows as many deliveries twice as messages were sent again."""
    sim, a, b = two_rails(3)
    b.attach(30)
    a.request(FaultAdd("drop", "*", "*", rate=10, portals=[30], health_errors=["local_dropped"]))
    for _ in range(100):
        a.put("10.0.0.2@tcp", 30, data=bytes(1000))
    sim.run_until_quiet()
    before = sum(a.resends)
    assert before
    a.request(StatsReset())
    sim.run_until_quiet()
    assert a.core.stats.resend_count == 0
    assert sum(a.resends) == before


def test_delays_take_virtual_time() -> None:
    sim, a, b = two_rails(4)
    inbox = b.attach(30)
    a.put("10.0.0.2@tcp", 30)
    sim.run_until_quiet()
    b.core.faults.add(Fault(FaultKind.DELAY, ANY_NID, ANY_NID, rate=1, latency=7, messages=2))
    before = sim.now
    put = a.put("10.0.0.2@tcp", 30)
    sim.run(6.9)
    assert len(inbox) == 1
    sim.run_until(lambda: put.ended, 1)
    assert put.ok
    assert 7 <= sim.now - before < 7.5
    sim.run_until_quiet()


def run(seed: int) -> str:
    sim, a, b = two_rails(seed, trace=True)
    b.attach(30)
    for node in (a, b):
        node.request(FaultAdd("drop", "*", "*", rate=5, health_errors=["random"], portals=[30]))
        node.request(FaultAdd("delay", "*", "*@tcp", rate=3, latency=0.2))
    for _ in range(60):
        a.put("10.0.0.2@tcp", 30, data=bytes(500))
    sim.run_until_quiet()
    return sim.digest


def test_one_seed_strikes_the_same_messages() -> None:
    assert run(11) == run(11)
    assert run(11) != run(12)


def test_a_node_that_dies_takes_what_it_held_along() -> None:
    sim, a, b = two_rails(5)
    b.attach(30)
    for node in (a, b):
        node.core.faults.add(Fault(FaultKind.DELAY, ANY_NID, ANY_NID, rate=2, latency=50))
    for _ in range(20):
        a.put("10.0.0.2@tcp", 30, data=bytes(20_000))
    sim.run(1)
    b.kill()
    sim.run(1)
    b.restart()
    a.core.faults.delete(FaultKind.DELAY)
    sim.run_until_quiet()
