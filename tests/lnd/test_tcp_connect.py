"""Which connections are made, when, and what refuses them (spec wire-socklnd.md §3.5 to §3.8, §6, §8)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from lnd.conftest import Addresses
from lnd.kit import (
    ROOT,
    RawListener,
    RawPeer,
    Side,
    connect,
    dial,
    hello_bytes,
    linked,
    lnet_frame,
    put_header,
    turns,
    until,
)
from ulnet.core.md import Md
from ulnet.core.status import HealthStatus
from ulnet.lnd.base import DeviceNews
from ulnet.nid import LNET_PID, PID_USER_FLAG, Net, NetType, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]
CONTROL, IN, OUT, ANY, NONE = (
    ConnType.CONTROL,
    ConnType.BULK_IN,
    ConnType.BULK_OUT,
    ConnType.ANY,
    ConnType.NONE,
)
TYPED = [CONTROL, IN, OUT]


@contextmanager
def listening(side: Side, ip: str) -> Iterator[RawListener]:
    """A hand-made node that side may call."""
    listener = RawListener(ip, side.params.accept_port)
    try:
        yield listener
    finally:
        listener.close()


@contextmanager
def swallowing(ip: str, port: int) -> Iterator[None]:
    """A host that answers no call: a listener whose queue is full drops SYNs."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind((ip, port))
        full.listen(0)
        for _ in range(8):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((ip, port))
        yield


# Making connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected"), [(1, TYPED), (2, [*TYPED, IN, OUT]), (3, [*TYPED, IN, OUT, IN, OUT])]
)
async def test_order_of_creation(make: Make, at: Addresses, limit: int, expected: list[ConnType]) -> None:
    tunables = {"conns_per_peer": limit}
    a, b = make(at.nid(1), tunables=tunables), make(at.nid(2), tunables=tunables)
    a.put(at.nid(2), b"x")
    await linked(a, b, len(expected))
    assert a.kinds(at.nid(2)) == expected
    assert b.kinds(at.nid(1)) == [one.inverted() for one in expected]
    b.put(at.nid(1), b"y")
    await until(a.core.complete(1))
    assert len(b.kinds(at.nid(1))) == len(expected), "the called side makes none of its own"


async def test_the_first_connection_carries_what_waits(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    with listening(a, at.ip(2)) as listener:
        for size in (10, 5000):
            a.put(at.nid(2), bytes(size))
        control, request, hello = await listener.accept_hello()
        assert request == ConnRequest(1, Nid.parse(at.nid(2)))
        assert (hello.version, hello.src_nid, hello.src_pid) == (3, a.ni.nid, LNET_PID)
        assert (hello.ctype, hello.nips, hello.dst_incarnation) == (1, 0, 0)
        assert hello.src_incarnation > 0
        await control.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid))
        for size in (10, 5000):
            assert len((await control.frame())[5]) == size
        _, _, hello2 = await listener.accept_hello()
        assert (hello2.ctype, hello2.src_incarnation) == (2, hello.src_incarnation)


async def test_a_smaller_limit_of_the_peer_is_respected(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"conns_per_peer": 4}, min_reconnectms=5)
    b = make(at.nid(2), tunables={"conns_per_peer": 1})
    a.put(at.nid(2), b"x")
    await until(lambda: a.state().peers and not a.dialer(at.nid(2)).incomplete)
    assert a.kinds(at.nid(2)) == TYPED
    assert b.kinds(at.nid(1)) == [CONTROL, OUT, IN]
    done = [a.put(at.nid(2), bytes(size)) for size in (1, 5000)]
    for msg in done:
        assert (await a.ended(msg)).status is HealthStatus.OK


async def test_untyped_connections_carry_nothing_in_protocol_3(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1), typed_conns=False), make(at.nid(2))
    outcome = await a.ended(a.put(at.nid(2), b"x"))
    assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_ERROR, errno.EHOSTUNREACH)
    assert "ANY" in outcome.reason
    assert b.kinds(at.nid(1)) == [ANY]


