"""Bonding between simulated nodes: data, standby, load balancing, paths, servers, restarts, upgrades."""

from __future__ import annotations

import pytest

from support.bonded import bond_of, bond_yaml, bonded
from ulnet.bond.paths import Path
from ulnet.core.event import Event, EventKind
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.status import HealthStatus, LNetError
from ulnet.dlc.model import Export, NetShow, PeerShow
from ulnet.dlc.model_bond import BondFailover, BondOptions, BondSet, BondSwitch
from ulnet.nid import ANY_NID, Nid
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode
from ulnet.sim.traffic import Operation
from ulnet.wire.bond import kind_of
from ulnet.wire.lnet import MsgType

A_BOND, B_BOND = "10.0.0.1@bond0", "10.0.0.2@bond0"
A = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
B = ("10.0.0.2@tcp", "10.1.0.2@tcp1")
MIB = 1 << 20


def two(sim: Simulation, **options: object) -> tuple[SimNode, SimNode]:
    return bonded(sim, "a", *A, **options), bonded(sim, "b", *B, **options)


def puts(
    node: SimNode, count: int, size: int = 100_000, target: str = B_BOND, portal: int = 30
) -> list[Operation]:
    return [node.put(target, portal, data=bytes([number % 256]) * size) for number in range(count)]


def finish(sim: Simulation, operations: list[Operation], limit: float = 300) -> None:
    sim.run_until(lambda: all(one.ended for one in operations), limit)


def sent(node: SimNode, kind: MsgType = MsgType.PUT) -> list[int]:
    """Messages of that kind by slave, without the bonding NI."""
    return [node.core.nis[nid].stats.sent[kind] for nid in bond_of(node).config.slaves]


# Data ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-ni", "LND-bond")
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
def test_puts_and_gets_have_the_bonding_nids_at_both_ends(mode: str) -> None:
    sim = Simulation(seed=1)
    a, b = two(sim, mode=mode)
    inbox = b.attach(30)
    operations = [*puts(a, 20), *(a.get(B_BOND, 30, size=50_000) for _ in range(10))]
    sim.run_until_quiet()
    assert all(one.ok for one in operations)
    assert {(str(one.initiator), str(one.source)) for one in inbox.deliveries} == {("10.0.0.1@bond",) * 2}
    if mode == "standby":  # on one path they stay in order, those too that waited for the handshake
        came = [one.number for one in inbox.deliveries if one.kind is EventKind.PUT]
        assert came == sorted(came)
    bond = b.core.nis[Nid.parse(B_BOND)]
    assert (bond.stats.received[MsgType.PUT], bond.stats.received[MsgType.GET]) == (20, 10)
    assert sum(bond.stats.sent) == 30
    back = a.core.nis[Nid.parse("10.0.0.1@bond0")]
    assert (back.stats.received[MsgType.ACK], back.stats.received[MsgType.REPLY]) == (20, 10)
    assert (bond.stats.received_bytes, bond.stats.sent_bytes) == (20 * 100_000, 10 * 50_000)
    assert (back.stats.sent_bytes, back.stats.received_bytes) == (20 * 100_000, 10 * 50_000)


@pytest.mark.requirement("BOND-ni")
def test_slaves_work_on_their_own_and_bonds_may_differ_in_slaves() -> None:
    sim = Simulation(seed=2)
    a = bonded(sim, "a", *A, "10.2.0.1@tcp2", mode="loadbalance")
    b = bonded(sim, "b", "10.0.0.2@tcp", mode="loadbalance")  # one slave is enough
    inbox = b.attach(30)
    operations = [*puts(a, 5, target="10.0.0.2@tcp"), *puts(a, 5), a.ping(B_BOND), a.ping("10.0.0.2@tcp")]
    back = b.put("10.0.0.1@bond0", 31)
    a.attach(31)
    sim.run_until_quiet()
    assert all(one.ok for one in (*operations, back))
    assert {str(one.source) for one in inbox.deliveries} == {"10.0.0.1@tcp", "10.0.0.1@bond"}


@pytest.mark.requirement("BOND-ni")
def test_slaves_of_different_types() -> None:
    sim = Simulation(seed=3)
    a = bonded(sim, "a", "10.0.0.1@o2ib", "10.1.0.1@tcp", mode="loadbalance")
    b = bonded(sim, "b", "10.0.0.2@o2ib", "10.1.0.2@tcp", mode="loadbalance")
    b.attach(30)
    operations = puts(a, 40)
    sim.run_until_quiet()
    assert all(one.ok for one in operations)
    assert min(sent(a)) >= 20


