"""Deadlines, devices and broken connections, and who is charged (spec §5, §6; Health design)."""

from __future__ import annotations

import errno

import pytest

from lnd.o2ib.test_handshake import conns
from lnd.o2ib.test_traffic import BIG, PORTAL, header
from support.rdma import Stranger, node_and_stranger
from ulnet.control.access import access_of
from ulnet.core.md import MANAGE_REMOTE, OP_GET, TRUNCATE
from ulnet.core.status import HealthStatus as S
from ulnet.core.status import LNetError
from ulnet.lnd.contract import NiEvent
from ulnet.lnd.o2ib.errors import DEVICE_EVENTS, Phase, aborted, connect_status
from ulnet.lnd.o2ib.verbs import DeviceEvent
from ulnet.nid import LNET_PID, Nid
from ulnet.sim import SimNode, Simulation
from ulnet.wire.lnet import PING_MATCH_BITS, MsgType
from ulnet.wire.o2ib import ConnParams, O2ibType, Reason, Reject
from ulnet.wire.ping import NiEntry, PingInfo

pytestmark = pytest.mark.requirement("HEALTH-o2ib")
TIMEOUT = 49  # what the settings leave, with retry_count 0 it is more: see `connected`


def connected() -> tuple[Simulation, SimNode, Stranger]:
    """… with 40 s for an attempt."""
    sim, node, stranger = node_and_stranger()
    node.core.nis[node.nid].lnd_tunables.timeout = 40  # type: ignore[union-attr]
    node.core.retune(node.core.nis[node.nid])
    stranger.call(node)
    node.ping(stranger.nid)
    sim.run_until_quiet()
    return sim, node, stranger


def with_two_credits() -> tuple[Simulation, SimNode, Stranger]:
    """… discovered, over a connection that has two credits left."""
    sim, node, stranger = connected()
    node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    sim.run(1.0)
    (conn,) = conns(node)
    conn.credits = 2
    return sim, node, stranger


def counted(node: SimNode, stranger: Stranger) -> dict[S, int]:
    peer_ni = node.core.peers.find_ni(stranger.nid)
    assert peer_ni is not None
    return {status: count for status in S if (count := peer_ni.health_stats.by_status[status])}


def charged(node: SimNode, nid: str = "") -> dict[S, int]:
    """What its NI has counted."""
    by_status = node.core.nis[Nid.parse(nid) if nid else node.nid].health_stats.by_status
    return {status: count for status in S if (count := by_status[status])}


def test_the_status_of_each_phase() -> None:
    assert {phase: (aborted(phase, errno.ETIMEDOUT), aborted(phase, errno.EIO)) for phase in Phase} == {
        Phase.QUEUED: (S.LOCAL_TIMEOUT, S.REMOTE_ERROR),
        Phase.SENDING: (S.NETWORK_TIMEOUT, S.REMOTE_DROPPED),
        Phase.WAITING: (S.REMOTE_TIMEOUT, S.REMOTE_DROPPED),
    }


@pytest.mark.parametrize("number", [errno.ENETDOWN, errno.ESHUTDOWN])
def test_what_waits_when_connections_end_by_what_happens_here_is_charged_here(number: int) -> None:
    assert aborted(Phase.QUEUED, number) is S.LOCAL_ERROR


def test_a_get_has_the_whole_time_and_is_charged_to_who_does_not_answer() -> None:
    sim, node, stranger = connected()
    get = node.get(stranger.nid, PORTAL, size=BIG, timeout=1000)
    stranger.wait_for(O2ibType.GET_REQ)
    sim.run(39.9)
    assert not get.events
    sim.run(0.2)
    assert get.status == -errno.ETIMEDOUT
    assert counted(node, stranger) == {S.REMOTE_TIMEOUT: 1}
    assert stranger.hung_up


def test_a_put_has_half_of_the_time_for_each_of_its_two_phases() -> None:
    sim, node, stranger = connected()
    put = node.put(stranger.nid, PORTAL, data=bytes(BIG), ack=False, timeout=1000)
    asked = stranger.wait_for(O2ibType.PUT_REQ)
    sim.run(19.0)
    _, region = stranger.memory(BIG)
    assert stranger.pair is not None
    while stranger.pair.free:  # it takes nothing: what is posted is not completed
        stranger.pair.free.pop()
    stranger.pair.other.shape = stranger.pair.other.shape._replace(rnr_retries=7)  # type: ignore[union-attr]
    stranger.say(O2ibType.PUT_ACK, cookie=asked.cookie, target=stranger.target(region), credits=1)
    sim.run(19.9)
    assert not put.events
    sim.run(0.2)
    assert put.status == -errno.ETIMEDOUT
    assert counted(node, stranger) == {S.NETWORK_TIMEOUT: 1}