async def test_missing_connections_are_made_again_on_use(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    a.put(at.nid(2), b"x")
    await linked(a, b)
    bulk = b.peer(at.nid(1)).conns[1]
    sock = bulk.sock
    assert sock is not None
    sock.shutdown(socket.SHUT_WR)  # b hangs up on one only
    await until(lambda: len(a.kinds(at.nid(2))) == 2)
    a.put(at.nid(2), b"y")
    await until(lambda: sorted(a.kinds(at.nid(2))) == TYPED)


async def test_a_peer_that_called_us_is_not_called_back(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    with listening(a, at.ip(2)) as listener:
        raw = await connect(a, at.nid(2), IN)  # our BULK_OUT
        for size in (10, 5000):
            a.put(at.nid(2), bytes(size))
            assert len((await raw.frame())[5]) == size
        await turns(20)
        listener.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            listener.sock.accept()


@pytest.mark.parametrize("theirs", [ANY, OUT])
async def test_peers_without_a_fitting_connection_get_no_messages(
    make: Make, at: Addresses, theirs: ConnType
) -> None:
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), theirs)
    outcome = await a.ended(a.put(at.nid(2), b"x"))
    assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_ERROR, errno.EHOSTUNREACH)
    await raw.silent()


async def test_a_process_from_an_unprivileged_port_is_answered_but_never_called(
    make: Make, at: Addresses
) -> None:
    a = make(at.nid(1))
    raw = await connect(a, at.nid(7), source=at.ip(2))  # a name that is not its address
    pid = raw.sock.getsockname()[1] | PID_USER_FLAG
    await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(7)), 3), b"abc"))
    await until(a.core.complete(1))
    (arrival,) = a.core.arrivals
    assert (arrival.from_nid, arrival.hdr.src_nid) == (Nid.parse(at.nid(2)), Nid.parse(at.nid(2)))
    assert arrival.hdr.src_pid == pid
    a.put(at.nid(2), b"back", pid=pid)
    assert (await raw.frame())[5] == b"back"
    raw.close()
    await until(lambda: not a.lnd.open_connections)
    outcome = await a.ended(a.put(at.nid(2), b"again", pid=pid))
    assert (outcome.status, outcome.errno) == (HealthStatus.OK, errno.EHOSTUNREACH), "nobody is charged"
    assert str(pid & ~PID_USER_FLAG) in outcome.reason
    assert not a.state().peers


async def test_an_unprivileged_peer_that_names_its_own_address_is_believed(make: Make, at: Addresses) -> None:
    """By us alone, and where we are unprivileged ourselves: kernel nodes rename it."""
    a, b = make(at.nid(1), reserved_ports=False), make(at.nid(2), reserved_ports=False)
    a.put(at.nid(2), b"x")
    await until(b.core.complete(1))
    assert b.core.arrivals[0].hdr.src_pid == LNET_PID
    conn = a.peer(at.nid(2)).conns[0]
    assert conn.source_port > 1023
    b.put(at.nid(1), b"y")
    await until(a.core.complete(1))


@pytest.mark.skipif(not ROOT, reason="source ports below 1024 need root")
async def test_reserved_source_ports_go_down_from_1023(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), reserved_ports=True)
    peers = [make(at.nid(host), accept="secure") for host in (2, 3)]
    for peer in peers:
        a.put(peer.ni.nid, b"x")
    for peer in peers:
        await linked(a, peer)
        ports = [conn.source_port for conn in a.peer(peer.ni.nid).conns]
        assert ports == [1023, 1022, 1021]


@pytest.mark.skipif(not ROOT, reason="source ports below 1024 need root")
async def test_a_privileged_peer_may_have_any_name_where_nobody_checks(make: Make, at: Addresses) -> None:
    """As kernel nodes take it: a network that translates addresses needs that."""
    a = make(at.nid(1), accept="secure", check_source=False)
    raw = await connect(a, at.nid(77), source=at.ip(2), port=1001)
    await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(77)), 0)))
    await until(lambda: a.core.arrivals)
    assert a.core.arrivals[0].from_nid == Nid.parse(at.nid(77))


