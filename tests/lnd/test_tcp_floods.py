"""Who sends much, calls often, or goes by another's name: others are served, and nobody is taken for them."""

from __future__ import annotations

import errno
import itertools
import socket
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import ROOT, Side, connect, dial, hello_bytes, lnet_frame, put_header, until
from lnd.test_tcp_connect import swallowing
from ulnet.control.access import access_of
from ulnet.core.access import EVERYBODY
from ulnet.core.status import HealthStatus
from ulnet.lnd.selector import Selector
from ulnet.lnd.tcp.reader import Reader
from ulnet.lnd.tcp.turns import FIRST_TURN, TURNS
from ulnet.nid import LNET_PID, PID_USER_FLAG, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.lnet import HEADER_SIZE
from ulnet.wire.socklnd import FRAME_HEADER_SIZE, ConnType, Hello

Make = Callable[..., Side]
SMALL = FRAME_HEADER_SIZE + HEADER_SIZE
needs_root = pytest.mark.skipif(not ROOT, reason="source ports below 1024 need root")


async def test_a_flood_of_small_messages_has_short_turns(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), rx_buffer_size=4 << 20)
    raw = await connect(a, at.nid(2))
    (conn,) = a.peer(at.nid(2)).conns
    most: list[int] = []
    read = Reader.read

    def counted(rx: Reader) -> bool:
        before = len(a.core.arrivals)
        found = read(rx)
        most.append(len(a.core.arrivals) - before)
        return found

    one = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0))
    conn.shared.selector.forget(conn.rx.sock.fileno())  # type: ignore[union-attr]
    await raw.send(one * 5000)
    while len(a.core.arrivals) < 5000:
        conn.shared.now = conn.shared.loop.time()
        counted(conn.rx)
    assert max(most) <= TURNS[-1] // SMALL + 1
    conn.rx.start()