def test_slaves_with_ipv6_addresses() -> None:
    sim = Simulation(seed=32)
    a, b = (
        bonded(sim, name, f"fd00:0::{number}@tcp", f"fd00:1::{number}@tcp1", mode="loadbalance")
        for number, name in enumerate("ab", 1)
    )
    inbox = b.attach(30)
    operations = [*puts(a, 20, target="fd00::2@bond0"), a.get("fd00::2@bond0", 30, size=5000)]
    sim.run_until_quiet()
    assert all(one.ok for one in operations)
    assert {str(one.initiator) for one in inbox.deliveries} == {"fd00::1@bond"}


def test_a_bonding_ni_sends_to_itself() -> None:
    sim = Simulation(seed=4)
    a = bonded(sim, "a", *A)
    inbox = a.attach(30)
    put = a.put(A_BOND, 30, data=b"self")
    sim.run_until_quiet()
    assert put.ok
    assert str(inbox.deliveries[0].initiator) == "10.0.0.1@bond"


def test_bonding_nids_are_no_rails_of_multi_rail_peers() -> None:
    sim = Simulation(seed=31)
    a, b = two(sim)
    for primary, nids in ((B_BOND, ()), (B[0], (B_BOND,))):
        with pytest.raises(LNetError, match="is a peer by itself: name its slaves only"):
            a.add_peer(primary, *nids)
    b.attach(30)
    finish(sim, puts(a, 2, target=B[0]))  # discovery asks b for its NIDs
    found = a.core.peers.find(Nid.parse(B[0]))
    assert found is not None
    assert [str(nid) for nid in found.nids()] == [*B]
    sim.run_until_quiet()


def test_slaves_that_share_no_net_fail_with_the_reason() -> None:
    sim = Simulation(seed=5)
    a, b = two(sim)
    b.attach(30)
    finish(sim, puts(a, 1))
    b.request(BondSwitch(B_BOND, B[1], on=False))
    a.request(BondSwitch(A_BOND, A[0], on=False))
    sim.run(1)
    put = a.put(B_BOND, 30)
    sim.run_until_quiet()
    assert not put.ok
    assert "no slave of 10.0.0.1@bond reaches one of 10.0.0.2@bond" in put.reason


# Standby -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-modes")
def test_standby_uses_one_slave_fails_over_again_and_returns() -> None:
    sim = Simulation(seed=6)
    slaves = [(f"10.{rail}.0.1@tcp{rail}", f"10.{rail}.0.2@tcp{rail}") for rail in range(3)]
    a, b = (bonded(sim, name, *(pair[at] for pair in slaves)) for at, name in enumerate("ab"))
    b.attach(30)
    carried = []
    for action, port in (("up", 0), ("down", 0), ("down", 1), ("up", 1), ("up", 0)):
        getattr(sim, f"link_{action}")(f"a.eth{port}")
        for _ in range(4):  # longer than drivers wait between attempts to connect
            finish(sim, puts(a, 1))
            sim.run(20)
        before = sent(a)
        operations = puts(a, 20)
        finish(sim, operations)
        assert all(one.ok for one in operations)
        counts = [now - then for now, then in zip(sent(a), before, strict=True)]
        carried.append([index for index, count in enumerate(counts) if count >= 20])
    assert carried == [[0], [1], [2], [2], [0]]
    assert bond_of(a).failovers == 3
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-modes")
def test_standby_told_to_stay_stays() -> None:
    sim = Simulation(seed=7)
    a, b = two(sim, failback="stay")
    b.attach(30)
    finish(sim, puts(a, 3))
    sim.link_down("a.eth0")
    sim.run(8)  # both have seen it
    sim.link_up("a.eth0")
    sim.run(5)
    before = sent(a)
    finish(sim, puts(a, 20))
    assert sent(a)[0] == before[0]
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-modes", "snd-085")
def test_standby_goes_on_at_once_when_its_link_goes_down_under_load() -> None:
    sim = Simulation(seed=8)
    a, b = two(sim)
    inbox = b.attach(30)
    finish(sim, puts(a, 1))
    operations = puts(a, 60, size=MIB)
    sim.run(0.01)
    sim.link_down("a.eth0")
    begun = sim.now
    delivered = len(inbox)
    sim.run_until(lambda: len(inbox) > delivered, 10)
    assert sim.now - begun < 0.3
    sim.run_until_quiet()
    failed = [one for one in operations if not one.ok]
    assert (
        len(failed) <= 1
    )  # the one whose bytes were on the wire may have arrived: it is reported, not resent
    assert set(inbox.times.values()) == {1}