# Races and duplicates --------------------------------------------------------------------------------


async def test_both_call_at_once(make: Make, at: Addresses) -> None:
    for turn in range(10):
        a, b = make(at.nid(2 * turn + 1), min_reconnectms=5), make(at.nid(2 * turn + 2), min_reconnectms=5)
        one, two = a.put(b.ni.nid, b"x" * 3000), b.put(a.ni.nid, b"y" * 3000)
        assert (await a.ended(one)).status is HealthStatus.OK
        assert (await b.ended(two)).status is HealthStatus.OK
        await until(a.core.complete(1))
        await until(b.core.complete(1))
        await until(lambda a=a, b=b: sorted(a.kinds(b.ni.nid)) == sorted(b.kinds(a.ni.nid)) == TYPED)  # type: ignore[misc]


@pytest.mark.requirement("LND-sock")
@pytest.mark.parametrize(("us", "them", "refused"), [(5, 4, True), (4, 5, False)])
async def test_the_higher_nid_wins_the_race(
    make: Make, at: Addresses, us: int, them: int, refused: bool
) -> None:
    a = make(at.nid(us))
    with listening(a, at.ip(them)) as listener:
        a.put(at.nid(them), b"x")
        await listener.accept_hello()  # a waits for an answer now
        raw = await connect(a, at.nid(them), CONTROL)
        assert raw.hello is not None
        if refused:
            assert raw.hello.ctype == NONE
            assert await raw.rest() == (b"", "EOF")
        else:
            assert raw.hello.ctype == CONTROL
            assert (await raw.frame())[5] == b"x", "what waited goes out at once"


@pytest.mark.parametrize("kind", [CONTROL, IN, OUT, ANY])
async def test_duplicates_are_refused(make: Make, at: Addresses, kind: ConnType) -> None:
    a = make(at.nid(1), tunables={"conns_per_peer": 2})
    limit = 1 if kind is CONTROL else 2
    raws = [await connect(a, at.nid(2), kind) for _ in range(limit + 2)]
    answers = [raw.hello.ctype for raw in raws if raw.hello is not None]
    assert answers == [kind.inverted()] * limit + [NONE] * 2
    for raw in raws[limit:]:
        assert await raw.rest() == (b"", "EOF")


async def test_the_same_address_may_hold_many_peers(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    for host in range(2, 20):
        await connect(a, at.nid(host))
    assert a.lnd.open_connections == 18


async def test_a_new_life_of_the_peer_ends_the_old_connections(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    old = await connect(a, at.nid(2), CONTROL, incarnation=7)
    old2 = await connect(a, at.nid(2), OUT, incarnation=7)
    new = await connect(a, at.nid(2), CONTROL, incarnation=8)
    assert new.hello is not None and new.hello.ctype == CONTROL
    assert await old.rest() == (b"", "EOF")
    assert await old2.rest() == (b"", "EOF")
    assert a.kinds(at.nid(2)) == [CONTROL]


async def test_another_protocol_version_ends_the_old_connections(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    old = await connect(a, at.nid(2), version=3)
    new = await connect(a, at.nid(2), OUT, version=2)
    assert new.hello is not None and new.hello.ctype == NONE
    assert await old.rest() == (b"", "EOF")


# Refusals and pauses ---------------------------------------------------------------------------------


async def answer_all(
    listener: RawListener, nid: str, ctypes: list[ConnType], *, version: int = 3
) -> list[RawPeer]:
    """Take one call after the other and answer with these types."""
    raws = []
    for ctype in ctypes:
        raw, _, hello = await listener.accept_hello()
        await raw.send(hello_bytes(Nid.parse(nid), hello.src_nid, ctype, version=version))
        raws.append(raw)
    return raws


async def test_not_now_is_tried_again_and_then_given_up(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), min_reconnectms=5)
    with listening(a, at.ip(2)) as listener:
        msg = a.put(at.nid(2), b"x")
        await answer_all(listener, at.nid(2), [NONE, NONE, NONE])
        outcome = await a.ended(msg)
        assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_ERROR, errno.EALREADY)


async def test_not_now_once_does_no_harm(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), min_reconnectms=5)
    with listening(a, at.ip(2)) as listener:
        a.put(at.nid(2), b"x")
        raws = await answer_all(listener, at.nid(2), [NONE, NONE, CONTROL])
        assert (await raws[2].frame())[5] == b"x"