async def test_a_flood_in_portions_that_fit_a_turn_has_shorter_ones_too(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each portion is read whole, so that nothing is left: only how long that took tells of a flood."""
    a = make(at.nid(1), rx_buffer_size=4 << 20)
    raw = await connect(a, at.nid(2))
    (conn,) = a.peer(at.nid(2)).conns
    clock = itertools.count(1)
    monkeypatch.setattr("ulnet.lnd.tcp.reader.monotonic", lambda: 0.002 * next(clock))
    one = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0))
    portion = (TURNS[FIRST_TURN] - 1) // SMALL
    conn.shared.selector.forget(conn.rx.sock.fileno())  # type: ignore[union-attr]
    read: list[int] = []
    for number in range(1, 4):
        await raw.send(one * portion)
        await until(lambda: _waiting(conn.rx) >= SMALL)
        while len(a.core.arrivals) < number * portion:
            before = len(a.core.arrivals)
            conn.shared.now = conn.shared.loop.time()
            conn.rx.read()
            read.append(len(a.core.arrivals) - before)
    assert read[:2] == [portion, portion], "they are seen to be long, and timed"
    assert max(read[2:]) <= TURNS[0] // SMALL + 1
    conn.rx.start()


def _waiting(rx: Reader) -> int:
    """How many bytes wait in the kernel."""
    assert rx.sock is not None
    try:
        return rx.sock.recv_into(bytearray(SMALL), SMALL, socket.MSG_PEEK)
    except BlockingIOError:
        return 0


async def test_long_payloads_are_not_held_up_by_short_turns(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), rx_buffer_size=4 << 20)
    raw = await connect(a, at.nid(2))
    payload = bytes(range(256)) * 4096
    for _ in range(3):
        await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), len(payload)), payload))
    await until(a.core.complete(3))
    assert all(arrival.memory == payload for arrival in a.core.arrivals)


def test_a_reader_that_has_had_its_turn_comes_behind_all_others() -> None:
    """Two that always have more to read, and one that has something now and then."""
    failures: list[BaseException] = []
    selector = Selector(failures.append)
    selector.open()
    selector.is_loops = True
    pairs = [socket.socketpair() for _ in range(3)]
    order: list[int] = []

    def reader(which: int) -> Callable[[], None]:
        sock = pairs[which][0]

        def read() -> None:
            order.append(which)
            if which == 2:
                sock.recv(1)
                return
            if len(order) in (3, 7):
                pairs[2][1].send(b"x")
            if len(order) > 12:
                sock.recv(10)
            else:
                selector.again(sock.fileno())

        return read

    try:
        for which, (sock, other) in enumerate(pairs):
            selector.watch(sock.fileno(), reader(which))
            if which < 2:
                other.send(b"more")
        while len(order) < 14:
            assert selector.select(0) == []
    finally:
        selector.close()
        for pair in pairs:
            for sock in pair:
                sock.close()
    assert not failures
    assert [at for at, which in enumerate(order) if which == 2] == [3, 7]  # at once
    others = [which for which in order if which != 2]
    assert all(one != following for one, following in itertools.pairwise(others))


def test_one_that_is_closed_has_no_further_turn() -> None:
    selector = Selector(lambda failure: None)
    selector.open()
    selector.is_loops = True
    one, other = socket.socketpair()
    turns: list[int] = []

    def read() -> None:
        turns.append(1)
        selector.again(one.fileno())

    try:
        selector.watch(one.fileno(), read)
        other.send(b"x")
        selector.select(0)
        selector.forget(one.fileno())
        before = len(turns)
        selector.select(0)
        assert len(turns) == before
    finally:
        selector.close()
        one.close()
        other.close()


# Names -----------------------------------------------------------------------------------------------


@needs_root
async def test_who_takes_the_name_of_another_address_is_refused_and_harms_nobody(
    make: Make, at: Addresses
) -> None:
    """Before: each of 139 such HELLOs was taken, and the connections of the node of that name were closed."""
    a = make(at.nid(1), accept="secure")
    honest = await connect(a, at.nid(2), source=at.ip(2), port=1000)
    for turn in range(20):
        foe = await dial(a, at.ip(3), port=1020 - turn)
        await foe.send(ConnRequest.to(a.ni.nid).pack())
        await foe.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, incarnation=8 + turn))
        assert await foe.refused() == "EOF"
    assert any(f"it calls itself {at.nid(2)}" in line for line in a.reports)
    await honest.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 0)))
    await until(a.core.complete(1))
    assert a.lnd.open_connections == 1


@needs_root
@pytest.mark.parametrize("lists", [(["127.*.*.[1-2]@tcp"], []), ([], ["127.*.*.3@tcp,10.0.0.1@tcp"])])
async def test_who_is_not_allowed_is_neither_heard_nor_called(
    make: Make, at: Addresses, lists: tuple[list[str], list[str]]
) -> None:
    a, b, c = make(at.nid(1)), make(at.nid(2)), make(at.nid(3))
    a.core.access = access_of(*lists)
    for one, other in ((a, b), (b, a)):
        assert (await one.ended(one.put(other.ni.nid, b"x"))).status is HealthStatus.OK
    foe = c.put(a.ni.nid, b"x")
    called = await a.ended(a.put(c.ni.nid, b"x"))
    assert called.errno == errno.EACCES
    assert f"{c.ni.nid} is " in called.reason
    assert (await c.ended(foe)).status is not HealthStatus.OK
    assert any(f": {c.ni.nid} is " in line for line in a.reports)
    assert len(a.core.arrivals) == 1 and not c.core.arrivals


@needs_root
async def test_connections_with_who_is_denied_from_now_on_end_and_others_stay(
    make: Make, at: Addresses
) -> None:
    a, b, c = make(at.nid(1)), make(at.nid(2)), make(at.nid(3))
    for one, other in ((a, b), (c, a)):
        assert (await one.ended(one.put(other.ni.nid, b"x"))).status is HealthStatus.OK
    good, bad = a.peer(at.nid(2)), a.peer(at.nid(3))
    before = list(good.conns)
    a.core.access = access_of(deny=[at.nid(3)])
    late = [a.put(at.nid(3), bytes(1 << 20)) for _ in range(8)]
    a.lnd.access_changed(a.ni)
    assert not bad.conns
    assert (Nid.parse(at.nid(3)), LNET_PID) not in a.state().peers
    assert good.conns == before
    for msg in late:
        outcome = await a.ended(msg)
        assert (outcome.errno, f"{at.nid(3)} is denied connect" in outcome.reason) == (errno.EACCES, True)
    await until(lambda: not c.state().peers or not c.peer(at.nid(1)).conns)
    foe = c.put(a.ni.nid, b"x")
    assert (await c.ended(foe)).status is not HealthStatus.OK
    assert (await a.ended(a.put(at.nid(3), b"x"))).errno == errno.EACCES
    assert (await a.ended(a.put(at.nid(2), b"x"))).status is HealthStatus.OK
    a.core.access = EVERYBODY
    a.lnd.access_changed(a.ni)
    assert (await a.ended(a.put(at.nid(3), b"x"))).status is HealthStatus.OK


async def test_a_call_of_who_is_denied_from_now_on_is_given_up(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    with swallowing(at.ip(2), a.params.accept_port):
        msg = a.put(at.nid(2), b"x")
        await until(lambda: a.dialer(at.nid(2)).connecting)
        a.core.access = access_of(deny=[at.nid(2)])
        a.lnd.access_changed(a.ni)
        assert (await a.ended(msg)).errno == errno.EACCES
        assert not a.state().peers
        assert a.lnd.pending_handshakes == 0


async def test_who_is_denied_after_a_call_that_failed_is_not_called_again(make: Make, at: Addresses) -> None:
    """A peer that is remembered for the pause before the next attempt is forgotten, too."""
    a = make(at.nid(1))
    assert (await a.ended(a.put(at.nid(2), b"x"))).errno == errno.ECONNREFUSED
    a.core.access = access_of(deny=[at.nid(2)])
    a.lnd.access_changed(a.ni)
    b = make(at.nid(2))
    assert (await a.ended(a.put(at.nid(2), b"x"))).errno == errno.EACCES
    assert not b.core.arrivals


async def test_a_privileged_node_renames_those_who_are_not(make: Make, at: Addresses) -> None:
    """As kernel nodes do, also one that names its own address: any process of that host can."""
    a = make(at.nid(1), reserved_ports=True)
    raw = await connect(a, at.nid(2))
    await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(9)), 0)))
    await until(a.core.complete(1))
    (arrival,) = a.core.arrivals
    assert arrival.hdr.src_nid == Nid.parse(at.nid(2))
    assert arrival.hdr.src_pid == raw.sock.getsockname()[1] | PID_USER_FLAG
    assert (Nid.parse(at.nid(2)), LNET_PID) not in a.state().peers


@needs_root
async def test_a_node_over_several_devices_may_call_from_all_of_them(make: Make, at: Addresses) -> None:
    """Once it has told of them from the address of its NID."""
    a = make(at.nid(1), accept="secure")
    ips = (
        int.from_bytes(Nid.parse(at.nid(2)).address, "big"),
        int.from_bytes(Nid.parse(at.nid(5)).address, "big"),
    )
    calls = ((at.ip(5), None), (at.ip(2), ConnType.CONTROL), (at.ip(5), ConnType.BULK_IN))
    for port, (ip, ctype) in enumerate(calls, 1001):
        raw = await dial(a, ip, port=port)
        await raw.send(ConnRequest.to(a.ni.nid).pack())
        await raw.send(hello_with(ips, Nid.parse(at.nid(2)), a.ni.nid, ctype or ConnType.CONTROL))
        if ctype is None:
            assert await raw.rest() == (b"", "EOF")
        else:
            assert (await raw.read_hello()).ctype != ConnType.NONE
    assert a.lnd.open_connections == 2


def hello_with(ips: tuple[int, ...], src: Nid, dst: Nid, ctype: ConnType) -> bytes:
    """The HELLO of a node that has these addresses."""
    return Hello(3, src, dst, LNET_PID, 0, 7, 0, int(ctype), len(ips), ips=ips).pack()
