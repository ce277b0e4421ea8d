"""What a peer may do that breaks the protocol: its connection ends, memory is left alone, nothing is lost."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lnd.o2ib.test_handshake import conns
from lnd.o2ib.test_traffic import BIG, PORTAL, header, write
from support.rdma import Stranger, node_and_stranger
from ulnet.nid import Nid
from ulnet.sim import SimNode, Simulation
from ulnet.wire.lnet import MsgType
from ulnet.wire.o2ib import MAX_MESSAGE, ConnParams, O2ibMessage, O2ibType, RdmaTarget

pytestmark = pytest.mark.requirement("LND-o2ib")


def connected() -> tuple[Simulation, SimNode, Stranger]:
    sim, node, stranger = node_and_stranger()
    node.attach(PORTAL)
    stranger.call(node)
    node.ping(stranger.nid)
    sim.run_until_quiet()
    return sim, node, stranger


def ends(sim: Simulation, node: SimNode, stranger: Stranger) -> None:
    """The connection ends, all is back, and another one can be made."""
    sim.run_until(lambda: stranger.hung_up or bool(stranger.failed))
    stranger.events.clear()
    sim.run_until_quiet()
    assert not conns(node)
    stranger.failed = ""
    stranger.call(node)
    put = node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    sim.run_until_quiet()
    assert put.ok


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 0x11},
        {"src_nid": Nid.parse("10.0.0.8@o2ib")},
        {"src_incarnation": 1},
        {"dst_nid": Nid.parse("10.0.0.8@o2ib")},
        {"dst_incarnation": 1},
        {"dst_incarnation": 0},
        {"credits": 9},
        {"credits": 255},
    ],
    ids=str,
)
def test_messages_that_are_not_of_this_connection(fields: dict[str, Any]) -> None:
    sim, node, stranger = connected()
    stranger.say(O2ibType.NOOP, **fields)
    ends(sim, node, stranger)


@pytest.mark.parametrize("kind", [O2ibType.PUT_ACK, O2ibType.PUT_NAK, O2ibType.PUT_DONE, O2ibType.GET_DONE])
@pytest.mark.parametrize("cookie", [0, 1, 1 << 63])
def test_answers_to_what_nobody_asked(kind: O2ibType, cookie: int) -> None:
    sim, node, stranger = connected()
    target = RdmaTarget(1, ((100, 4096),)) if kind is O2ibType.PUT_ACK else None
    stranger.say(kind, cookie=cookie, target=target)
    ends(sim, node, stranger)


@pytest.mark.parametrize("kind", [O2ibType.GET_DONE, O2ibType.PUT_DONE])
def test_a_put_request_is_not_answered_by_that(kind: O2ibType) -> None:
    sim, node, stranger = connected()
    put = node.put(stranger.nid, PORTAL, data=bytes(BIG), ack=False)
    asked = stranger.wait_for(O2ibType.PUT_REQ)
    stranger.say(kind, cookie=asked.cookie)
    ends(sim, node, stranger)
    assert put.status is not None and put.status < 0


@pytest.mark.parametrize("again", [O2ibType.PUT_ACK, O2ibType.PUT_NAK])
def test_a_second_answer(again: O2ibType) -> None:
    sim, node, stranger = connected()
    put = node.put(stranger.nid, PORTAL, data=bytes(BIG), ack=False)
    asked = stranger.wait_for(O2ibType.PUT_REQ)
    _, region = stranger.memory(BIG)
    target = stranger.target(region)
    for kind in (O2ibType.PUT_ACK, again):
        stranger.say(kind, cookie=asked.cookie, sink_cookie=4, target=target)
    ends(sim, node, stranger)
    assert put.status is not None


def test_requests_without_end() -> None:
    sim, node, stranger = connected()
    for _ in range(100):
        if stranger.hung_up or stranger.failed or stranger.pair is None or not stranger.pair.open:
            break
        stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG), cookie=5)
        sim.run(0.001)
    assert stranger.count(O2ibType.PUT_ACK) < 70
    ends(sim, node, stranger)


def test_calls_that_are_refused_do_not_fill_the_log() -> None:
    sim, node, stranger = node_and_stranger()
    for _ in range(300):
        stranger.call(node, b"no connection request")
        sim.run(0.002)
    lines = [line for line in node.reports if "refused a call" in line]
    assert 1 <= len(lines) <= 3


def test_gets_without_end_of_a_peer_that_takes_no_answers() -> None:
    """Its credits say nothing: a receive buffer is free again at once. The answers would wait without end."""
    sim, node, stranger = connected()
    (conn,) = conns(node)
    depth = conn.params.queue_depth
    stranger.recycles = False
    assert stranger.pair is not None
    while stranger.pair.free:
        stranger.pair.free.pop()
    most = 0
    for _ in range(200):
        if stranger.hung_up or stranger.failed or not stranger.pair.open:
            break
        hdr = header(stranger, node, MsgType.GET, portal=PORTAL + 1)
        stranger.say_lnet(O2ibType.GET_REQ, hdr, cookie=3, target=RdmaTarget(1, ((0, 4096),)))
        sim.run(0.0001)
        most = max(most, len(conn._oob))
    assert depth <= most <= 8 * depth + 1
    sim.run_until_quiet()
    assert not conns(node)


def test_a_done_that_comes_twice_or_late() -> None:
    sim, node, stranger = connected()
    stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG), cookie=5)
    ack = stranger.wait_for(O2ibType.PUT_ACK)
    stranger.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie)
    stranger.say(O2ibType.PUT_DONE, cookie=ack.sink_cookie)
    ends(sim, node, stranger)
    assert [delivery.status for delivery in node.inboxes[0].deliveries] == [0]


@pytest.mark.parametrize("size", [BIG + 1, 1 << 31])
def test_a_sink_larger_than_the_payload(size: int) -> None:
    sim, node, stranger = connected()
    put = node.put(stranger.nid, PORTAL, data=bytes(BIG), ack=False)
    asked = stranger.wait_for(O2ibType.PUT_REQ)
    stranger.say(O2ibType.PUT_ACK, cookie=asked.cookie, target=RdmaTarget(1, ((size, 4096),)))
    ends(sim, node, stranger)
    assert put.status == -errno.EPROTO


def test_a_sink_in_memory_that_is_not_registered_breaks_the_connection_there() -> None:
    sim, node, stranger = connected()
    put = node.put(stranger.nid, PORTAL, data=bytes(BIG), ack=False)
    asked = stranger.wait_for(O2ibType.PUT_REQ)
    stranger.say(O2ibType.PUT_ACK, cookie=asked.cookie, target=RdmaTarget(77, ((BIG, 4096),)))
    ends(sim, node, stranger)
    assert put.status == -errno.EIO


def test_more_fragments_than_were_agreed() -> None:
    sim, node, stranger = node_and_stranger()
    stranger.call(node, params=_few())
    put = node.put(stranger.nid, PORTAL, data=bytes(BIG), ack=False)
    asked = stranger.wait_for(O2ibType.PUT_REQ)
    target = RdmaTarget(1, tuple((100, 4096 + 100 * at) for at in range(5)))
    stranger.say(O2ibType.PUT_ACK, cookie=asked.cookie, target=target)
    sim.run_until(lambda: stranger.hung_up)
    sim.run_until_quiet()
    assert put.status == -errno.EPROTO
    stranger.call(node, params=_few())
    hdr = header(stranger, node, MsgType.GET, length=500, wmd=bytes(16))
    stranger.say_lnet(O2ibType.GET_REQ, hdr, target=target)
    sim.run_until(lambda: stranger.hung_up)


def _few() -> Any:
    return ConnParams(8, 4, 4096)


def test_more_bytes_than_were_asked_for() -> None:
    sim, node, stranger = connected()
    get = node.get(stranger.nid, PORTAL, size=BIG)
    asked = stranger.wait_for(O2ibType.GET_REQ)
    stranger.say(O2ibType.GET_DONE, cookie=asked.cookie, status=BIG + 1)
    ends(sim, node, stranger)
    assert get.status == -errno.EPROTO


@pytest.mark.parametrize(
    ("behind", "length"), [(1, BIG), (-1, BIG), (BIG, 1), (0, BIG + 1), (-(1 << 20), 10), (1 << 40, 10)]
)
def test_writes_outside_of_what_was_offered(behind: int, length: int) -> None:
    sim, node, stranger = connected()
    stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG), cookie=5)
    ack = stranger.wait_for(O2ibType.PUT_ACK)
    assert ack.target is not None and stranger.pair is not None
    (_, address) = ack.target.fragments[0]
    inbox = node.inboxes[0]
    assert inbox.md is not None
    whole = inbox.md.length
    stranger.pair.post([write(stranger, b"!" * length, ack.target.key, address + behind)])
    ends(sim, node, stranger)
    assert bytes(inbox.md.fragments[0]) == b"x" + bytes(whole - 1) or not any(inbox.md.fragments[0])


def test_writes_with_a_key_that_is_void() -> None:
    sim, node, stranger = connected()
    get = node.get(stranger.nid, PORTAL, size=BIG)
    asked = stranger.wait_for(O2ibType.GET_REQ)
    stranger.say(O2ibType.GET_DONE, cookie=asked.cookie, status=0)
    sim.run_until_quiet()
    assert get.ok
    assert asked.target is not None and stranger.pair is not None
    (_, address) = asked.target.fragments[0]
    stranger.pair.post([write(stranger, b"!" * 100, asked.target.key, address)])
    ends(sim, node, stranger)
    assert not any(get.buffer)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (O2ibType.GET_REQ, {"type": int(MsgType.PUT)}),
        (O2ibType.GET_REQ, {"dest_nid": Nid.parse("10.0.9.9@tcp9")}),
        (O2ibType.GET_REQ, {"src_nid": Nid.parse("10.0.9.9@tcp9")}),
        (O2ibType.PUT_REQ, {"type": int(MsgType.GET)}),
        (O2ibType.PUT_REQ, {"type": int(MsgType.ACK)}),
        (O2ibType.PUT_REQ, {"payload_length": (1 << 20) + 1}),
        (O2ibType.PUT_REQ, {"dest_nid": Nid.parse("10.0.0.8@o2ib")}),
        (O2ibType.IMMEDIATE, {"payload_length": 4}),
        (O2ibType.IMMEDIATE, {"type": int(MsgType.ACK), "payload_length": 3}),
        (O2ibType.IMMEDIATE, {"dest_nid": Nid.parse("10.0.0.8@o2ib")}),
    ],
    ids=str,
)
def test_headers_that_do_not_belong_there(kind: O2ibType, fields: dict[str, Any]) -> None:
    sim, node, stranger = connected()
    _, region = stranger.memory(BIG)
    start = MsgType.GET if kind is O2ibType.GET_REQ else MsgType.PUT
    length = 3 if kind is O2ibType.IMMEDIATE else (0 if kind is O2ibType.GET_REQ else BIG)
    hdr = header(stranger, node, start, **({"payload_length": length} | fields))
    target = stranger.target(region) if kind is O2ibType.GET_REQ else None
    stranger.say_lnet(kind, hdr, payload=b"xyz" if kind is O2ibType.IMMEDIATE else b"", target=target)
    ends(sim, node, stranger)


def test_a_reply_longer_than_the_memory_that_was_told() -> None:
    sim, node, stranger = connected()
    _, region = stranger.memory(BIG)
    hdr = header(stranger, node, MsgType.GET, length=BIG, wmd=bytes(16))
    stranger.say_lnet(O2ibType.GET_REQ, hdr, cookie=3, target=stranger.target(region, 100))
    done = stranger.wait_for(O2ibType.GET_DONE)
    assert done.status == -errno.EMSGSIZE
    sim.run_until_quiet()


def test_a_peer_that_takes_nothing_breaks_its_connection_and_no_other() -> None:
    sim, node, stranger = connected()
    other = sim.node("b", "10.0.0.2@o2ib")
    other.attach(PORTAL)
    stranger.recycles = False
    while stranger.pair is not None and stranger.pair.free:
        stranger.pair.free.pop()
    put = node.put(stranger.nid, PORTAL, data=b"x", ack=False)
    good = node.put(other.nid, PORTAL, data=b"x")
    sim.run_until_quiet()
    assert good.ok
    assert put.status == -errno.EIO
    assert "RNR" in put.reason


KINDS = st.sampled_from(O2ibType)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_whatever_a_peer_says_nothing_breaks_but_its_connection(data: st.DataObject) -> None:
    sim, node, stranger = connected()
    put = node.put(stranger.nid, PORTAL, data=bytes(BIG), ack=False)
    get = node.get(stranger.nid, PORTAL, size=BIG)
    stranger.say_lnet(O2ibType.PUT_REQ, header(stranger, node, payload_length=BIG), cookie=5)
    sim.run(0.1)
    cookies = [message.cookie for message in stranger.heard] + [
        message.sink_cookie for message in stranger.heard
    ]
    for _ in range(data.draw(st.integers(1, 6))):
        if stranger.pair is None or not stranger.pair.open or stranger.failed or stranger.hung_up:
            break
        kind = data.draw(KINDS)
        cookie = data.draw(st.sampled_from(cookies))
        base = O2ibMessage.pack(
            stranger.message(
                kind,
                params=_few(),
                header=header(stranger, node, data.draw(st.sampled_from([MsgType.PUT, MsgType.GET]))),
                cookie=cookie,
                target=RdmaTarget(data.draw(st.integers(0, 9)), ((data.draw(st.integers(0, BIG)), 4096),)),
                status=data.draw(st.integers(-200, 20_000)),
            )
        )
        raw = bytearray(base)
        for _ in range(data.draw(st.integers(0, 3))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        stranger.say_bytes(bytes(raw[: data.draw(st.integers(0, MAX_MESSAGE))]))
        sim.run(0.01)
    sim.run_until_quiet(2000)
    assert put.ended and get.ended