def test_a_put_that_is_not_acknowledged_ends_at_half_of_the_time() -> None:
    sim, node, stranger = connected()
    put = node.put(stranger.nid, PORTAL, data=bytes(BIG), ack=False, timeout=1000)
    stranger.wait_for(O2ibType.PUT_REQ)
    sim.run(19.9)
    assert not put.events
    sim.run(0.2)
    assert put.status == -errno.ETIMEDOUT
    assert counted(node, stranger) == {S.REMOTE_TIMEOUT: 1}


def test_what_waits_for_a_credit_is_charged_here_and_may_be_sent_again() -> None:
    sim, node, stranger = connected()
    (conn,) = conns(node)
    conn.credits = 0
    put = node.put(stranger.nid, PORTAL, data=b"x", ack=False, timeout=1000)
    sim.run(39.9)
    assert not put.events
    sim.run(0.2)
    assert put.status == -errno.ETIMEDOUT
    assert counted(node, stranger) == {S.LOCAL_TIMEOUT: 1}
    assert node.core.nis[node.nid].health_stats.by_status[S.LOCAL_TIMEOUT] == 1


def test_one_that_is_late_ends_all_on_its_connection() -> None:
    sim, node, stranger = connected()
    first = node.get(stranger.nid, PORTAL, size=BIG, timeout=1000)
    stranger.wait_for(O2ibType.GET_REQ)
    sim.run(30.0)
    second = node.get(stranger.nid, PORTAL, size=BIG, timeout=1000)
    sim.run(10.1)
    assert (first.status, second.status) == (-errno.ETIMEDOUT, -errno.ETIMEDOUT)
    assert not conns(node)


def test_what_the_device_breaks_is_charged_here_and_not_to_the_peer() -> None:
    sim, node, stranger = connected()
    get = node.get(stranger.nid, PORTAL, size=BIG)  # awaits its answer
    put = node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    stranger.wait_for(O2ibType.GET_REQ)
    (conn,) = conns(node)
    conn.credits = 0
    waiting = node.put(stranger.nid, PORTAL, data=b"y", ack=False)
    sim.run(0.1)
    conn.broken("local protection error", here=True)
    sim.run(0.1)
    assert get.status == -errno.EIO
    assert put.status == 0
    assert waiting.status == -errno.EIO
    assert charged(node) == {S.LOCAL_ERROR: 2}


def test_what_the_other_side_breaks_is_charged_to_it() -> None:
    sim, node, stranger = connected()
    get = node.get(stranger.nid, PORTAL, size=BIG)
    stranger.wait_for(O2ibType.GET_REQ)
    (conn,) = conns(node)
    conn.broken("remote access error")
    sim.run(0.1)
    assert get.status == -errno.EIO
    assert counted(node, stranger) == {S.REMOTE_DROPPED: 1}


def test_a_connection_that_breaks_and_one_that_is_closed() -> None:
    sim, node, stranger = connected()
    get = node.get(stranger.nid, PORTAL, size=BIG)
    stranger.wait_for(O2ibType.GET_REQ)
    assert stranger.pair is not None
    stranger.pair.close()
    sim.run_until_quiet()
    assert get.status == -errno.ECONNRESET
    assert counted(node, stranger) == {S.REMOTE_DROPPED: 1}


def test_a_shorter_time_out_is_that_of_what_is_under_way() -> None:
    sim, node, stranger = connected()
    get = node.get(stranger.nid, PORTAL, size=BIG, timeout=1000)
    stranger.wait_for(O2ibType.GET_REQ)
    node.core.nis[node.nid].lnd_tunables.timeout = 5  # type: ignore[union-attr]
    node.core.retune(node.core.nis[node.nid])
    sim.run(5.1)
    assert get.status == -errno.ETIMEDOUT


def test_a_payload_that_does_not_come_is_given_up() -> None:
    sim, node, stranger = connected()
    inbox = node.attach(PORTAL)
    stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG), cookie=5)
    stranger.wait_for(O2ibType.PUT_ACK)
    sim.run_until_quiet()
    assert [delivery.status for delivery in inbox.deliveries] == [-errno.ETIMEDOUT]
    assert stranger.hung_up


