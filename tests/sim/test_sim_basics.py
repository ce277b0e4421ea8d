"""Nodes on the virtual network: messages, faults, lives."""

from __future__ import annotations

import asyncio
import errno
import gc

from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode


def pair(sim: Simulation) -> tuple[SimNode, SimNode]:
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim.node("b", "10.0.0.2@tcp", "10.1.0.2@tcp1")
    a.add_peer("10.0.0.2@tcp", "10.1.0.2@tcp1")
    return a, b


def test_put_get_and_ping_over_two_rails() -> None:
    sim = Simulation(seed=1)
    a, b = pair(sim)
    inbox = b.attach(30)
    puts = [a.put("10.0.0.2@tcp", 30, data=bytes([n]) * 100_000) for n in range(20)]
    get = a.get("10.0.0.2@tcp", 30, size=5000)
    ping = a.ping("10.0.0.2@tcp")
    sim.run_until_quiet()
    assert all(operation.ok and operation.ended for operation in (*puts, get, ping))
    assert sorted(delivery.data[0] for delivery in inbox.deliveries if delivery.data) == list(range(20))
    assert {str(delivery.source) for delivery in inbox.deliveries} == {"10.0.0.1@tcp", "10.1.0.1@tcp1"}
    assert sim.now < 0.1


def test_operations_that_ended_keep_no_payload() -> None:
    class Payload(bytes):
        gone = 0

        def __del__(self) -> None:
            Payload.gone += 1

    sim = Simulation(seed=1)
    a, b = pair(sim)
    b.attach(30, keep_data=False)
    a.put("10.0.0.2@tcp", 30, data=b"the first tells who has the NID")
    sim.run_until_quiet()
    put = a.put("10.0.0.2@tcp", 30, data=Payload(100_000))
    sim.run_until_quiet()
    gc.collect()
    assert put.ok
    assert Payload.gone == 1


def test_a_cut_rail_loses_only_what_was_on_it() -> None:
    sim = Simulation(seed=7, link=LinkParams(rate=1e8))
    a, b = pair(sim)
    a.core.settings.retry_count = 0
    inbox = b.attach(30)
    puts = [a.put("10.0.0.2@tcp", 30, data=bytes(100_000)) for _ in range(20)]
    sim.run_until(lambda: b.host.ports["eth1"].received > 100_000)
    sim.link_down("b.eth1")
    assert b.core.nis[b.nids[1]].fatal
    sim.run_until_quiet()
    assert any(put.ok for put in puts)
    assert any(not put.ok for put in puts)
    assert len(inbox) >= sum(put.ok for put in puts)


def test_a_killed_process_refuses_and_a_restarted_one_answers() -> None:
    sim = Simulation(seed=2)
    a = sim.node("a", "10.0.0.1@tcp")
    b = sim.node("b", "10.0.0.2@tcp")
    a.core.settings.retry_count = 0
    inbox = b.attach(30)
    first = a.put(b.nid, 30, data=b"one")
    sim.run_until_quiet()
    cookie = b.core.state.cookie
    b.kill()
    sim.run(1)
    refused = a.put("10.0.0.2@tcp", 30, data=b"two")
    sim.run_until_quiet()
    b.restart()
    sim.run(5)
    again = a.put("10.0.0.2@tcp", 30, data=b"three")
    sim.run_until_quiet()
    assert (first.status, refused.status, again.status) == (0, -errno.ECONNREFUSED, 0)
    assert [delivery.data for delivery in inbox.deliveries] == [b"one", b"three"]
    assert b.core.state.cookie != cookie


def test_silence_ends_in_a_timeout_and_a_healed_partition_delivers() -> None:
    sim = Simulation(seed=3)
    a = sim.node("a", "10.0.0.1@tcp")
    b = sim.node("b", "10.0.0.2@tcp")
    a.core.settings.retry_count = 0
    b.attach(30)
    a.put(b.nid, 30, data=b"connects")
    sim.run_until_quiet()
    sim.partition([a], [b])
    late = a.put(b.nid, 30, data=b"late")
    sim.run(10)
    sim.heal()
    sim.run_until_quiet()
    assert late.ok
    sim.partition([a], [b])
    lost = a.put(b.nid, 30, data=bytes(50_000))
    sim.run_until_quiet()
    assert lost.status == -errno.ETIMEDOUT
    assert a.core.stats.by_status[HealthStatus.REMOTE_TIMEOUT] == 1


def test_the_same_seed_gives_the_same_trace() -> None:
    def digest(seed: int) -> str:
        sim = Simulation(seed, trace=True)
        a, b = pair(sim)
        b.attach(30)
        for _ in range(5):
            a.put(b.nid, 30, data=bytes(3000))
        sim.run_until_quiet()
        assert len(sim.trace) > 20
        return sim.digest

    assert digest(5) == digest(5)
    assert digest(5) != digest(6)