@pytest.mark.requirement("BOND-health")
def test_a_failure_at_the_far_end_is_seen_from_messages_and_keepalives() -> None:
    sim = Simulation(seed=9)
    a, b = two(sim)
    b.attach(30)
    finish(sim, puts(a, 3))
    sim.partition(["a.eth0"], ["b.eth0"])  # nobody is told
    sim.run(6)  # keepalives find out
    before = sent(a)
    operations = puts(a, 20)
    finish(sim, operations)
    assert all(one.ok for one in operations)
    assert sent(a)[0] == before[0]
    sim.heal()
    sim.run(15)
    finish(sim, puts(a, 20))
    assert sent(a)[0] >= before[0] + 20  # back on the default
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-health")
@pytest.mark.parametrize(("hole", "least"), [(3.0, 1), (10.0, 3)])
def test_a_slave_that_fell_silent_is_tried_often_at_first(hole: float, least: int) -> None:
    sim = Simulation(seed=13)
    a, b = two(sim)
    b.attach(30)
    finish(sim, puts(a, 3))
    bond = bond_of(a)
    default = bond.config.slaves[0]
    sim.partition(["a.eth0"], ["b.eth0"])
    operations = []
    for _ in range(int(hole * 10)):
        operations += puts(a, 1)
        sim.run(0.1)
    assert bond.slaves.active.nid != default
    assert bond.monitor.keepalives >= least
    sim.heal()
    sim.run_until(lambda: bond.slaves.active.nid == default, 10)
    finish(sim, operations)
    assert all(one.ok for one in operations)
    sim.run_until_quiet()


def say(sim: Simulation, node: SimNode, count: int) -> None:
    """PUTs that nobody acknowledges."""
    operations = [node.put(B_BOND, 30, data=bytes(100_000), ack=False) for _ in range(count)]
    finish(sim, operations)
    assert all(one.ok for one in operations)


def path_of_default(node: SimNode) -> Path:
    """From a's default slave to that of b."""
    (path,) = [one for one in bond_of(node).peers[Nid.parse(B_BOND)].paths if str(one.ni.nid) == A[0]]
    return path


@pytest.mark.requirement("BOND-health")
def test_a_message_that_fails_takes_its_path_out() -> None:
    """No keepalive is due meanwhile, and the path makes progress as far as its driver sees."""
    sim = Simulation(seed=21)
    a, b = two(sim, keepalive=1000)
    b.attach(30)
    finish(sim, puts(a, 3))
    path = path_of_default(a)
    before = sent(a)
    health = 1 << HealthStatus.REMOTE_DROPPED
    rule = Fault(FaultKind.DROP, ANY_NID, ANY_NID, rate=1, messages=1 << MsgType.PUT, health=health)
    a.loop.enter(lambda: a.core.faults.add(rule))
    first = a.put(B_BOND, 30, data=bytes(100_000), ack=False)
    sim.run_until(lambda: path.down, 10)
    a.loop.enter(lambda: a.core.faults.delete(FaultKind.DROP))
    finish(sim, [first])
    assert first.ok
    say(sim, a, 5)
    assert sent(a)[0] == before[0]  # nothing tells that it is well
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-health")
def test_a_path_by_which_messages_come_is_alive_and_gets_no_keepalives() -> None:
    sim = Simulation(seed=23)
    a, b = two(sim, keepalive=2)
    a.attach(31)
    b.attach(30)
    finish(sim, [*puts(a, 3), *puts(b, 3, target=A_BOND, portal=31)])
    path = path_of_default(a)
    tried_at, heard_at = path.tried_at, path.heard_at
    for _ in range(20):
        finish(sim, [b.put(A_BOND, 31, data=b"x", ack=False)])
        sim.run(0.5)
    assert path.tried_at == tried_at
    assert path.heard_at > heard_at
    sim.run(10)
    assert path.tried_at > tried_at
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-health")
def test_a_keepalive_that_is_not_answered_takes_its_path_out() -> None:
    """Also where connections are well, and nothing is sent."""
    sim = Simulation(seed=22)
    a, b = two(sim, keepalive=2)
    b.attach(30)
    finish(sim, puts(a, 3))
    path = path_of_default(a)
    silent = Fault(FaultKind.DROP, ANY_NID, Nid.parse(B[0]), rate=1, messages=1 << MsgType.GET)
    b.loop.enter(lambda: b.core.faults.add(silent))
    sim.run_until(lambda: path.down, 10)
    before = sent(a)
    finish(sim, puts(a, 5))
    assert sent(a)[0] == before[0]
    b.loop.enter(lambda: b.core.faults.delete(FaultKind.DROP))
    sim.run_until(lambda: not path.down, 20)
    sim.run_until_quiet()