async def test_the_version_that_the_peer_wants_is_used_and_remembered(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), min_reconnectms=60_000)  # no pause is allowed here
    with listening(a, at.ip(2)) as listener:
        a.put(at.nid(2), b"x")
        first, _, hello = await listener.accept_hello()
        assert hello.version == 3
        await first.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, NONE, version=2))
        raws = []
        for ctype in (CONTROL, OUT, IN):
            raw, _, hello = await listener.accept_hello()
            assert hello.version == 2
            await raw.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, ctype, version=2))
            raws.append(raw)
        assert (await raws[0].frame())[5] == b"x"
        await until(lambda: a.lnd.open_connections == 3)
        for raw in [first, *raws]:
            raw.close()
        await until(lambda: not a.lnd.open_connections)
        a.put(at.nid(2), b"y")
        again, _, hello = await listener.accept_hello()
        assert hello.version == 3, "forgotten with the last connection"
        again.close()


async def test_nothing_listens(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    outcome = await a.ended(a.put(at.nid(2), b"x"))
    assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_DROPPED, errno.ECONNREFUSED)
    assert outcome.reason.startswith(
        f"connection refused: nothing listens on {at.ip(2)}:{a.params.accept_port}"
    )


async def test_in_the_pause_after_a_failure_messages_are_told_of_it(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    first = await a.ended(a.put(at.nid(2), b"x"))
    assert first.status is HealthStatus.REMOTE_DROPPED
    a.dialer(at.nid(2))._retry_at = asyncio.get_running_loop().time() + 99.5
    outcome = await a.ended(a.put(at.nid(2), b"y"))
    assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_ERROR, errno.EHOSTUNREACH)
    assert "before 100 s have passed" in outcome.reason and "nothing listens" in outcome.reason


async def test_pauses_grow_from_the_shortest_to_the_longest(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), min_reconnectms=100, max_reconnectms=500)
    await a.ended(a.put(at.nid(2), b"x"))
    dialer, pair = a.dialer(at.nid(2)), a.pair(at.nid(2))
    pair.pause = 0.0
    pauses = []
    for _ in range(30):
        dialer.failed(errno.EHOSTUNREACH, "no way there")
        pauses.append(pair.pause)
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.1 and pauses[-1] == 0.5
    for number, pause in enumerate(pauses[1:], 1):
        assert pause <= 0.1 + sum(pauses[:number]) / 5  # of the time that the peer was out of reach