def test_a_coroutine_that_had_not_begun_dies_with_its_node() -> None:
    sim = Simulation(seed=1)
    a = sim.node("a", "10.0.0.1@tcp")
    begun: list[str] = []

    async def begin(name: str) -> None:
        begun.append(name)
        await asyncio.sleep(1)
        begun.append(f"{name} again")

    a.spawn(begin("first"))
    sim.run(0.1)
    a.spawn(begin("second"))
    a.kill()
    sim.run(5)
    assert begun == ["first"]
    gc.collect()  # would warn of a coroutine that was never awaited


def test_fault_events_are_counted_by_kind() -> None:
    sim = Simulation(seed=1)
    a, b = pair(sim)
    b.attach(30)
    a.put("10.0.0.2@tcp", 30, data=b"first")
    sim.run_until_quiet()
    assert not sim.fabric.faults
    sim.link_down("a.eth0")
    sim.link_up("a.eth0")
    cuts = sim.partition(["a"], ["b"])
    a.put("10.0.0.2@tcp", 30, data=b"lost at first")
    sim.run(1.0)
    sim.heal(cuts)
    sim.run_until_quiet()
    assert sim.fabric.faults.pop("losses") >= 2
    assert sim.fabric.faults == {"cables pulled": 1, "cuts": 2}
    b.kill()
    b.restart()
    b.del_ni("10.1.0.2@tcp1")
    sim.run_until_quiet()
    assert sim.fabric.faults["deaths"] == sim.fabric.faults["NIs removed"] == 1
    assert sim.fabric.faults["connections broken"] >= 1


def test_a_node_that_sleeps_does_nothing_until_it_wakes() -> None:
    sim = Simulation(seed=1)
    a, b = pair(sim)
    inbox = b.attach(30)
    a.put("10.0.0.2@tcp", 30, data=b"first")
    sim.run_until_quiet()
    woke: list[float] = []
    woken = a.loop.call_later(1.0, lambda: woke.append(sim.now))
    a.sleep(5.0)
    b.sleep(3.0)
    begun = sim.now
    small, large = (a.put("10.0.0.2@tcp", 30, data=bytes(size)) for size in (10, 100_000))
    sim.run(2.9)
    assert len(inbox) == 1
    assert not woken.cancelled()
    sim.run(2.0)
    assert len(inbox) == 3
    assert small.events == large.events == []
    assert woke == []
    sim.run(0.2)
    assert small.ok
    assert large.ok
    assert woke == [begun + 5.0]
    assert sim.fabric.faults == {"sleeps": 2}
    sim.run_until_quiet()


def test_a_node_that_dies_while_it_sleeps_begins_awake() -> None:
    sim = Simulation(seed=1)
    a, b = pair(sim)
    b.attach(30)
    b.sleep(100.0)
    b.restart()
    put = a.put("10.0.0.2@tcp", 30, data=b"now")
    sim.run(1.0)
    assert put.ok
    sim.run_until_quiet()


def test_connections_that_cannot_be_made_are_counted_by_cause() -> None:
    def causes(nid: str, wrong: str) -> set[str]:
        sim = Simulation(seed=3)
        a, b = pair(sim)
        if wrong == "dead":
            b.kill()
        elif wrong == "cut":
            sim.fabric.cut(a.host.ports.values(), b.host.ports.values())
        a.ping(nid, timeout=100.0)
        sim.run_until_quiet()
        pni = a.core.peers.find_ni(Nid.parse(nid))
        assert pni is not None
        return set(pni.health_stats.connects)

    assert causes("10.0.0.9@tcp", "") == {"addr_err"}
    assert causes("10.0.0.2@tcp", "dead") == {"connect_rej"}
    assert causes("10.0.0.2@tcp", "cut") == {"unreachable"}
    assert causes("10.0.0.2@tcp", "") == set()


def test_yaml_over_which_a_real_loop_has_turns_takes_no_virtual_time() -> None:
    """A node goes on between the rules of ip2nets, and between many gateways."""
    sim = Simulation(seed=1)
    node = sim.node("n")
    sim.add_port(node, "10.0.0.1@tcp")
    rules = "".join(f"\n  - net-spec: tcp{at or ''}\n    ip-range: {{0: 10.0.0.*}}" for at in range(3))
    assert node.configure(f"ip2nets:{rules}\n") == []
    assert node.configure('route: [{net: tcp9, gateway: "10.0.0.[2-99]@tcp"}]') == []
    assert [str(nid) for nid in node.core.nis] == ["0@lo", *(f"10.0.0.1@tcp{at or ''}" for at in range(3))]
    assert len(node.core.gateways.table) == 98
    assert sim.now == 0