def test_a_slave_that_stays_silent_is_tried_less_and_less_often() -> None:
    sim = Simulation(seed=12)
    a, b = two(sim)
    b.attach(30)
    finish(sim, puts(a, 3))
    sim.partition(["a.eth0"], ["b.eth0"])
    counts = []
    for _ in range(6):
        before = bond_of(a).monitor.keepalives
        for _ in range(100):
            puts(a, 1)
            sim.run(0.2)
        counts.append(bond_of(a).monitor.keepalives - before)
    assert counts[0] >= counts[1] >= counts[2]
    assert counts[-1] <= 20 / 8 + 20 / 2 + 1  # the other path's, too
    sim.run_until_quiet()


def test_idle_peers_get_no_keepalives() -> None:
    sim = Simulation(seed=10)
    a, b = two(sim)
    b.attach(30)
    finish(sim, puts(a, 3))
    sim.run(60)
    kept = bond_of(a).monitor.keepalives
    assert 0 < kept <= 40  # of two paths, for half a minute
    sim.run(600)
    assert bond_of(a).monitor.keepalives == kept
    sim.run_until_quiet()


# Paths ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-health")
def test_a_slave_of_the_peer_is_dead_for_one_of_ours_and_alive_for_another() -> None:
    sim = Simulation(seed=11)
    a = bonded(sim, "a", "10.0.0.1@tcp", "10.0.1.1@tcp", mode="loadbalance", keepalive=1)
    b = bonded(sim, "b", "10.0.0.2@tcp", "10.0.1.2@tcp", mode="loadbalance", keepalive=1)
    b.attach(30)
    finish(sim, puts(a, 8))
    peer = bond_of(a).peers[Nid.parse(B_BOND)]
    assert len(peer.paths) == 4
    sim.partition(["a.eth0"], ["b.eth0"])
    sim.run(8)
    works = {(str(path.ni.nid), str(path.nid)): path.works for path in peer.paths}
    assert works == {
        ("10.0.0.1@tcp", "10.0.0.2@tcp"): False,
        ("10.0.0.1@tcp", "10.0.1.2@tcp"): True,
        ("10.0.1.1@tcp", "10.0.0.2@tcp"): True,
        ("10.0.1.1@tcp", "10.0.1.2@tcp"): True,
    }
    assert [one.status for one in bond_of(a).slaves.own.slaves] == [1, 1]
    operations = puts(a, 30)
    finish(sim, operations)
    assert all(one.ok for one in operations)
    sim.run_until_quiet()


# Load balancing ------------------------------------------------------------------------------------------


def share(policy: str, weights: str | None = None, seconds: float = 3.0) -> float:
    """Goodput over links of 40 and 10 MB/s as a share of their sum, with 16 PUTs of 1 MiB under way."""
    sim = Simulation(seed=12)
    more = {"weights": f"'{weights}'"} if weights else {}
    options: dict[str, object] = {"mode": "loadbalance", "policy": policy, **more}
    a, b = sim.node("a"), sim.node("b")
    for node, nids in ((a, A), (b, B)):
        for nid, rate in zip(nids, (40e6, 10e6), strict=True):
            sim.add_port(node, nid, LinkParams(rate=rate))
            node.add_ni(nid)
        assert not node.configure(bond_yaml(*nids, **options))
    inbox = b.attach(30, keep_data=False)
    under_way: list[Operation] = []
    data = bytes(MIB)

    def top_up() -> bool:
        under_way[:] = [one for one in under_way if not one.ended]
        while len(under_way) < 16:
            under_way.append(a.put(B_BOND, 30, data=data))
        return False

    sim.run_until(top_up, 1.5, must=False)  # rates are learnt
    begun, before = sim.now, len(inbox)
    sim.run_until(top_up, seconds, must=False)
    return (len(inbox) - before) * MIB / (sim.now - begun) / 50e6


