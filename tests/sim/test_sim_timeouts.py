"""Receivers that do not read on: what real connections do then, with the same time-outs."""

from __future__ import annotations

import errno

import pytest

from support.routed import SETTLED, add_route, make_router
from ulnet.core.drops import IN_DOUBT
from ulnet.core.status import HealthStatus
from ulnet.core.tunables import LndTunables
from ulnet.sim import LinkParams, SimNode, Simulation

LAZY = 31
BIG = 100_000


def pair(timeout: int = 10, **link: float | bool) -> tuple[Simulation, SimNode, SimNode]:
    """Two nodes whose NIs have that time-out, and a connection between them; the second has a lazy portal."""
    sim = Simulation(1, link=LinkParams(**link))  # type: ignore[arg-type]
    nodes = [sim.node(name) for name in "ab"]
    for number, node in enumerate(nodes, 1):
        node.add_ni(f"10.0.0.{number}@tcp", lnd_tunables=LndTunables(timeout=timeout))
        node.core.set_discovery(0)
    a, b = nodes
    b.attach(30)
    b.core.memory.set_lazy(LAZY)
    a.put(b.nid, 30, data=b"connect")
    sim.run_until_quiet()
    return sim, a, b


def failures(node: SimNode) -> int:
    return (
        node.core.stats.by_status[HealthStatus.REMOTE_TIMEOUT]
        + (node.core.stats.by_status[HealthStatus.NETWORK_TIMEOUT])
    )


@pytest.mark.parametrize("ordered", [True, False])
def test_a_large_message_that_nobody_reads_times_out_at_its_sender(ordered: bool) -> None:
    sim, a, b = pair(ordered=ordered)
    put = a.put(b.nid, LAZY, data=bytes(BIG), timeout=100)
    sim.run(9.9)
    assert put.events == []
    sim.run(2.0)
    assert failures(a) == 1
    sim.run_until_quiet()
    assert put.ended
    assert not put.ok
    assert b.core.stats.drops["its connection closed while it waited for a match"] >= 1


def test_what_is_read_in_time_does_well() -> None:
    sim, a, b = pair()
    put = a.put(b.nid, LAZY, data=bytes(BIG))
    sim.run(9.0)
    b.attach(LAZY)
    sim.run_until_quiet()
    assert put.ok
    assert failures(a) == 0


def test_a_large_message_counts_as_sent_only_when_it_is_read() -> None:
    sim, a, b = pair()
    put = a.put(b.nid, LAZY, data=bytes(BIG), ack=False)
    sim.run(5.0)
    assert put.events == []
    b.attach(LAZY)
    sim.run_until_quiet()
    assert put.ok


def test_small_messages_wait_with_the_receivers_host_for_as_long_as_it_takes() -> None:
    sim, a, b = pair()
    put = a.put(b.nid, LAZY, data=bytes(2000), ack=False)
    sim.run(100.0)
    assert put.ok
    assert failures(a) == 0
    inbox = b.attach(LAZY)
    sim.run_until_quiet()
    assert len(inbox) == 1


def test_a_large_message_behind_one_that_is_not_read_times_out_too() -> None:
    sim, a, b = pair()
    a.put(b.nid, LAZY, data=bytes(2000), ack=False)
    sim.run(5.0)
    behind = a.put(b.nid, 30, data=bytes(BIG), timeout=100)
    sim.run(9.5)
    assert failures(a) == 0
    sim.run(3.0)
    assert failures(a) == 1
    sim.run_until_quiet()
    assert behind.ended


def slow_pair() -> tuple[Simulation, SimNode, SimNode]:
    """A link on which BIG takes a second."""
    return pair(rate=1e5, delay=1e-4, jitter=0.0)


def test_the_rest_of_a_message_comes_when_the_cable_is_back() -> None:
    sim, a, b = slow_pair()
    put = a.put(b.nid, 30, data=bytes(BIG))
    sim.run(0.5)
    cut = sim.partition([a], [b])
    sim.run(3.0)
    assert put.status is None
    sim.heal(cut)
    sim.run_until_quiet()
    assert put.ok
    assert failures(a) == failures(b) == 0