@pytest.mark.parametrize(
    ("event", "news"),
    [
        (DeviceEvent.DEVICE_FATAL, NiEvent.FATAL),
        (DeviceEvent.PORT_ERR, NiEvent.FATAL),
        (DeviceEvent.DEVICE_REMOVAL, NiEvent.FATAL),
        (DeviceEvent.PORT_ACTIVE, NiEvent.RECOVERED),
        (DeviceEvent.ADDR_CHANGE, None),
    ],
)
def test_events_of_devices(event: DeviceEvent, news: NiEvent | None) -> None:
    assert DEVICE_EVENTS.get(event) is news
    _sim, node, _ = connected()
    state = node.o2ib.states[node.nid]
    ni = node.core.nis[node.nid]
    if news is NiEvent.RECOVERED:
        state.device_event(DeviceEvent.PORT_ERR, "")
        assert ni.fatal
    state.device_event(event, "by the test")
    assert ni.fatal is (news is NiEvent.FATAL)
    assert any("by the test" in line for line in node.reports)


def rails() -> tuple[Simulation, SimNode, SimNode]:
    sim = Simulation(5, thorough=True)
    a = sim.node("a", "10.0.0.1@o2ib", "10.1.0.1@o2ib1")
    b = sim.node("b", "10.0.0.2@o2ib", "10.1.0.2@o2ib1")
    b.attach(PORTAL)
    for _ in range(4):
        assert a.put(b.nid, PORTAL, data=b"x") is not None
        sim.run_until_quiet()
    return sim, a, b


@pytest.mark.parametrize("trouble", ["port", "device"])
def test_a_rail_that_fails_loses_nothing_and_is_used_again_when_it_is_back(trouble: str) -> None:
    sim, a, b = rails()
    port = sim.port("a.eth1")
    puts = [a.put(b.nid, PORTAL, data=bytes(size)) for size in (10, 50_000) * 20]
    sim.run(2e-5)
    if trouble == "port":
        sim.link_down(port)
    else:
        a.host.remove_device(port)
    assert a.core.nis[a.nids[1]].fatal
    puts += [a.put(b.nid, PORTAL, data=bytes(size)) for size in (10, 50_000) * 5]
    sim.run_until_quiet()
    assert all(put.ok for put in puts[40:])  # nothing was sent there any more
    assert sum(put.ok for put in puts[:40]) > 20
    if trouble == "port":
        sim.link_up(port)
    else:
        a.host.restore_device(port)
    sim.run(600.0)  # until recovery has pinged all that was blamed back to health
    assert not a.core.nis[a.nids[1]].fatal
    before = a.core.nis[a.nids[1]].stats.sent[1]
    puts = [a.put(b.nid, PORTAL, data=bytes(50_000)) for _ in range(40)]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert a.core.nis[a.nids[1]].stats.sent[1] > before


def test_a_path_that_cannot_be_made_is_left_by_what_waits_for_it() -> None:
    sim = Simulation(5, thorough=True)
    a = sim.node("a", "10.0.0.1@o2ib", "10.1.0.1@o2ib1")
    b = sim.node("b", "10.0.0.2@o2ib", "10.1.0.2@o2ib1")
    b.attach(PORTAL)
    a.add_peer(*b.nids)
    b.add_peer(*a.nids)
    sim.partition(["a.eth0"], ["b.eth0"])
    puts = [a.put(b.nid, PORTAL, data=b"x") for _ in range(20)]
    sim.run(4.0)
    assert all(put.ok for put in puts)
    sim.run_until_quiet()


def test_a_node_that_began_anew_is_known_before_anything_is_sent_to_it() -> None:
    sim, a, b = rails()
    b.kill(silent=True)
    b.restart()
    put = a.put(b.nid, PORTAL, data=b"x")
    sim.run_until_quiet()
    assert put.ok or put.status == -errno.ECONNRESET
    later = a.put(b.nid, PORTAL, data=b"x")
    sim.run_until_quiet()
    assert later.ok


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.pure
def test_a_doubtful_path_is_probed(silent: bool) -> None:
    """Another NID of the node has begun a new life: is this one still the former?"""
    sim, a, b = rails()
    told: list[tuple[object, bool]] = []
    core = a.o2ib._core
    core.peer_restarted = lambda nid, heard=True: told.append((nid, heard))  # type: ignore[method-assign]
    assert a.loop.enter(a.o2ib.verify, a.core.nis[a.nids[1]], b.nids[1])
    sim.run(10.0)
    assert not told and a.o2ib.states[a.nids[1]].peers[b.nids[1]].conns
    if silent:
        sim.partition(["a.eth1"], ["b.eth1"])
        a.loop.enter(a.o2ib.verify, a.core.nis[a.nids[1]], b.nids[1])
        sim.run(30.0)
        assert told == [(b.nids[1], False)]
    assert not a.loop.enter(a.o2ib.verify, a.core.nis[a.nids[0]], b.nids[1])