@pytest.mark.requirement("BOND-modes")
def test_dynamic_weights_use_unequal_links_and_round_robin_does_not() -> None:
    assert share("dynamic") >= 0.9
    assert share("congestion") >= 0.9
    assert share("weights", "4,1") >= 0.95
    assert share("roundrobin") <= 0.5


@pytest.mark.requirement("BOND-modes")
def test_answers_go_back_the_way_of_their_requests() -> None:
    sim = Simulation(seed=13)
    a, b = two(sim, mode="loadbalance", policy="weights", weights="'3,1'")
    b.attach(30)
    finish(sim, puts(a, 40))
    assert abs(sent(a)[0] - 3 * sent(a)[1]) <= 4
    acks = [b.core.nis[Nid.parse(nid)].stats.sent[MsgType.ACK] for nid in B]
    hellos = 1
    assert acks[0] - sent(a)[0] in range(-hellos, hellos + 1)
    sim.run_until_quiet()


# Changes while it runs -----------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-config", "BOND-util")
def test_mode_slaves_and_weights_change_under_traffic() -> None:
    sim = Simulation(seed=14)
    a, b = two(sim, mode="loadbalance")
    inbox = b.attach(30)
    operations = []
    for request in (
        BondSet(A_BOND, None, BondOptions("standby")),
        BondFailover(A_BOND),
        BondSet(A_BOND, [A[0]], BondOptions()),
        BondSet(A_BOND, [*A], BondOptions("loadbalance", "weights", weights=[1, 5])),
        BondSwitch(A_BOND, A[0], on=False),
        BondSwitch(A_BOND, A[0], on=True),
    ):
        operations += puts(a, 15, size=200_000)
        sim.run(0.002)
        a.request(request)
        operations += puts(a, 15, size=200_000)
    sim.run_until_quiet()
    assert all(one.ok for one in operations)
    assert set(inbox.times.values()) == {1}


def test_a_bond_is_deleted_under_traffic_and_its_slaves_stay() -> None:
    sim = Simulation(seed=15)
    a, b = two(sim)
    b.attach(30)
    operations = puts(a, 10)  # they wait for the handshake
    a.del_ni(A_BOND)
    operations += puts(a, 10)
    sim.run_until_quiet()
    assert not any(one.ok for one in operations)
    after = puts(a, 5, target=B[0])
    sim.run_until_quiet()
    assert all(one.ok for one in after)


@pytest.mark.requirement("BOND-config")
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
@pytest.mark.parametrize("cut", [False, True])
def test_a_bond_is_deleted_in_mid_traffic_and_comes_back(mode: str, cut: bool) -> None:
    """What is with the slaves goes on; credits and references return, which is looked at in the end."""
    sim = Simulation(seed=34, link=LinkParams(rate=1e8))
    a, b = two(sim, mode=mode)
    inbox = b.attach(30)
    finish(sim, puts(a, 4))
    operations = puts(a, 40, size=MIB)
    sim.run(0.05)
    assert 0 < len(inbox) - 4 < 40
    if cut:
        sim.link_down("a.eth0")
    a.del_ni(A_BOND)
    sim.run(0.01)
    b.del_ni(B_BOND)
    sim.link_up("a.eth0")
    sim.run_until_quiet(2000)
    assert all(one.ended for one in operations)
    assert set(inbox.times.values()) == {1}
    for node, nids in ((a, A), (b, B)):
        assert not node.configure(bond_yaml(*nids, mode=mode))
    after = puts(a, 10)
    sim.run_until_quiet()
    assert all(one.ok for one in after)


