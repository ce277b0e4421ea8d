"""Gateways that answer, and pass nothing on: what goes over them is lost without a word."""

from __future__ import annotations

import errno

import pytest

from sim.test_routed_hazards import simulation, two_routers
from support.routed import PORTAL, SETTLED, add_route, make_router, why_down
from ulnet.core.lnd import Payload
from ulnet.core.ni import MAX_HEALTH, NI
from ulnet.core.routing.forward import Forwarding
from ulnet.dlc.model import NetDel
from ulnet.nid import Nid
from ulnet.sim import Operation, SimNode, Simulation
from ulnet.wire.lnet import Header

pytestmark = pytest.mark.pure  # methods of the core and of simulated nodes are replaced
FIRST, SECOND = Nid.parse("10.1.0.8@tcp1"), Nid.parse("10.1.0.9@tcp1")


def swallow(gateway: SimNode, patch: pytest.MonkeyPatch) -> None:
    """Let a gateway drop what it is to pass on."""
    take = Forwarding.take

    def drop(self: Forwarding, ni: NI, hdr: Header, from_nid: Nid, rx: Payload) -> None:
        if self._state is not gateway.core.state:
            take(self, ni, hdr, from_nid, rx)
        elif hdr.payload_length:
            rx.take(None, [], 0, hdr.payload_length)

    patch.setattr(Forwarding, "take", drop)


def health(node: SimNode) -> list[int]:
    found = [node.core.peers.find_ni(nid) for nid in (FIRST, SECOND)]
    return [pni.health for pni in found if pni is not None]


def doubts(node: SimNode) -> list[str]:
    return [line for line in node.reports if "no response in time by way of gateway" in line]


@pytest.mark.requirement("HEALTH-resend", "RTR")
def test_puts_that_a_gateway_swallows_go_over_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of them ended with ETIMEDOUT, for ever, and nobody was told."""
    sim = simulation()
    client, one, _, server = two_routers(sim)
    inbox = server.attach(PORTAL)
    assert client.put(server.nid, PORTAL, data=b"first").ended is False
    sim.run(1)
    swallow(one, monkeypatch)
    for _ in range(3):
        puts = [client.put(server.nid, PORTAL, data=b"x" * 100) for _ in range(20)]
        sim.run(200)
        assert all(put.ok for put in puts)
    assert len(inbox.deliveries) == 1 + 3 * 20, "none is taken twice"
    assert client.core.stats.resend_count == 3 * 10
    assert set(why_down(client).values()) == {""}, "it may be the destination that is silent"
    assert doubts(client)


@pytest.mark.requirement("HEALTH-timeouts", "RTR")
def test_who_gets_no_answers_over_a_gateway_that_answers_prefers_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was heard, and so its path was well."""
    sim = simulation()
    client, one, _, server = two_routers(sim)
    server.attach(PORTAL)
    client.get(server.nid, PORTAL, size=10)
    sim.run(1)
    swallow(one, monkeypatch)
    gets = [client.get(server.nid, PORTAL, size=10, timeout=6) for _ in range(20)]
    sim.run(6.5)
    assert [get.status for get in gets].count(-errno.ETIMEDOUT) == 10
    first, second = health(client)
    assert first < second == MAX_HEALTH
    gets = [client.get(server.nid, PORTAL, size=10, timeout=6) for _ in range(20)]
    sim.run(1)
    assert all(get.ok for get in gets)
    sim.run(60)
    assert health(client) == [MAX_HEALTH] * 2, "its own answers heal it"
    assert len(doubts(client)) == 1