# What others cause ---------------------------------------------------------------------------------------

TOO_MUCH = ConnParams(255, 257, 4096)
ONE_MORE = ConnParams(9, 257, 4096)


def lowest(sim: Simulation, node: SimNode, seconds: float) -> int:
    """The least health that its NI has meanwhile."""
    ni, least = node.core.nis[node.nid], 1000
    for _ in range(int(seconds / 0.005)):
        sim.run(0.005)
        least = min(least, ni.health)
    return least


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        (b"nonsense", errno.EPROTO),
        (TOO_MUCH, errno.EPROTO),
        (ONE_MORE, errno.EPROTO),
        (Reason.NO_RESOURCES, errno.ECONNREFUSED),
        (Reason.FATAL, errno.ECONNREFUSED),
        (Reason.CONN_UNCOMPAT, errno.EPROTONOSUPPORT),
        (Reason.CONN_STALE, errno.ESTALE),
        (Reason.RDMA_FRAGS, errno.EMSGSIZE),
        (Reason.MSG_QUEUE_SIZE, errno.EMSGSIZE),
        (Reason.EARLY, errno.ECONNREFUSED),
    ],
)
def test_what_a_peer_answers_to_calls_is_charged_to_the_peer(
    answer: bytes | ConnParams | Reason, number: int
) -> None:
    sim, node, stranger = node_and_stranger()
    stranger.answers = [answer] * 900
    puts = []
    for _ in range(20):
        puts.append(node.put(stranger.nid, PORTAL, data=b"x", ack=False))
        assert lowest(sim, node, 0.02) == 1000
    assert {put.status for put in puts} == {-number}
    status = S.REMOTE_DROPPED if number == errno.ECONNREFUSED else S.REMOTE_ERROR
    assert charged(node) == counted(node, stranger) == {status: 20}


def test_races_without_end_are_charged_to_the_peer() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.answers = [Reject(0x12, Reason.CONN_RACE, 1, ConnParams(8, 257, 4096))] * 900
    put = node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    sim.run_until_quiet()
    assert put.status == -errno.EALREADY
    assert charged(node) == {S.REMOTE_ERROR: 1}


def test_what_the_device_refuses_is_charged_here() -> None:
    class Full:
        pieces = 1

        def connect(self, *asked: object) -> None:
            raise LNetError(errno.EINVAL, "no queue pair")

        def close(self) -> None:
            pass

    sim, node, stranger = node_and_stranger()
    state = node.o2ib.states[node.nid]
    device, state.device = state.device, Full()  # type: ignore[assignment]
    put = node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    sim.run(1.0)
    state.device = device
    assert put.status == -errno.EINVAL
    assert put.reason.endswith("no queue pair")
    assert set(charged(node)) == {S.LOCAL_DROPPED}


@pytest.mark.parametrize("how", ["hangs up", "breaks the protocol"])
def test_what_waits_for_a_credit_when_a_peer_ends_the_connection_is_charged_to_it(how: str) -> None:
    sim, node, stranger = with_two_credits()
    puts = [node.put(stranger.nid, PORTAL, data=b"x", ack=False) for _ in range(8)]
    sim.run(1e-6)
    assert stranger.pair is not None
    if how == "hangs up":
        stranger.pair.close()
    else:
        stranger.say(O2ibType.NOOP, credits=200)
    assert lowest(sim, node, 0.2) == 1000
    assert charged(node) == {S.REMOTE_ERROR: 6, S.REMOTE_DROPPED: 2}
    assert {put.status for put in puts} <= {-errno.ECONNRESET, -errno.EPROTO}


def test_what_an_access_list_ends_is_not_charged_here() -> None:
    sim, node, stranger = with_two_credits()
    puts = [node.put(stranger.nid, PORTAL, data=b"x", ack=False) for _ in range(6)]
    get = node.get(stranger.nid, PORTAL, size=BIG)
    sim.run(1e-6)
    node.loop.enter(node.core.set_access, access_of(deny=[str(stranger.nid)]))
    assert lowest(sim, node, 1.0) == 1000
    assert {one.status for one in (*puts, get)} == {-errno.EACCES}
    assert charged(node) == {S.REMOTE_ERROR: 7}


def test_the_status_of_calls_that_fail() -> None:
    """What the specification tells of is as there; of the rest a device's errors are charged here."""
    told = {
        errno.EHOSTUNREACH: S.NETWORK_TIMEOUT,
        errno.ETIMEDOUT: S.NETWORK_TIMEOUT,
        errno.ECONNREFUSED: S.REMOTE_DROPPED,
        errno.ENETDOWN: S.LOCAL_DROPPED,
        errno.ENOTCONN: S.LOCAL_DROPPED,
    }
    for number in errno.errorcode:
        assert connect_status(number) is told.get(number, S.REMOTE_ERROR)
        assert connect_status(number, of_device=True) is told.get(number, S.LOCAL_DROPPED)