@pytest.mark.requirement("BOND-config")
def test_a_slave_that_was_taken_away_dies_with_what_it_still_carries() -> None:
    sim = Simulation(seed=35, link=LinkParams(rate=1e8))
    a, b = two(sim, mode="loadbalance")
    inbox = b.attach(30)
    finish(sim, puts(a, 4))
    operations = puts(a, 40, size=MIB)
    sim.run(0.05)
    a.request(BondSet(A_BOND, [A[0]], BondOptions()))
    sim.partition(["a.eth1"], ["b.eth1"])
    sim.run_until(lambda: all("ACK" in one.events for one in operations), 20)
    sim.heal()
    sim.run_until_quiet()
    assert all(one.ok for one in operations)
    assert set(inbox.times.values()) == {1}


def test_a_node_that_shuts_down_ends_what_waits() -> None:
    sim = Simulation(seed=16)
    a, b = two(sim)
    b.kill(silent=True)
    operations = puts(a, 5)
    sim.run(1)
    a.loop.enter(a.core.shutdown)
    assert all(one.ended for one in operations)


# Restarts ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
def test_a_peer_that_restarts_is_found_again(mode: str) -> None:
    sim = Simulation(seed=17)
    a, b = two(sim, mode=mode)
    b.attach(30)
    finish(sim, puts(a, 5))
    known = bond_of(a).peers[Nid.parse(B_BOND)].incarnation
    b.restart()
    sim.run(10)
    operations = puts(a, 20)
    finish(sim, operations)
    assert all(one.ok for one in operations)
    assert bond_of(a).peers[Nid.parse(B_BOND)].incarnation == bond_of(b).incarnation != known
    sim.run_until_quiet()


def test_a_peer_that_comes_back_with_other_slaves() -> None:
    sim = Simulation(seed=18)
    a = bonded(sim, "a", *A, "10.2.0.1@tcp2")
    b = bonded(sim, "b", *B)
    b.attach(30)
    finish(sim, puts(a, 5))
    b.add_ni("10.2.0.2@tcp2")
    b.request(BondSet(B_BOND, [B[0], "10.2.0.2@tcp2"], BondOptions()))
    sim.link_down("b.eth0")
    sim.run(5)
    before = a.core.nis[Nid.parse("10.2.0.1@tcp2")].stats.sent[MsgType.PUT]
    operations = puts(a, 10)
    finish(sim, operations)
    assert all(one.ok for one in operations)
    assert a.core.nis[Nid.parse("10.2.0.1@tcp2")].stats.sent[MsgType.PUT] >= before + 10
    sim.run_until_quiet()


# Bonding data servers ------------------------------------------------------------------------------------

SERVERS = ("10.0.0.8@tcp", "10.1.0.9@tcp1")


def with_servers(sim: Simulation, **options: object) -> tuple[SimNode, SimNode, SimNode, SimNode]:
    """Two nodes, and two servers, one of which is named by its second slave."""
    nodes = []
    for name, number in (("s", 8), ("t", 9), ("a", 1), ("b", 2)):
        nids = (f"10.0.0.{number}@tcp", f"10.1.0.{number}@tcp1")
        nodes.append(bonded(sim, name, *nids, bds=SERVERS, **options))
    s, t, a, b = nodes
    return s, t, a, b


def states(node: SimNode) -> list[str]:
    return [server.state.value for server in bond_of(node).servers.all.values()]


@pytest.mark.requirement("BOND-bds")
def test_every_bonding_ni_registers_at_start_and_when_its_configuration_changes() -> None:
    sim = Simulation(seed=20)
    s, t, a, b = with_servers(sim)
    sim.run(2)
    assert states(a) == states(b) == ["ready", "ready"]
    assert states(s) == states(t) == ["ready"]
    for server in (s, t):
        registry = bond_of(server).data.registry
        assert len(registry) == 3
        found = registry.find(Nid.parse(A_BOND))
        assert found == bond_of(a).slaves.own
    a.request(BondSet(A_BOND, None, BondOptions("loadbalance")))
    sim.run(1)
    for server in (s, t):
        assert bond_of(server).data.registry.find(Nid.parse(A_BOND)) == bond_of(a).slaves.own
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-bds")
def test_servers_are_asked_once_a_connection_not_once_a_message() -> None:
    sim = Simulation(seed=21)
    s, t, a, b = with_servers(sim, mode="loadbalance")
    b.attach(30)
    sim.run(2)
    operations = puts(a, 500, size=100)
    sim.run_until_quiet()
    assert all(one.ok for one in operations)
    assert sum(bond_of(server).data.registry.lookups for server in (s, t)) == 1


