"""Credits, NOOPs, and the ways a payload goes, against a hand-made peer that speaks bytes (spec §3, §4)."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from lnd.o2ib.test_handshake import conns
from support.rdma import PARAMS, Stranger, node_and_stranger
from ulnet.core.event import Event
from ulnet.core.md import OP_PUT, TRUNCATE
from ulnet.core.status import LNetError
from ulnet.lnd.o2ib import O2ibParams
from ulnet.lnd.o2ib.errors import Failure
from ulnet.lnd.o2ib.peer import Peer
from ulnet.lnd.o2ib.verbs import Piece, Write
from ulnet.nid import LNET_PID
from ulnet.sim import SimNode, Simulation
from ulnet.sim.verbs import SimDevice, SimPair
from ulnet.wire.lnet import NO_WMD, Header, MsgType
from ulnet.wire.o2ib import O2ibType

pytestmark = pytest.mark.requirement("LND-o2ib")
PORTAL = 30
BIG = 10_000
STOP = Failure(errno.ESHUTDOWN, "stopped by the test")


def header(stranger: Stranger, node: SimNode, kind: MsgType = MsgType.PUT, **fields: Any) -> Header:
    hdr = Header(int(kind), node.nid, stranger.nid, LNET_PID, LNET_PID, portal=PORTAL, wmd=NO_WMD)
    for name, value in fields.items():
        setattr(hdr, name, value)
    return hdr


def write(stranger: Stranger, data: bytes, key: int, address: int) -> Write:
    assert stranger.pair is not None
    region = stranger.pair.register(memoryview(data), False)
    return Write([Piece(region, 0, len(data))], key, address)


@pytest.mark.parametrize("size", [0, 1, 3976, 3977, 100_000, 1 << 20])
@pytest.mark.parametrize("version", [0x11, 0x12])
def test_puts_and_gets_of_all_sizes_between_nodes(size: int, version: int) -> None:
    sim = Simulation(3, thorough=True)
    a, b = sim.node("a", "10.0.0.1@o2ib"), sim.node("b", "10.0.0.2@o2ib")
    inbox = b.attach(PORTAL)
    a.ping(b.nid)
    sim.run_until_quiet()
    if version == 0x11:
        for node in (a, b):
            for conn in conns(node):
                conn.close(STOP)
        a.o2ib.states[a.nid].peers.clear()
        peer = a.o2ib.states[a.nid].peers[b.nid] = Peer(a.o2ib.states[a.nid], b.nid)
        peer.version = version
    data = bytes(range(256)) * (size // 256 + 1)
    puts = [a.put(b.nid, PORTAL, data=data[:size]) for _ in range(30)]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert len(inbox) == 30
    assert inbox.deliveries[-1].data == data[:size]
    gets = [a.get(b.nid, PORTAL, size=size) for _ in range(10)]
    sim.run_until_quiet()
    assert all(get.ok and bytes(get.buffer) == data[:size] for get in gets)
    assert {conn.version for conn in (*conns(a), *conns(b))} == {version}


@pytest.mark.parametrize("version", [0x11, 0x12])
def test_credits_come_back_in_a_noop_at_the_high_water(version: int) -> None:
    sim, node, stranger = node_and_stranger()
    node.attach(PORTAL)
    stranger.call(node, version=version)
    due = 7 if version == 0x11 else 4
    for number in range(1, 8):
        stranger.say_lnet(O2ibType.IMMEDIATE, header(stranger, node, payload_length=1), payload=b"x")
        sim.run_until_quiet()
        returned = sum(message.credits for message in stranger.heard)
        assert returned == number // due * due
    assert {message.type for message in stranger.heard} == {O2ibType.NOOP}


@pytest.mark.parametrize(("version", "most"), [(0x11, 7), (0x12, 8)])
def test_nothing_is_sent_without_a_credit(version: int, most: int) -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node, version=version)
    node.ping(stranger.nid)
    sim.run_until_quiet()
    for _ in range(20):
        node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    sim.run(1.0)
    assert stranger.count(O2ibType.IMMEDIATE) == most
    stranger.say(O2ibType.NOOP, credits=3)
    sim.run(1.0)
    assert stranger.count(O2ibType.IMMEDIATE) == most + 3
    for _ in range(4):
        stranger.say(O2ibType.NOOP, credits=3)
        sim.run(1.0)
    sim.run_until_quiet()
    assert stranger.count(O2ibType.IMMEDIATE) == 20


def test_version_1_keeps_its_last_credit_for_a_noop() -> None:
    sim, node, stranger = node_and_stranger()
    node.attach(PORTAL)
    stranger.call(node, version=0x11)
    node.ping(stranger.nid)
    sim.run_until_quiet()
    for _ in range(10):
        node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    sim.run(1.0)
    for _ in range(7):  # its credits come back, though it has taken none of ours back
        stranger.say_lnet(O2ibType.IMMEDIATE, header(stranger, node, payload_length=1), payload=b"x")
    sim.run(1.0)
    assert [message.type for message in stranger.heard][-1] is O2ibType.NOOP
    assert sum(message.credits for message in stranger.heard) == 8  # one for the answer to the ping
    (conn,) = conns(node)
    assert conn.credits == 0


def test_silence_is_broken_by_a_noop() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    sim.run(99.0)
    assert not stranger.heard
    sim.run(202.0)
    assert [message.type for message in stranger.heard] == [O2ibType.NOOP] * 3


def test_a_peer_that_vanished_in_silence_is_found_by_the_keepalive() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    sim.run_until_quiet()
    sim.partition(["a"], [stranger.host.name])
    sim.run(90.0)
    assert len(conns(node)) == 1
    sim.run(20.0)
    assert not conns(node)


@pytest.mark.parametrize("pieces", [(BIG,), (4096, 4096, BIG - 8192), (1, 1, BIG - 2)])
def test_a_large_put_is_written_where_its_sink_says(pieces: tuple[int, ...]) -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    put = node.put(stranger.nid, PORTAL, data=bytes(range(250)) * 40, ack=False)
    asked = stranger.wait_for(O2ibType.PUT_REQ)
    assert asked.header is not None and asked.header.payload_length == BIG
    data, region = stranger.memory(BIG)
    target = stranger.target(region, *pieces)
    stranger.say(O2ibType.PUT_ACK, cookie=asked.cookie, sink_cookie=99, target=target, credits=1)
    done = stranger.wait_for(O2ibType.PUT_DONE)
    assert (done.cookie, done.status) == (99, 0)
    assert bytes(data) == bytes(range(250)) * 40
    sim.run_until_quiet()
    assert put.ok


def test_a_sink_may_take_less_and_an_md_may_be_in_many_pieces() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    pieces = [bytes([number]) * 500 for number in range(20)]
    md = node.core.memory.md_bind(pieces, None, threshold=1)
    node.loop.enter(lambda: node.core.put(md, stranger.nid, PORTAL, 0, ack=False))
    asked = stranger.wait_for(O2ibType.PUT_REQ)
    data, region = stranger.memory(BIG)
    sink = stranger.target(region, 700, 700)
    stranger.say(O2ibType.PUT_ACK, cookie=asked.cookie, sink_cookie=99, target=sink, credits=1)
    stranger.wait_for(O2ibType.PUT_DONE)
    assert bytes(data) == b"".join(pieces)[:1400] + bytes(BIG - 1400)
    sim.run_until_quiet()


@pytest.mark.parametrize(("status", "told"), [(0, 0), (-errno.ENOMEM, -errno.ENOMEM)])
@pytest.mark.requirement("HEALTH-o2ib")
def test_a_large_put_that_is_not_wanted(status: int, told: int) -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    put = node.put(stranger.nid, PORTAL, data=bytes(BIG), ack=False)
    asked = stranger.wait_for(O2ibType.PUT_REQ)
    stranger.say(O2ibType.PUT_NAK, cookie=asked.cookie, status=status, credits=1)
    sim.run_until_quiet()
    assert put.status == told
    peer_ni = node.core.peers.find_ni(stranger.nid)
    assert (
        peer_ni is not None and peer_ni.health == node.core.nis[node.nid].health == 1000
    )  # nobody is charged
    assert not sum(peer_ni.health_stats.by_status[1:])


def test_a_large_put_comes_by_request_and_acknowledgement() -> None:
    sim, node, stranger = node_and_stranger()
    inbox = node.attach(PORTAL)
    stranger.call(node)
    stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG), cookie=5)
    ack = stranger.wait_for(O2ibType.PUT_ACK)
    assert ack.cookie == 5 and ack.target is not None and ack.target.length == BIG
    assert stranger.pair is not None
    (at,) = ack.target.fragments
    stranger.pair.post([write(stranger, b"ab" * 5000, ack.target.key, at[1])])
    stranger.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie)
    sim.run_until_quiet()
    assert inbox.deliveries[0].data == b"ab" * 5000


def test_memory_in_pieces_is_lent_as_one_and_filled_in_the_end() -> None:
    sim, node, stranger = node_and_stranger()
    rooms = [bytearray(3000), bytearray(5000), bytearray(4000)]
    seen: list[Event] = []
    me = node.core.memory.me_attach(PORTAL, match_bits=0)
    node.core.memory.md_attach(me, rooms, seen.append, options=OP_PUT | TRUNCATE)
    stranger.call(node)
    stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG), cookie=5)
    ack = stranger.wait_for(O2ibType.PUT_ACK)
    assert ack.target is not None and len(ack.target.fragments) == 1
    data = bytes(range(250)) * 40
    assert stranger.pair is not None
    stranger.pair.post([write(stranger, data, ack.target.key, ack.target.fragments[0][1])])
    stranger.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie)
    sim.run_until_quiet()
    assert b"".join(rooms)[:BIG] == data
    assert [event.mlength for event in seen] == [BIG]


@pytest.mark.parametrize("attached", [False, True])
def test_a_large_put_for_which_there_is_no_memory_is_not_fetched(attached: bool) -> None:
    sim, node, stranger = node_and_stranger()
    if attached:
        node.attach(PORTAL, size=0)
    stranger.call(node)
    stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG), cookie=5)
    nak = stranger.wait_for(O2ibType.PUT_NAK)
    assert (nak.cookie, nak.status) == (5, 0)
    sim.run_until_quiet()


def test_a_payload_that_waits_for_memory_holds_up_nobody() -> None:
    sim, node, stranger = node_and_stranger()
    node.core.memory.set_lazy(31)
    inbox = node.attach(PORTAL)
    stranger.call(node)
    stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG, portal=31), cookie=5)
    stranger.say_lnet(O2ibType.IMMEDIATE, header(stranger, node, payload_length=1, portal=31), payload=b"y")
    stranger.say_lnet(O2ibType.IMMEDIATE, header(stranger, node, payload_length=1), payload=b"x")
    sim.run(1.0)
    assert len(inbox) == 1
    late = node.attach(31)
    ack = stranger.wait_for(O2ibType.PUT_ACK)
    assert [delivery.data for delivery in late.deliveries] == [b"y"]
    stranger.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie, status=-errno.EIO)
    sim.run_until_quiet()
    assert [delivery.status for delivery in late.deliveries] == [0, -errno.EIO]


def test_a_get_of_much_is_answered_by_writes() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    get = node.get(stranger.nid, PORTAL, size=BIG)
    asked = stranger.wait_for(O2ibType.GET_REQ)
    assert asked.target is not None and asked.target.length == BIG
    assert stranger.pair is not None
    key, (_, address) = asked.target.key, asked.target.fragments[0]
    stranger.pair.post([write(stranger, b"z" * 7000, key, address)])
    stranger.say(O2ibType.GET_DONE, cookie=asked.cookie, status=7000, credits=1)
    sim.run_until_quiet()
    assert get.ok and get.taken == 7000
    assert bytes(get.buffer) == b"z" * 7000 + bytes(3000)
    assert get.events == ["SEND", "REPLY"]


@pytest.mark.requirement("HEALTH-o2ib")
def test_a_get_that_finds_nothing_fails_at_once_and_nobody_is_charged() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    get = node.get(stranger.nid, PORTAL, size=BIG)
    asked = stranger.wait_for(O2ibType.GET_REQ)
    stranger.say(O2ibType.GET_DONE, cookie=asked.cookie, status=-errno.ENODATA, credits=1)
    sim.run_until_quiet()
    assert get.status == -errno.ENODATA
    assert node.core.nis[node.nid].health == 1000
    assert not any(node.core.nis[node.nid].health_stats.by_status)  # nor is a failed message counted
    assert str(stranger.nid) in get.reason


@pytest.mark.parametrize("size", [0, 10, BIG])
def test_a_get_request_is_answered_by_writes_whatever_there_is(size: int) -> None:
    sim, node, stranger = node_and_stranger()
    inbox = node.attach(PORTAL, size=size)
    assert inbox.md is not None
    inbox.md.fragments[0][:] = b"w" * size
    stranger.call(node)
    data, region = stranger.memory(BIG)
    target = stranger.target(region, 5000, 5000)
    hdr = header(stranger, node, MsgType.GET, length=BIG, wmd=bytes(16))
    stranger.say_lnet(O2ibType.GET_REQ, hdr, cookie=8, target=target)
    done = stranger.wait_for(O2ibType.GET_DONE)
    assert (done.cookie, done.status) == (8, size)
    assert bytes(data) == b"w" * size + bytes(BIG - size)
    sim.run_until_quiet()


@pytest.mark.requirement("LND-o2ib")
def test_a_get_request_that_finds_nothing_is_told_so() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    _, region = stranger.memory(BIG)
    hdr = header(stranger, node, MsgType.GET, length=BIG, wmd=bytes(16))
    asked = sim.now
    stranger.say_lnet(O2ibType.GET_REQ, hdr, cookie=8, target=stranger.target(region))
    done = stranger.wait_for(O2ibType.GET_DONE)
    assert (done.cookie, done.status) == (8, -errno.ENODATA)
    assert sim.now - asked < 1  # at once, not when its time is over


def test_a_get_over_a_gateway_is_immediate() -> None:
    _sim, node, stranger = node_and_stranger()
    stranger.call(node)
    assert not node.configure(f"route: [{{net: tcp9, gateway: {stranger.nid}}}]")
    node.get("10.9.9.9@tcp9", PORTAL, size=BIG, timeout=1)
    asked = stranger.wait_for(O2ibType.IMMEDIATE)
    assert asked.header is not None and asked.header.type == MsgType.GET


def test_several_connections_take_turns() -> None:
    sim = Simulation(3, thorough=True)
    a, b = sim.node("a", "10.0.0.1@o2ib"), sim.node("b", "10.0.0.2@o2ib")
    tunables = a.core.nis[a.nid].lnd_tunables
    assert tunables is not None
    tunables.conns_per_peer = 3
    a.core.retune(a.core.nis[a.nid])
    b.attach(PORTAL)
    for _ in range(4):
        puts = [a.put(b.nid, PORTAL, data=bytes(size)) for size in (1, 20_000) for _ in range(12)]
        sim.run_until_quiet()
        assert all(put.ok for put in puts)
    assert len(conns(a)) == 3


def test_an_ni_talks_to_itself() -> None:
    sim = Simulation(3, thorough=True)
    a = sim.node("a", "10.0.0.1@o2ib", "10.0.0.2@o2ib")
    a.attach(PORTAL)
    for to in a.nids:
        ping = a.ping(to)
        sim.run_until_quiet()
        assert ping.ok


def test_memory_that_is_sent_from_again_is_registered_once_and_released_with_its_descriptor() -> None:
    sim = Simulation(3, thorough=True)
    a, b = sim.node("a", "10.0.0.1@o2ib"), sim.node("b", "10.0.0.2@o2ib")
    inbox = b.attach(PORTAL)
    device = next(iter(b.host.devices))
    for _ in range(5):
        a.get(b.nid, PORTAL, size=BIG)
        sim.run_until_quiet()
        assert [region.remote for region in device.regions.values()] == [False]
    assert device.registered == 1
    for _ in range(5):  # what peers write there is registered for each of them
        a.put(b.nid, PORTAL, data=bytes(BIG))
        sim.run_until_quiet()
        assert len(device.regions) == 1
    assert device.registered == 6
    assert inbox.md is not None
    b.loop.enter(b.core.memory.md_unlink, inbox.md)
    assert not device.regions
    assert not next(iter(a.host.devices)).regions


def test_memory_that_cannot_be_registered_fails_the_message_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Simulation(3, thorough=True)
    a, b = sim.node("a", "10.0.0.1@o2ib"), sim.node("b", "10.0.0.2@o2ib")
    inbox = b.attach(PORTAL)
    a.ping(b.nid)
    sim.run_until_quiet()
    full: list[SimDevice] = []
    register = SimPair.register

    def refuses(self: SimPair, view: memoryview, remote: bool) -> Any:
        if self.device in full:
            raise LNetError(errno.ENOMEM, "the limit of locked memory is reached")
        return register(self, view, remote)

    monkeypatch.setattr(SimPair, "register", refuses)
    for device in (*a.host.devices, *b.host.devices):
        full[:] = [device]
        operations = [a.put(b.nid, PORTAL, data=bytes(BIG)), a.get(b.nid, PORTAL, size=BIG)]
        small = a.put(b.nid, PORTAL, data=b"x")
        sim.run_until_quiet()
        assert small.ok
        assert {operation.status for operation in operations} <= {-errno.ENOMEM, -errno.ETIMEDOUT}
    assert inbox.times
    full.clear()
    last = a.put(b.nid, PORTAL, data=bytes(BIG))
    sim.run_until_quiet()
    assert last.ok


def test_ntx_bounds_what_the_driver_has() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node)
    tunables = node.core.nis[node.nid].lnd_tunables
    assert tunables is not None
    tunables.ntx = 2
    node.ping(stranger.nid)
    sim.run_until_quiet()
    puts = [node.put(stranger.nid, PORTAL, data=b"x", ack=False) for _ in range(6)]
    sim.run(1.0)
    assert [put.status for put in puts].count(-errno.ENOMEM) == 4


def test_what_waits_for_connections_holds_up_nobody_else() -> None:
    """Messages to 512 addresses that nobody has had all transmits of the NI."""
    sim, node, stranger = node_and_stranger()
    state = node.o2ib.states[node.nid]
    stranger.call(node)
    node.ping(stranger.nid)
    sim.run_until_quiet()
    nobody = [f"10.0.{1 + number // 250}.{number % 250}@o2ib" for number in range(600)]
    lost = [node.put(nid, PORTAL, data=bytes(BIG), ack=False) for nid in nobody]
    sim.run(0.1)
    assert (len(state.in_hand), state.requests) == (600, 0)
    late = Stranger(sim, "10.0.0.8@o2ib")
    puts = [node.put(peer.nid, PORTAL, data=b"x", ack=False) for peer in (stranger, late)]
    sim.run(0.1)
    assert [put.status for put in puts] == [0, 0]
    sim.run_until_quiet()
    assert {put.status for put in lost} == {-errno.EHOSTUNREACH}
    assert (len(state.in_hand), state.requests) == (0, 0)


def test_what_waited_for_a_connection_has_a_transmit_once_that_is_there() -> None:
    sim, node, stranger = node_and_stranger()
    state = node.o2ib.states[node.nid]
    put = node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    sim.run_until(lambda: bool(state.in_hand))
    assert state.requests == 0
    sim.run_until(lambda: bool(conns(node)))
    assert state.requests == 1
    sim.run_until_quiet()
    assert put.ok
    assert state.requests == 0


def test_peers_that_return_no_credits_hold_up_nobody_else() -> None:
    """Answers to 32 of them had all credits of the NI, and those to 64 of them all transmits."""
    sim = Simulation(1, thorough=True)
    node, other = sim.node("a", "10.0.0.1@o2ib"), sim.node("b", "10.0.0.2@o2ib")
    assert not node.configure("global: {discovery: 0}")
    ni, state = node.core.nis[node.nid], node.o2ib.states[node.nid]
    state.tunables.ntx = 32
    ni.tx_queues[0].most_answers = 16
    node.attach(PORTAL)
    other.attach(PORTAL)
    other.ping(node.nid)
    sim.run(1.0)
    foes = [Stranger(sim, f"10.0.1.{number}@o2ib") for number in range(1, 9)]
    for foe in foes:
        foe.answers_pings = False
        foe.call(node, params=PARAMS)
        for number in range(20):
            wmd = number.to_bytes(16, "little")
            foe.say_lnet(O2ibType.IMMEDIATE, header(foe, node, MsgType.GET, length=100, wmd=wmd), payload=b"")
            sim.run(0.01)
    assert len(state.in_hand) == 8 * 8
    assert ni.tx_credits == ni.max_tx_credits - 16
    put, own = other.put(node.nid, PORTAL, data=b"x"), node.put(other.nid, PORTAL, data=b"x")
    sim.run(0.01)
    assert put.ok
    assert own.ok
    sim.run_until_quiet()
    assert not state.in_hand
    assert not state.requests
    assert ni.tx_credits == ni.max_tx_credits


def test_checksums_are_sent_and_verified() -> None:
    sim, node, stranger = node_and_stranger()
    state = node.o2ib.states[node.nid]
    state.params = replace(state.params, cksum=1)
    stranger.call(node)
    node.put(stranger.nid, PORTAL, data=b"hello", ack=False)
    message = stranger.wait_for(O2ibType.IMMEDIATE)
    assert message.csum
    broken = bytearray(stranger.message(O2ibType.NOOP).pack())
    broken[12] = 1
    stranger.say_bytes(bytes(broken))
    sim.run_until(lambda: stranger.hung_up)
    assert stranger.hung_up


def test_params_are_checked() -> None:
    assert O2ibParams(rnr_retry_count=7).rnr_retry_count == 7
    for name, value in (("service", 0), ("retry_count", 8), ("keepalive", -1), ("cksum", 2)):
        with pytest.raises(LNetError, match=f"{name}={value} is out of range"):
            replace(O2ibParams(), **{name: value})  # type: ignore[arg-type]
    assert PARAMS.max_message == 4096