@pytest.mark.pure
async def test_an_attempt_that_nobody_answers_calls_anew_before_tcp_does(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ulnet.lnd.tcp.dialer._ANEW", 0.1)
    a = make(at.nid(1), tunables={"timeout": 5})
    with swallowing(at.ip(2), a.params.accept_port):
        msg = a.put(at.nid(2), b"x")
        dialer = a.dialer(at.nid(2))
        await until(lambda: dialer.connecting)
        began = dialer._began
        await until(lambda: dialer._called > began)
        assert dialer._began == began and dialer.connecting
        assert a.core.outcome(msg) is None
    assert (await a.ended(msg)).errno == errno.ECONNREFUSED  # of a socket that was made after TCP's first


@pytest.mark.parametrize("given_up", [False, True])
async def test_an_attempt_that_a_host_has_answered_waits_for_its_hello(
    make: Make, at: Addresses, given_up: bool
) -> None:
    """It is not called anew, and goes on when nobody waits for it: it may serve what comes next."""
    a = make(at.nid(1), tunables={"timeout": 60})
    with listening(a, at.ip(2)):
        md = Md([], None)
        msg = a.put(at.nid(2), b"x", md=md)
        dialer = a.dialer(at.nid(2))
        await until(lambda: dialer.reached)
        attempt = dialer._attempt
        assert dialer.check_progress(dialer._called + 1)  # what waits is given back, and comes again
        await until(lambda: bool(a.core.taken_back and dialer._peer.queue))
        md.aborted = errno.ETIMEDOUT if given_up else 0
        assert dialer.check_progress(dialer._called + 50)
        assert dialer._attempt is attempt
        assert a.core.outcome(msg) is None


async def test_a_device_that_is_back_ends_all_pauses(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    await a.ended(a.put(at.nid(2), b"x"))
    state = a.state()
    state.device_changed(state.devices[0], DeviceNews("eth9", "it has no carrier"))
    a.dialer(at.nid(2))._retry_at += 60
    pair = a.pair(at.nid(2))
    pair.retry_at += 60
    pair.pause = 60.0
    state.device_changed(state.devices[0], DeviceNews("eth9"))
    b = make(at.nid(2))
    assert (await a.ended(a.put(at.nid(2), b"x"))).status is HealthStatus.OK
    await until(b.core.complete(1))


async def test_an_attempt_after_the_pause_may_succeed(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), min_reconnectms=20)
    for _ in range(3):
        await a.ended(a.put(at.nid(2), b"x"))
        pair = a.pair(at.nid(2))
        assert pair.pause > 0
        await asyncio.sleep(pair.pause + 0.01)
    b = make(at.nid(2))
    assert (await a.ended(a.put(at.nid(2), b"x"))).status is HealthStatus.OK
    await until(b.core.complete(1))
    assert a.pair(at.nid(2)).pause == 0


async def test_after_refusals_pauses_are_a_tenth_of_the_time_that_the_peer_was_gone(
    make: Make, at: Addresses
) -> None:
    a = make(at.nid(1))
    await a.ended(a.put(at.nid(2), b"x"))
    dialer, pair = a.dialer(at.nid(2)), a.pair(at.nid(2))
    gone = pair.pause
    assert gone == 0.02
    while pair.pause < 0.5:
        dialer.failed(errno.ECONNREFUSED, "nobody listens")
        if gone > 0.3:
            assert 0.05 <= pair.pause / gone <= 0.2
        gone += pair.pause
    dialer.failed(errno.ECONNREFUSED, "nobody listens")
    assert pair.pause == 0.5
    assert gone > 4


async def test_who_refuses_is_called_again_sooner_than_others(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), min_reconnectms=100_000, refused_reconnectms=4)
    await a.ended(a.put(at.nid(2), b"x"))
    assert a.pair(at.nid(2)).pause == 0.004


async def test_the_longest_pause(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), min_reconnectms=1, max_reconnectms=3)
    await a.ended(a.put(at.nid(2), b"x"))
    for number in [errno.ECONNREFUSED] * 20 + [errno.EHOSTUNREACH]:
        a.dialer(at.nid(2)).failed(number, "a planted failure")
        assert a.pair(at.nid(2)).pause <= 0.003
    assert a.pair(at.nid(2)).pause == 0.003


async def test_a_wrong_nid_is_told(make: Make, at: Addresses) -> None:
    """The peer's host answers, but that is not its NID."""
    a, b = make(at.nid(1)), make(at.nid(2))
    target = Nid.parse(f"{at.ip(2)}@tcp7")
    ni7 = a.add(f"{at.ip(1)}@tcp7")
    outcome = await a.ended(a.put(target, b"x", ni=ni7))
    assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_DROPPED, errno.ECONNRESET)
    assert f"{target} is not one of its NIDs" in outcome.reason
    assert not b.lnd.pending_handshakes