@pytest.mark.requirement("BOND-bds")
def test_with_a_server_a_peer_is_reached_whose_first_slave_is_dead() -> None:
    for servers in (True, False):
        sim = Simulation(seed=22)
        if servers:
            _, _, a, b = with_servers(sim)
        else:  # degraded mode knows the first slave only
            a, b = two(sim)
        b.attach(30)
        sim.run(2)
        sim.link_down("b.eth0")
        sim.run(1)
        operations = puts(a, 5)
        sim.run_until_quiet()
        assert all(one.ok == servers for one in operations)


@pytest.mark.requirement("BOND-bds")
def test_a_lost_server_is_replaced_by_the_other_and_taken_again_when_it_returns() -> None:
    sim = Simulation(seed=23)
    s, _, a, b = with_servers(sim)
    b.attach(30)
    sim.run(2)
    s.kill(silent=True)
    sim.run(12)
    assert states(a) == ["lost", "ready"]
    sim.link_down("b.eth0")  # so that the first slave would not do
    sim.run(1)
    operations = puts(a, 3)
    finish(sim, operations)
    assert all(one.ok for one in operations)
    s.restart()
    sim.run(70)
    assert states(a) == ["ready", "ready"]
    assert len(bond_of(s).data.registry) == 3  # all have registered anew
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-bds")
def test_a_server_that_restarts_unnoticed_is_told_again() -> None:
    sim = Simulation(seed=24)
    s, _, _, _ = with_servers(sim)
    sim.run(2)
    s.restart()
    sim.run(1)
    assert len(bond_of(s).data.registry) < 3
    sim.run(40)
    assert len(bond_of(s).data.registry) == 3
    sim.run_until_quiet()


@pytest.mark.requirement("BOND-bds")
def test_without_any_server_alive_the_first_slave_is_asked() -> None:
    sim = Simulation(seed=25)
    s, t, a, b = with_servers(sim)
    b.attach(30)
    s.kill(silent=True)
    t.kill(silent=True)
    operations = puts(a, 5)
    finish(sim, operations)
    assert all(one.ok for one in operations)


def test_names_that_nobody_has_fail_and_leave_nothing() -> None:
    sim = Simulation(seed=26)
    _, _, a, _ = with_servers(sim)
    sim.run(2)
    put = a.put("10.0.0.77@bond0", 30)
    sim.run_until_quiet()
    assert not put.ok
    assert "10.0.0.77@bond: no bonding data server knows it" in put.reason
    assert Nid.parse("10.0.0.77@bond0") not in bond_of(a).peers


# Old nodes -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-ni")
def test_rolling_upgrade_old_nodes_talk_to_slaves_and_new_ones_to_the_bond() -> None:
    sim = Simulation(seed=27)
    server = bonded(sim, "server", "10.0.0.9@tcp", "10.1.0.9@tcp1", mode="loadbalance")
    inbox = server.attach(30)
    old = sim.single_rail("old", "10.0.0.3@tcp")  # knows neither Multi-Rail nor bonding
    plain = sim.node("plain", "10.0.0.4@tcp", "10.1.0.4@tcp1")  # today's node, not configured for it yet
    new = bonded(sim, "new", "10.0.0.5@tcp", "10.1.0.5@tcp1", mode="loadbalance")
    old.put(old.nid, Nid.parse("10.0.0.9@tcp"), 30, b"from the old one")
    operations = [
        *puts(plain, 5, target="10.0.0.9@tcp"),
        *puts(new, 5, target="10.0.0.9@bond0"),
        server.put("10.0.0.3@tcp", 4, data=b"to the old one"),
    ]
    sim.run_until_quiet()
    assert all(one.ok for one in operations)
    by_source = {str(one.source) for one in inbox.deliveries if one.kind is EventKind.PUT}
    assert {"10.0.0.3@tcp", "10.0.0.5@bond"} <= by_source
    assert len(old.puts) == 1
    # Both are upgraded: the one node gets a bonding NI while it runs, the other is replaced.
    assert not plain.configure(
        "net:\n    - net type: bond0\n      local NI(s):\n        - slaves: {0: '@tcp', 1: '@tcp1'}\n"
    )
    old.kill()
    after = puts(plain, 5, target="10.0.0.9@bond0")
    sim.run_until_quiet()
    assert all(one.ok for one in after)
    assert "10.0.0.4@bond" in {str(one.source) for one in inbox.deliveries}