@pytest.mark.requirement("HEALTH-timeouts", "RTR")
def test_a_silent_destination_makes_no_gateway_useless(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = simulation()
    client, one, other, server = two_routers(sim)
    server.attach(PORTAL)
    silent = sim.single_rail("silent", "10.2.0.77@tcp2")
    first = [client.get(nid, PORTAL, size=10) for nid in (silent.nids[0], server.nid)]
    sim.run(1)
    assert all(one.ok for one in first)
    monkeypatch.setattr(silent, "_reply", lambda heard: None)
    before = [node.core.stats.route_count for node in (one, other)]
    for _ in range(20):
        lost = [client.get(silent.nids[0], PORTAL, size=10, timeout=6) for _ in range(8)]
        gets = [client.get(server.nid, PORTAL, size=10, timeout=6) for _ in range(8)]
        sim.run(8)
        assert not any(get.ok for get in lost)
        assert all(get.ok for get in gets)
        assert set(why_down(client).values()) == {""}
        gateways = [client.core.peers.find_ni(nid) for nid in (FIRST, SECOND)]
        assert [client.core.routing.aliveness(pni) for pni in gateways if pni] == ["up"] * 2
    shares = [node.core.stats.route_count - count for node, count in zip((one, other), before, strict=True)]
    assert min(shares) > 100, "both are used"
    assert len(doubts(client)) == 2
    sim.run(60)
    assert health(client) == [MAX_HEALTH] * 2


def test_nothing_is_copied_where_there_is_no_other_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = simulation()
    router = make_router(sim.node("r", str(FIRST), "10.2.0.8@tcp2"))
    client = sim.node("c", "10.1.0.1@tcp1")
    server = sim.node("s", "10.2.0.1@tcp2")
    add_route(client, "tcp2", str(FIRST))
    add_route(server, "tcp1", "10.2.0.8@tcp2")
    sim.run(SETTLED)
    server.attach(PORTAL)
    put = client.put(server.nid, PORTAL, data=b"x")
    sim.run(1)
    assert put.ok
    swallow(router, monkeypatch)
    put = client.put(server.nid, PORTAL, data=b"x")
    sim.run(160)
    assert put.status == -errno.ETIMEDOUT
    assert client.core.stats.resend_count == 0
    assert why_down(client) == {f"tcp2 {FIRST}": ""}


@pytest.mark.requirement("HEALTH-resend", "RTR")
def test_puts_that_wait_for_long_at_their_destination_outlive_a_gateway() -> None:
    """Copies for its silence had used up what may be sent again when a gateway went, and they failed."""
    sim = simulation()
    client, one, _, server = two_routers(sim)
    server.attach(PORTAL)
    server.core.memory.set_lazy(PORTAL + 1)
    for _ in range(4):
        client.put(server.nid, PORTAL, data=b"x")
    sim.run(1)
    puts = [client.put(server.nid, PORTAL + 1, data=b"y", timeout=60) for _ in range(40)]
    sim.run(51)
    one.kill(silent=False)
    sim.run(4)
    inbox = server.attach(PORTAL + 1)
    sim.run(4.5)
    assert all(put.ok for put in puts)
    assert len(inbox.deliveries) == len(puts)


def waiting(count: int, retries: int, at: float) -> tuple[list[SimNode], SimNode, SimNode, list[Operation]]:
    """PUTs over so many gateways that have waited for memory for `at` seconds, a third of their time."""
    sim = simulation()
    last = range(7, 7 + count)
    routers = [make_router(sim.node(f"r{one}", f"10.1.0.{one}@tcp1", f"10.2.0.{one}@tcp2")) for one in last]
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", "10.2.0.1@tcp2")
    add_route(client, "tcp2", [f"10.1.0.{one}@tcp1" for one in last])
    add_route(server, "tcp1", [f"10.2.0.{one}@tcp2" for one in last])
    sim.run(SETTLED)
    client.core.settings.retry_count = retries
    server.attach(PORTAL)
    server.core.memory.set_lazy(PORTAL + 1)
    for _ in range(2 * count):
        client.put(server.nid, PORTAL, data=b"x")
        sim.run(0.2)
    puts = [client.put(server.nid, PORTAL + 1, data=b"", timeout=90) for _ in range(40)]
    sim.run(at)
    return routers, client, server, puts


@pytest.mark.requirement("HEALTH-resend", "RTR")
@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize(("count", "retries", "at"), [(2, 1, 29.0), (3, 2, 30.5), (3, 2, 32.5)])
def test_copies_over_gateways_that_have_just_died_end_no_put_whose_own_gateway_is_well(
    count: int, retries: int, at: float, silent: bool
) -> None:
    """They used up its attempts, and it ended with their error, though it was delivered."""
    routers, client, server, puts = waiting(count, retries, at)
    for router in routers[1:]:
        router.kill(silent=silent)
    client.sim.run(20)
    lost = [put for put in puts if put.ended]
    inbox = server.attach(PORTAL + 1)
    client.sim.run(60)
    assert [f"{put}: {put.status} {put.reason}" for put in lost] == []
    assert [f"{put}: {put.status} {put.reason}" for put in puts if not put.ok] == []
    assert len(inbox.deliveries) == len(puts)


@pytest.mark.requirement("HEALTH-resend", "RTR")
def test_a_put_that_waits_for_long_at_its_destination_has_one_copy_at_a_time() -> None:
    """A copy that has waited for a third of the time, too, is no reason for another one."""
    _, client, server, puts = waiting(3, 2, 80.0)
    assert client.core.stats.resend_count == len(puts)
    inbox = server.attach(PORTAL + 1)
    client.sim.run(5)
    assert all(put.ok for put in puts)
    assert len(inbox.deliveries) == len(puts)


def over_the_first(puts: list[Operation], least: int = 10) -> list[Operation]:
    """Those that have left over the gateway 10.1.0.7@tcp1."""
    first = Nid.parse("10.1.0.7@tcp1")
    own = [put for put in puts if put.md is not None and put.md.next_nid == first]
    assert len(own) > least
    return own


@pytest.mark.requirement("HEALTH-resend", "RTR")
@pytest.mark.parametrize(("at", "silent"), [(30.5, False), (30.5, True), (32.5, False), (32.5, True)])
def test_copies_that_all_fail_leave_a_put_to_its_gateway_that_is_well(at: float, silent: bool) -> None:
    """More gateways had died than there were attempts."""
    routers, client, server, puts = waiting(3, 1, 0.5)
    own = over_the_first(puts)
    client.sim.run(at - 0.5)
    for router in routers[1:]:
        router.kill(silent=silent)
    client.sim.run(20)
    server.attach(PORTAL + 1)
    client.sim.run(60)
    assert [f"{put}: {put.status} {put.reason}" for put in own if not put.ok] == []


@pytest.mark.requirement("HEALTH-resend", "RTR")
def test_a_put_whose_copies_failed_has_all_its_attempts_when_its_own_gateway_goes() -> None:
    """They were used up by the copies, and it ended with their error."""
    (one, other), client, server, puts = waiting(2, 1, 0.5)
    own = over_the_first(puts)
    client.sim.run(28.5)
    other.kill(silent=False)
    client.sim.run(8)
    assert not any(put.ended for put in puts)
    other.restart()
    client.sim.run(40)  # a check finds it
    one.kill(silent=False)
    client.sim.run(4)
    server.attach(PORTAL + 1)
    client.sim.run(5)
    assert [f"{put}: {put.status} {put.reason}" for put in own if not put.ok] == []


@pytest.mark.requirement("HEALTH-resend", "RTR")
def test_a_put_outlives_the_gateways_of_more_copies_than_it_has_attempts() -> None:
    """Its own gateway is well, whichever else goes after its copies have left over it."""
    (_, *others), client, server, puts = waiting(5, 1, 0.5)
    own = over_the_first(puts, 7)
    client.sim.run(33.5)
    for router in others:
        router.kill(silent=False)
        client.sim.run(0.5)
    client.sim.run(5)
    server.attach(PORTAL + 1)
    client.sim.run(45)
    assert [f"{put}: {put.status} {put.reason}" for put in own if not put.ok] == []


@pytest.mark.requirement("HEALTH-resend", "RTR")
def test_a_put_that_is_lost_after_its_copy_ends_when_that_fails_too() -> None:
    """Its own gateway is well no more: nobody waits for an ACK from there."""
    routers, client, _, puts = waiting(3, 2, 33.0)
    one, *others = routers
    one.kill(silent=True)
    client.sim.run(15)  # its connections are given up
    assert not any(put.ended for put in puts)
    for router in others:
        router.kill(silent=False)
    client.sim.run(10)
    assert {put.status for put in puts} == {-errno.ECONNREFUSED}


def worse_first() -> tuple[Simulation, SimNode, SimNode, SimNode, SimNode]:
    """The client knows a gateway of a worse priority, and not yet the other one: both, client and server."""
    sim = simulation()
    one = make_router(sim.node("r7", "10.1.0.7@tcp1", "10.2.0.7@tcp2"))
    other = make_router(sim.node("r9", "10.4.0.9@tcp4", "10.2.0.9@tcp2"))
    client, server = sim.node("c", "10.1.0.1@tcp1", "10.4.0.1@tcp4"), sim.node("s", "10.2.0.1@tcp2")
    add_route(client, "tcp2", "10.1.0.7@tcp1", priority=1)
    add_route(server, "tcp1", "10.2.0.7@tcp2")
    add_route(server, "tcp4", "10.2.0.9@tcp2")
    sim.run(SETTLED)
    return sim, one, other, client, server


@pytest.mark.requirement("HEALTH-resend", "RTR")
@pytest.mark.parametrize("away", ["the NI of its copies", "its own gateway"])
def test_a_put_whose_copies_may_go_over_one_gateway_alone_is_its_originals_again(away: str) -> None:
    """That is of a better priority, and has just died: all attempts go there."""
    sim, one, other, client, server = worse_first()
    server.attach(PORTAL)
    server.core.memory.set_lazy(PORTAL + 1)
    client.put(server.nid, PORTAL, data=b"x")
    sim.run(1)
    puts = [client.put(server.nid, PORTAL + 1, data=b"", timeout=90) for _ in range(40)]
    sim.run(20)
    add_route(client, "tcp2", "10.4.0.9@tcp4")
    sim.run(11)
    other.kill(silent=False)
    sim.run(4.5)
    assert client.core.stats.resend_count >= len(puts)
    assert not any(put.ended for put in puts)
    if away == "the NI of its copies":
        client.request(NetDel(nids=["10.4.0.1@tcp4"], force=True))
    else:
        sim.run(15)
        other.restart()
        sim.run(25)  # a check finds it
        one.kill(silent=False)
    sim.run(4)
    inbox = server.attach(PORTAL + 1)
    sim.run(5)
    assert [f"{put}: {put.status} {put.reason}" for put in puts if not put.ok] == []
    assert len(inbox.deliveries) == len(puts)


@pytest.mark.requirement("HEALTH-resend", "RTR")
def test_a_put_whose_copies_failed_is_copied_again_when_their_gateway_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they had tried counts no more: else nothing tries it again, and its own gateway swallows it."""
    sim, one, other, client, server = worse_first()
    inbox = server.attach(PORTAL)
    client.put(server.nid, PORTAL, data=b"x")
    sim.run(1)
    swallow(one, monkeypatch)
    puts = [client.put(server.nid, PORTAL, data=b"y", timeout=90) for _ in range(40)]
    sim.run(20)
    add_route(client, "tcp2", "10.4.0.9@tcp4")
    sim.run(11)
    other.kill(silent=False)
    sim.run(4.5)
    assert client.core.stats.resend_count >= len(puts), "and they have failed"
    other.restart()
    sim.run(50)
    assert [f"{put}: {put.status} {put.reason}" for put in puts if not put.ok] == []
    assert len(inbox.deliveries) == 1 + len(puts)