async def test_a_refused_source_port_is_told(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1), reserved_ports=False), make(at.nid(2), accept="secure")
    outcome = await a.ended(a.put(at.nid(2), b"x"))
    assert outcome.status is HealthStatus.REMOTE_DROPPED
    assert "refused our unprivileged source port" in outcome.reason
    assert "set accept=all there" in outcome.reason
    assert not b.lnd.open_connections


async def test_a_foreign_service_is_told(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    with listening(a, at.ip(2)) as listener:
        msg = a.put(at.nid(2), b"x")
        raw = await listener.accept()
        await raw.send(b"220 mail.example.org ESMTP\r\n")
        outcome = await a.ended(msg)
        assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_ERROR, errno.EPROTO)
        assert "not an LNet node" in outcome.reason


async def test_a_peer_that_is_somebody_else_is_told(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    with listening(a, at.ip(2)) as listener:
        msg = a.put(at.nid(2), b"x")
        await answer_all(listener, at.nid(3), [CONTROL])
        outcome = await a.ended(msg)
        assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_ERROR, errno.EPROTO)
        assert at.nid(3) in outcome.reason and at.nid(2) in outcome.reason


async def test_a_silent_listener_times_out(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 1})
    with listening(a, at.ip(2)) as listener:
        msg = a.put(at.nid(2), b"x")
        await listener.accept()
        outcome = await a.ended(msg)
        assert (outcome.status, outcome.errno) == (HealthStatus.NETWORK_TIMEOUT, errno.ETIMEDOUT)
        assert "sent no HELLO" in outcome.reason


async def test_a_black_hole_times_out(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 1})
    with swallowing(at.ip(2), a.params.accept_port):
        outcome = await a.ended(a.put(at.nid(2), b"x"))
    assert (outcome.status, outcome.errno) == (HealthStatus.NETWORK_TIMEOUT, errno.ETIMEDOUT)
    assert outcome.reason.startswith("timed out after 1 s")


MALFORMED = Nid.of(Net.of(NetType.TCP), bytes(range(1, 9)))  # 8 bytes of address


@pytest.mark.parametrize("nid", [Nid.parse("fd00::2@tcp"), MALFORMED], ids=["IPv6", "no IP address"])
async def test_addresses_that_cannot_be_called_cost_the_local_ni_nothing(
    make: Make, at: Addresses, nid: Nid
) -> None:
    """A peer may list them: each kept its place among 128 calls, or took health from the NI."""
    a = make(at.nid(1))
    outcome = await a.ended(a.put(nid, b"x"))
    assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_DROPPED, errno.EAFNOSUPPORT)
    assert not a.lnd._shared.budget._calling


async def test_no_route_is_told(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), reserved_ports=False)
    outcome = await a.ended(a.put("192.0.2.77@tcp", b"x"))  # from a loopback address nothing leads there
    assert outcome.errno in (errno.EINVAL, errno.ENETUNREACH, errno.EHOSTUNREACH)
    assert "192.0.2.77" in outcome.reason


async def test_idle_peers_are_forgotten(make: Make, at: Addresses) -> None:
    quick = {"min_reconnectms": 1, "max_reconnectms": 1, "sweep_interval": 0.01, "sock_timeout": 0.1}
    a = make(at.nid(1), tunables={"timeout": 0}, **quick)
    for host in range(2, 30):
        a.put(at.nid(host), b"x")
    await until(lambda: not a.core.open)
    await until(lambda: not a.state().peers)
    raws = [await dial(a, at.ip(host)) for host in range(2, 5)]
    await until(lambda: a.lnd.pending_handshakes == 3)
    for raw in raws:
        raw.close()
    await until(lambda: a.lnd.pending_handshakes == 0)
