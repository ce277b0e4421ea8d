"""The virtual network: order, overtaking, rates, loss, stalls, half-open connections, removal of NIs."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ulnet.core.event import EventKind
from ulnet.core.status import HealthStatus, LNetError
from ulnet.core.tunables import NetTunables
from ulnet.dlc.model import GlobalSet, NetAdd, Ping
from ulnet.host import parse_topology
from ulnet.sim import LinkParams, NotQuiet, PlanError, SimNode, Simulation
from ulnet.wire.ping import MIN_INFO_SIZE, PingInfo

MANY = NetTunables(peer_credits=200, credits=200)


def plain_pair(sim: Simulation) -> tuple[SimNode, SimNode]:
    """Two nodes of one rail that neither discover nor resend, so that the wire alone is seen."""
    nodes = []
    for name, nid in (("a", "10.0.0.1@tcp"), ("b", "10.0.0.2@tcp")):
        node = sim.node(name)
        node.configure("global: {discovery: 0, retry_count: 0, health_sensitivity: 0}")
        node.add_ni(nid, tunables=MANY)
        nodes.append(node)
    return nodes[0], nodes[1]


def sequence(inbox: Any) -> list[int]:
    return [int.from_bytes(delivery.data[:4], "big") for delivery in inbox.deliveries]


def numbered(number: int, size: int) -> bytes:
    return number.to_bytes(4, "big") + bytes(size - 4)


def test_messages_of_one_kind_arrive_in_order_whatever_the_jitter_and_loss() -> None:
    sim = Simulation(1, link=LinkParams(jitter=0.01, loss=0.2))
    a, b = plain_pair(sim)
    inbox = b.attach(30)
    for number in range(60):
        a.put(b.nid, 30, data=numbered(number, 40))
    sim.run_until_quiet()
    assert sequence(inbox) == list(range(60))
    assert sim.now > 0.2, "something was lost and sent again"


def test_unordered_links_let_messages_overtake() -> None:
    sim = Simulation(1, link=LinkParams(jitter=0.01, ordered=False))
    a, b = plain_pair(sim)
    inbox = b.attach(30)
    for number in range(60):
        a.put(b.nid, 30, data=numbered(number, 40))
    sim.run_until_quiet()
    assert sorted(sequence(inbox)) == list(range(60))
    assert sequence(inbox) != list(range(60))


def test_small_messages_overtake_bulk() -> None:
    sim = Simulation(1, link=LinkParams(rate=1e8, jitter=0))
    a, b = plain_pair(sim)
    inbox = b.attach(30)
    for number in range(3):
        a.put(b.nid, 30, data=numbered(number, 1 << 20))
    a.put(b.nid, 30, data=numbered(99, 10))
    sim.run_until_quiet()
    assert sequence(inbox)[-1] == 2


@pytest.mark.parametrize("rate", [1e7, 1e8])
def test_a_link_carries_its_rate_and_no_more(rate: float) -> None:
    sim = Simulation(1, link=LinkParams(rate=rate, delay=1e-6, jitter=0))
    a, b = plain_pair(sim)
    b.attach(30, keep_data=False)
    for _ in range(100):
        a.put(b.nid, 30, data=bytes(100_000))
    sim.run_until_quiet()
    assert sim.now == pytest.approx(100 * 100_000 / rate, rel=0.05)


def test_two_senders_share_the_receivers_link() -> None:
    sim = Simulation(1, link=LinkParams(rate=1e8, delay=1e-6, jitter=0))
    a, b = plain_pair(sim)
    c = sim.node("c", "10.0.0.3@tcp")
    b.attach(30, keep_data=False)
    for _ in range(8):
        a.put(b.nid, 30, data=bytes(1 << 20))
        c.put(b.nid, 30, data=bytes(1 << 20))
    sim.run_until_quiet()
    assert sim.now == pytest.approx(16 * (1 << 20) / 1e8, rel=0.1)


def test_a_lazy_portal_holds_up_its_stream_until_memory_comes() -> None:
    sim = Simulation(1)
    a, b = plain_pair(sim)
    b.core.memory.set_lazy(31)
    b.attach(30)
    waiting = a.put(b.nid, 31, data=bytes(100))
    behind = a.put(b.nid, 30, data=bytes(100))
    bulk = a.put(b.nid, 30, data=bytes(5000))
    sim.run(5)
    assert (waiting.ok, behind.ok, bulk.ok) == (False, False, True)
    b.attach(31)
    sim.run_until_quiet()
    assert waiting.ok
    assert behind.ok


def test_the_connection_of_a_waiting_message_may_break() -> None:
    sim = Simulation(1)
    a, b = plain_pair(sim)
    b.core.memory.set_lazy(31)
    waiting = a.put(b.nid, 31, data=bytes(20_000))
    sim.run(1)
    a.del_ni(a.nid)
    sim.run_until_quiet()
    assert waiting.ended
    assert b.core.stats.drops["its connection closed while it waited for a match"] == 1


def test_one_way_silence_delivers_and_yet_fails() -> None:
    sim = Simulation(1)
    a, b = plain_pair(sim)
    inbox = b.attach(30)
    a.put(b.nid, 30, data=b"connect")
    sim.run_until_quiet()
    sim.partition([b], [a], both=False)
    put = a.put(b.nid, 30, data=bytes(50_000))
    sim.run_until_quiet()
    assert len(inbox) == 2
    assert put.status == -errno.ETIMEDOUT
    assert a.core.stats.by_status[HealthStatus.REMOTE_TIMEOUT] == 1


def test_who_lost_power_is_noticed_by_timeout_and_back_by_reset() -> None:
    sim = Simulation(1)
    a, b = plain_pair(sim)
    inbox = b.attach(30)
    a.put(b.nid, 30, data=b"connect")
    sim.run_until_quiet()
    b.kill(silent=True)
    b.restart()
    stale = a.put(b.nid, 30, data=bytes(50_000))
    sim.run_until_quiet()
    assert stale.status == -errno.ECONNRESET
    fresh = a.put(b.nid, 30, data=b"fresh")
    sim.run_until_quiet()
    assert fresh.ok
    assert [delivery.data for delivery in inbox.deliveries] == [b"connect", b"fresh"]


def test_both_call_at_once_and_nothing_is_lost() -> None:
    for seed in range(20):
        sim = Simulation(seed)
        a, b = plain_pair(sim)
        a.attach(30)
        b.attach(30)
        puts = [a.put(b.nid, 30, data=b"x"), b.put(a.nid, 30, data=b"y")]
        sim.run_until_quiet()
        assert all(put.ok for put in puts)


def test_nobody_has_the_address_nobody_listens_and_the_pause_after_that() -> None:
    sim = Simulation(1)
    a, b = plain_pair(sim)
    nobody = a.put("10.0.0.77@tcp", 30, data=b"x")
    sim.run_until_quiet()
    assert nobody.status == -errno.EHOSTUNREACH
    b.del_ni(b.nid)
    refused = a.put("10.0.0.2@tcp", 30, data=b"x")
    sim.run_until_quiet()
    assert refused.status == -errno.ECONNREFUSED
    paused = a.put("10.0.0.2@tcp", 30, data=b"x")
    sim.run_until_quiet()
    assert paused.status == -errno.EHOSTUNREACH
    assert "the last one ended so: connection refused" in paused.reason


def test_a_removed_ni_ends_what_it_had_under_way() -> None:
    sim = Simulation(1, link=LinkParams(rate=1e6))
    a, b = plain_pair(sim)
    b.attach(30)
    puts = [a.put(b.nid, 30, data=bytes(100_000)) for _ in range(10)]
    sim.run(0.25)
    a.del_ni(a.nid)
    sim.run_until_quiet()
    assert all(put.ended for put in puts)
    assert {put.status for put in puts if not put.ok} <= {-errno.ESHUTDOWN, -errno.ENETDOWN, -errno.ETIMEDOUT}


def test_no_address_no_ni_and_no_name_twice() -> None:
    sim = Simulation(1)
    a, b = plain_pair(sim)
    with pytest.raises(PlanError, match="there is a node a already"):
        sim.node("a")
    with pytest.raises(PlanError, match="on switch lan already"):
        sim.add_port(b, a.nid)
    with pytest.raises(PlanError, match="no port: name one as"):
        sim.link_down("b.eth7")
    with pytest.raises(LNetError, match="has no such address"):
        b.loop.enter(b.node.add_ni, "10.9.9.9@tcp")
    with pytest.raises(ValueError, match="below 1"):
        LinkParams(loss=1.0)


def test_what_is_not_over_is_not_quiet() -> None:
    sim = Simulation(1)
    a, b = plain_pair(sim)
    b.core.memory.set_lazy(31)
    a.put(b.nid, 31, data=bytes(20_000))
    with pytest.raises(NotQuiet, match=r"busy nodes: a, b \(seed 1, "):
        sim.run_until_quiet(limit=20)


def test_a_request_takes_virtual_time_like_a_real_one() -> None:
    sim = Simulation(1, link=LinkParams(delay=0.01, jitter=0))
    a, b = plain_pair(sim)
    before = sim.now
    answer = a.request(Ping(nids=[str(b.nid), "10.0.0.77@tcp"], timeout=2.0))
    assert 0.04 < sim.now - before <= 2.2
    assert answer.document is not None
    assert [error.errno for error in answer.errors] == [-errno.ETIMEDOUT]
    a.request(GlobalSet(values={"retry_count": 1, "health_sensitivity": 50}))
    assert a.core.settings.retry_count == 1


def test_interfaces_are_found_as_on_a_host() -> None:
    sim = Simulation(1)
    node = sim.node("a")
    sim.add_port(node, "10.0.0.1@tcp")
    node.request(NetAdd(net="tcp4", interfaces=["eth0"]))
    assert [str(nid) for nid in node.nids] == ["10.0.0.1@tcp4"]
    assert [link.name for link in node.host.links()] == ["eth0"]


def test_bare_pings_bring_the_other_nodes_info() -> None:
    sim = Simulation(1)
    a, b = plain_pair(sim)
    ping = a.ping(b.nid)
    sim.run_until_quiet()
    info = PingInfo.unpack(bytes(ping.buffer[: ping.taken]))
    assert ping.ok
    assert ping.taken <= MIN_INFO_SIZE
    assert info.primary == b.nid


def test_events_of_an_operation_are_the_ones_it_waits_for() -> None:
    sim = Simulation(1)
    a, b = plain_pair(sim)
    b.attach(30)
    put = a.put(b.nid, 30, data=b"x")
    silent = a.put(b.nid, 30, data=b"x", ack=False)
    get = a.get(b.nid, 30, size=10)
    sim.run_until_quiet()
    assert sorted(put.events) == [EventKind.ACK.name, EventKind.SEND.name]
    assert silent.events == [EventKind.SEND.name]
    assert sorted(get.events) == [EventKind.REPLY.name, EventKind.SEND.name]


@pytest.mark.parametrize(
    ("first", "second"),
    [("fd00::1@tcp", "fd00::2@tcp"), ("10.0.0.1@o2ib", "10.0.0.2@o2ib"), ("10.0.0.1@tcp7", "fd00::2@tcp7")],
)
def test_all_kinds_of_nids_are_carried(first: str, second: str) -> None:
    sim = Simulation(1, thorough=True)
    a, b = sim.node("a", first), sim.node("b", second)
    inbox = b.attach(30)
    put = a.put(second, 30, data=bytes(20_000))
    sim.run_until_quiet()
    assert put.ok
    assert str(inbox.deliveries[0].source) == first


def test_a_node_may_have_numa_nodes() -> None:
    topology = parse_topology(
        "nodes:\n- {cpus: 0-1, distances: [10, 20], interfaces: [eth0]}\n"
        "- {cpus: 2-3, distances: [20, 10], interfaces: [eth1]}\n"
    )
    sim = Simulation(1)
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp", topology=topology)
    b = sim.node("b", "10.0.0.2@tcp")
    assert a.core.cpts.count == 2
    assert [a.core.nis[nid].dev_cpt for nid in a.nids] == [0, 1]
    inbox = b.attach(30)
    for a.cpu in (0, 3):
        a.put(b.nid, 30, data=b"near")
        sim.run_until_quiet()
    assert [str(delivery.source) for delivery in inbox.deliveries] == ["10.0.0.1@tcp", "10.1.0.1@tcp"]


def rails(sim: Simulation) -> tuple[SimNode, SimNode]:
    """Two nodes with two rails that know each other and send nothing again."""
    nodes = []
    for name, number in (("a", 1), ("b", 2)):
        node = sim.node(name)
        node.configure("global: {discovery: 0, retry_count: 0}")
        for rail, net in enumerate(("tcp", "tcp1")):
            node.add_ni(f"10.{rail}.0.{number}@{net}", tunables=MANY)
        nodes.append(node)
    nodes[0].add_peer("10.0.0.2@tcp", "10.1.0.2@tcp1")
    nodes[1].attach(30, keep_data=False)
    return nodes[0], nodes[1]


def test_what_has_not_left_a_dead_device_goes_another_way() -> None:
    sim = Simulation(1, link=LinkParams(rate=1e7))
    a, b = rails(sim)
    puts = [a.put(b.nid, 30, data=bytes(100_000)) for _ in range(40)]
    sim.run(0.05)
    sim.link_down("a.eth1")
    sim.run_until_quiet()
    assert 1 <= sum(not put.ok for put in puts) <= 2, "only what was on the cable"


def test_a_silent_rail_is_left_long_before_its_timeout() -> None:
    sim = Simulation(1)
    a, b = rails(sim)
    first = [a.put(b.nid, 30, data=bytes(20_000)) for _ in range(4)]
    sim.run_until_quiet()
    assert all(put.ok for put in first)
    sim.partition(["a.eth1"], ["b.eth1"])
    a.put(b.nids[1], 30, data=bytes(20_000), source=a.nids[1])
    sim.run(2)
    later = [a.put(b.nid, 30, data=bytes(20_000)) for _ in range(20)]
    sim.run(1)
    assert all(put.ok for put in later)
    sim.heal()
    sim.run_until_quiet()
    assert sim.now < 20


def test_a_call_that_nobody_answers_is_given_up_for_another_rail() -> None:
    sim = Simulation(1)
    a, b = rails(sim)
    sim.partition(["a.eth1"], ["b.eth1"])
    puts = [a.put(b.nid, 30, data=b"x") for _ in range(10)]
    sim.run(3)
    assert all(put.ok for put in puts)


def test_a_run_that_goes_in_circles_is_ended() -> None:
    sim = Simulation(1)
    a, _ = plain_pair(sim)
    sim.most_events = 2000

    def again() -> None:
        a.loop.call_soon(again)

    again()
    with pytest.raises(NotQuiet, match=r"no end after 2000 events \(seed 1, "):
        sim.run_until_quiet()