def test_nids_that_o2ib_does_not_carry_are_charged_to_who_has_them() -> None:
    sim, node, _ = node_and_stranger()
    puts = []
    for number in range(1, 16):
        puts.append(node.put(f"fd00::{number:x}@o2ib", PORTAL, data=b"x", ack=False))
        assert lowest(sim, node, 0.05) == 1000
    assert {put.status for put in puts} == {-errno.EAFNOSUPPORT}
    assert charged(node) == {S.REMOTE_ERROR: 15}


def test_a_peer_that_lists_such_nids_loses_few_answers_and_costs_no_health() -> None:
    sim = Simulation(5, thorough=False)
    node, foe = (sim.node(name, nid) for name, nid in (("v", "10.0.0.1@o2ib"), ("f", "10.0.0.2@o2ib")))
    foe.attach(PORTAL)
    foe.ping(node.nid)
    sim.run(2.0)
    listed = [NiEntry(foe.nid), *(NiEntry(Nid.parse(f"fd00::{at:x}@o2ib")) for at in range(1, 12))]
    data = PingInfo(0x3E, LNET_PID, 99, listed).pack()
    own = foe.core.info._ping  # what pings are answered with, too
    assert own is not None
    own.fragments, own.length = [memoryview(data)], len(data)
    md = foe.core.memory.md_bind(data, None, threshold=2)
    foe.loop.enter(lambda: foe.core.put(md, node.nid, 0, PING_MATCH_BITS))
    sim.run(2.0)
    peer = node.core.peers.find(foe.nid)
    assert peer is not None and len(peer.members) == 12
    puts = []
    for _ in range(40):
        puts.append(node.put(foe.nid, PORTAL, data=b"x", ack=False))
        assert lowest(sim, node, 0.05) == 1000
    assert sum(put.ok for put in puts) > 30
    assert set(charged(node)) == {S.REMOTE_ERROR}


def test_a_header_that_cannot_be_packed_charges_nobody() -> None:
    """A router's, for the source has a NID that o2ib does not carry."""
    sim = Simulation(5, thorough=True)
    router = sim.node("r", "fd00::1@tcp", "10.0.0.1@o2ib")
    far, near = sim.node("f", "fd00::3@tcp"), sim.node("n", "10.0.0.3@o2ib")
    near.attach(PORTAL)
    assert not router.configure("routing: {enable: 1}\nglobal: {discovery: 0}")
    assert not far.configure("route:\n  - {net: o2ib, gateway: 'fd00::1@tcp'}\nglobal: {discovery: 0}")
    for _ in range(15):
        far.put(near.nid, PORTAL, data=b"x", ack=False)
        sim.run(0.1)
    assert router.core.nis[Nid.parse("10.0.0.1@o2ib")].health == 1000
    assert charged(router, "10.0.0.1@o2ib") == {}
    assert sum("could not be reached" in line for line in router.reports) > 0
    sim.run_until_quiet()


def test_gets_with_too_little_room_are_charged_to_who_asks_and_have_one_answer() -> None:
    sim, node, stranger = node_and_stranger()
    assert not node.configure("global: {retry_count: 2}")
    node.add_ni("10.0.0.2@o2ib")  # by which another attempt might go
    node.attach(PORTAL)
    stranger.call(node)
    node.ping(stranger.nid)
    sim.run_until_quiet()
    me = node.core.memory.me_attach(33, match_bits=0)
    node.core.memory.md_attach(me, bytearray(100_000), None, options=int(OP_GET | MANAGE_REMOTE | TRUNCATE))
    _, region = stranger.memory(10)
    for burst in range(5):
        for cookie in range(16):
            wmd = bytes([*[1] * 14, burst, cookie])
            hdr = header(stranger, node, MsgType.GET, portal=33, length=50_000, wmd=wmd)
            stranger.say_lnet(O2ibType.GET_REQ, hdr, cookie=cookie, target=stranger.target(region))
        assert lowest(sim, node, 0.1) == 1000
    assert charged(node) == counted(node, stranger) == {S.REMOTE_ERROR: 80}
    done = [message for message in stranger.heard if message.type is O2ibType.GET_DONE]
    assert [message.status for message in done] == [-errno.EMSGSIZE] * 80
    sim.run_until_quiet()
    assert stranger.count(O2ibType.PUT_REQ) == 0
    assert len(stranger.calls) == 0