def test_a_message_that_does_not_go_on_fails_at_its_receiver() -> None:
    sim, a, b = slow_pair()
    inbox = b.attach(32)
    a.put(b.nid, 32, data=bytes(BIG), timeout=100)
    sim.run(0.5)
    sim.partition([a], [b])
    sim.run(9.0)
    assert len(inbox) == 0
    assert b.core.stats.msgs_alloc == 1
    sim.run(3.0)
    assert b.core.stats.msgs_alloc == 0
    assert [delivery.status for delivery in inbox.deliveries if delivery.status] == [-errno.ETIMEDOUT]
    sim.heal()
    sim.run_until_quiet()


def test_a_message_whose_sender_lost_its_power_fails_at_its_receiver() -> None:
    sim, a, b = slow_pair()
    inbox = b.attach(32)
    a.put(b.nid, 32, data=bytes(BIG))
    sim.run(0.5)
    a.kill(silent=True)
    sim.run(11.0)
    assert [delivery.status for delivery in inbox.deliveries] == [-errno.ETIMEDOUT]
    sim.run_until_quiet()


def test_a_sender_whose_message_waits_for_a_routers_buffer_times_out() -> None:
    sim = Simulation(1)
    router = make_router(sim.node("r", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
    client, server = sim.node("c"), sim.node("s", "10.2.0.1@tcp2")
    client.add_ni("10.1.0.1@tcp1", lnd_tunables=LndTunables(timeout=10))
    add_route(client, "tcp2", "10.1.0.9@tcp1")
    add_route(server, "tcp1", "10.2.0.9@tcp2")
    server.core.memory.set_lazy(LAZY)
    sim.run(SETTLED)
    router.loop.enter(router.core.router.set_buffers, None, None, 1)
    first = client.put(server.nid, LAZY, data=bytes(BIG), timeout=200)
    second = client.put(server.nid, LAZY, data=bytes(BIG), timeout=200)
    sim.run(9.0)  # the first has the buffer, for the server does not read it; the second waits
    assert first.events == ["SEND"]
    assert second.events == []
    assert failures(client) == 0
    sim.run(3.0)
    assert failures(client) == 1
    server.attach(LAZY)
    sim.run_until_quiet(400)
    assert first.ok
    assert second.ended


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("reset_lost", [True, False])
def test_what_lay_unread_on_a_host_that_lost_its_power_times_out_at_its_sender(
    ordered: bool, reset_lost: bool
) -> None:
    """Nobody is left to tell the sender; with `reset_lost` the receiver's end was closed a moment before."""
    sim, a, b = pair(ordered=ordered)
    put = a.put(b.nid, LAZY, data=bytes(BIG), timeout=100)
    behind = a.put(b.nid, LAZY, data=bytes(BIG), timeout=100)
    sim.run(1.0)
    if reset_lost:
        b.del_ni(b.nid)
    b.kill(silent=True)
    sim.run(8.9)
    assert put.events == behind.events == []
    sim.run(0.2)
    assert failures(a) == 2
    sim.run_until_quiet()
    assert put.ended
    assert behind.ended


def test_a_host_that_is_back_resets_a_connection_of_its_former_life() -> None:
    sim, a, b = pair()
    put = a.put(b.nid, LAZY, data=bytes(BIG), timeout=100)
    sim.run(1.0)
    b.kill(silent=True)
    sim.run(1.0)
    b.restart()
    sim.run(3.0)
    assert failures(a) == 0
    assert put.events
    sim.run_until_quiet()
    assert put.ended


@pytest.mark.parametrize("ack", [False, True])
def test_small_puts_that_a_broken_connection_may_have_cost_are_counted(ack: bool) -> None:
    """Those with an ACK are not: that tells."""
    sim, a, b = pair()
    sim.partition(["a"], ["b"])
    puts = [a.put(b.nid, 30, data=bytes(100), ack=ack) for _ in range(3)]
    sim.run(5)
    assert {tuple(put.events) for put in puts} == {("SEND",)}
    sim.run_until_quiet()
    assert a.core.stats.drops[IN_DOUBT] == (0 if ack else 3)
    assert any("up to 3 PUTs without ACK may be lost" in line for line in a.reports) != ack