@pytest.mark.requirement("BOND-hello")
def test_an_old_node_that_is_taken_for_a_bond_gets_gets_only_which_it_drops() -> None:
    sim = Simulation(seed=28)
    a = bonded(sim, "a", *A, bds=["10.0.0.3@tcp"])
    old = sim.single_rail("old", "10.0.0.3@tcp")
    put = a.put("10.0.0.3@bond0", 30, data=b"x")
    sim.run_until_quiet()
    assert not put.ok
    assert old.heard
    assert {kind_of(heard.hdr) for heard in old.heard if heard.hdr.type == MsgType.PUT} == set()
    assert not old.pushes


# Shown ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-config")
def test_net_show_and_peer_show_tell_of_bonds() -> None:
    sim = Simulation(seed=29)
    s, _, a, b = with_servers(sim)
    b.attach(30)
    sim.run(2)
    finish(sim, puts(a, 3))
    document = a.request(NetShow(net="bond0", verbosity=1)).document
    view = document.net[0].local_nis[0].bond  # type: ignore[union-attr]
    assert (view.mode, view.failback, view.active) == ("standby", "return", A[0])
    assert view.slave_status == {A[0]: "up", A[1]: "up"}
    assert view.server_status == {SERVERS[0]: "ready", SERVERS[1]: "ready"}
    assert view.lookups == 1
    served = s.request(NetShow(net="bond0", verbosity=1)).document.net[0].local_nis[0].bond  # type: ignore[union-attr]
    assert served.registered == 3
    document = a.request(PeerShow([B_BOND], verbosity=1)).document
    (shown,) = document.peer  # type: ignore[union-attr]
    bond = shown.peer_ni[0].bond
    assert (bond.state, bond.mode, bond.active, bond.version) == ("connected", "standby", B[0], 1)
    assert [(path.local, path.remote, path.status) for path in bond.paths] == [
        (A[0], B[0], "up"),
        (A[1], B[1], "up"),
    ]
    assert not shown.multi_rail
    for backup in (True, False):
        exported = a.request(Export(backup=backup)).document
        assert B_BOND.removesuffix("0") not in {one.primary_nid for one in exported.peer}  # type: ignore[union-attr]
    sim.run_until_quiet()


# Routers -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-ni")
def test_routers_sit_behind_a_bonding_net() -> None:
    sim = Simulation(seed=30)
    route = "route:\n    - net: {net}\n      gateway: {gateway}\n"
    a = bonded(sim, "a", *A, mode="loadbalance")
    router = bonded(sim, "r", "10.0.0.7@tcp", "10.1.0.7@tcp1", mode="loadbalance")
    router.add_ni("10.5.0.7@tcp5")
    assert not router.configure("routing:\n    enable: 1\n")
    far = sim.node("far", "10.5.0.8@tcp5")
    assert not a.configure(route.format(net="tcp5", gateway="10.0.0.7@bond0"))
    assert not far.configure(route.format(net="bond0", gateway="10.5.0.7@tcp5"))
    inbox = far.attach(30)
    sim.run(200)  # until the router says that it routes, and has been asked again
    operations = puts(a, 20, target="10.5.0.8@tcp5")
    back = far.put(A_BOND, 31, data=b"back")
    a.attach(31)
    finish(sim, [*operations, back])
    assert all(one.ok for one in operations)
    assert {str(one.source) for one in inbox.deliveries} == {"10.0.0.1@bond"}
    assert back.ok
    sim.run_until_quiet()


def test_who_sends_again_when_a_peer_is_not_found_gets_an_answer_each_time() -> None:
    sim = Simulation(seed=1)
    core = bonded(sim, "a", "10.0.0.1@tcp", "10.1.0.1@tcp1").core
    failures: list[float] = []

    def send() -> None:
        md = core.memory.md_bind(b"x", heard)
        core.put(md, Nid.parse("10.0.0.9@bond0"), 30, 1, ack=False)

    def heard(event: Event) -> None:
        assert event.status
        failures.append(sim.now)
        assert len(failures) < 10
        send()

    send()
    sim.run(35)
    assert len(failures) == len(set(failures)) == 3
