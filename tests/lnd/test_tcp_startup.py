"""Bringing NIs up and down, and what is in the way (spec wire-socklnd.md §1, §7)."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import pytest

from lnd.conftest import Addresses
from lnd.kit import (
    ROOT,
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
from support.leaks import open_files
from support.ports import free_port
from ulnet.core.status import HealthStatus, LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.lnd.tcp.params import conns_for_speed
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.socklnd import ConnType, Hello

Make = Callable[..., Side]


def refused(side: Side, nid: str, **tunables: int) -> LNetError:
    """The error of an NI that cannot come up; it leaves nothing behind."""
    before = open_files()
    with pytest.raises(LNetError) as caught:
        side.add(nid, tunables=tunables)
    assert open_files() == before
    assert not side.nis
    return caught.value


async def test_an_address_that_is_not_ours(make: Make) -> None:
    for listen in (True, False):
        error = refused(make(listen=listen), "192.0.2.99@tcp")
        assert error.errno == errno.ENETDOWN
        assert "192.0.2.99 is not an address of this host" in error.text


async def test_a_busy_port(make: Make, at: Addresses) -> None:
    side = make()
    with socket.create_server((at.ip(1), side.params.accept_port)):
        error = refused(side, at.nid(1))
        assert error.errno == errno.EADDRINUSE
        assert f"{at.ip(1)}:{side.params.accept_port} is in use" in error.text
        assert "accept_port" in error.text
    side.add(at.nid(1))


async def test_a_busy_second_port_leaves_the_first_free(make: Make, at: Addresses) -> None:
    side = make(accept_port_bulk=1)
    with socket.socket() as taken:
        taken.bind((at.ip(1), 0))
        taken.listen()
        side.params.accept_port_bulk = taken.getsockname()[1]
        assert refused(side, at.nid(1)).errno == errno.EADDRINUSE
    socket.create_server((at.ip(1), side.params.accept_port)).close()


@pytest.mark.skipif(not ROOT, reason="only root can give up its rights for a while")
async def test_a_port_that_takes_rights(make: Make, at: Addresses) -> None:
    side = make(accept_port=987)
    os.seteuid(65534)
    try:
        error = refused(side, at.nid(1))
    finally:
        os.seteuid(0)
    assert error.errno == errno.EACCES
    assert "CAP_NET_BIND_SERVICE" in error.text and "accept_port" in error.text


@pytest.mark.skipif(not ROOT, reason="only root can give up its rights for a while")
async def test_without_rights_source_ports_are_ordinary(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    os.seteuid(65534)
    try:
        a.put(at.nid(2), b"x")
        await until(b.core.complete(1))
        await linked(a, b)
    finally:
        os.seteuid(0)
    assert all(conn.source_port > 1023 for conn in a.peer(at.nid(2)).conns)


async def test_an_unknown_congestion_control(make: Make, at: Addresses) -> None:
    error = refused(make(congestion="none-such"), at.nid(1))
    assert "none-such" in error.text


async def test_conns_per_peer_out_of_range(make: Make, at: Addresses) -> None:
    for wrong in (-1, 128):
        error = refused(make(), at.nid(1), conns_per_peer=wrong)
        assert error.errno == errno.EINVAL and str(wrong) in error.text


@pytest.mark.parametrize(
    ("name", "value"),
    [("accept", "some"), ("accept_port", 0), ("accept_port_bulk", 70000), ("tos", 256)],
)
def test_bad_parameters(name: str, value: object) -> None:
    with pytest.raises(LNetError) as caught:
        TcpParams(**{name: value})  # type: ignore[arg-type]
    assert caught.value.errno == errno.EINVAL
    assert name in caught.value.text and str(value) in caught.value.text


@pytest.mark.parametrize(
    ("mbits", "conns"),
    [
        *((None, 1), (-1, 1), (10, 1), (1000, 1), (2500, 1), (10_000, 2), (25_000, 3)),
        *((40_000, 3), (50_000, 3), (100_000, 4), (200_000, 4), (400_000, 5)),
    ],
)
def test_connections_for_a_speed(mbits: int | None, conns: int) -> None:
    assert conns_for_speed(mbits) == conns


async def test_conns_per_peer_zero_asks_the_interface(make: Make, at: Addresses) -> None:
    side = make(at.nid(1), tunables={"conns_per_peer": 0})
    assert side.state().conns_per_peer == 1


async def test_the_same_ni_twice(make: Make, at: Addresses) -> None:
    side = make(at.nid(1))
    with pytest.raises(LNetError) as caught:
        side.add(at.nid(1))
    assert caught.value.errno == errno.EEXIST


async def test_nets_share_an_address(make: Make, at: Addresses) -> None:
    a, b = make(), make()
    nets = [f"{at.ip(1)}@tcp", f"{at.ip(1)}@tcp1"]
    here = [a.add(nid) for nid in nets]
    there = [b.add(nid) for nid in (f"{at.ip(2)}@tcp", f"{at.ip(2)}@tcp1")]
    for ni, other in zip(here, there, strict=True):
        a.put(other.nid, b"x", ni=ni)
    await until(b.core.complete(2))
    assert {one.from_nid for one in b.core.arrivals} == {Nid.parse(nid) for nid in nets}
    a.lnd.shutdown(a.nis.pop(here[0].nid))
    b.put(here[1].nid, b"y", ni=there[1])
    await until(a.core.complete(1))
    raw = await dial(a, at.ip(3), to=here[1].nid)
    await raw.send(ConnRequest.to(here[0].nid).pack())
    assert await raw.rest() == (b"", "EOF")


async def test_a_connection_that_is_reset_while_it_is_taken_leaves_nothing(make: Make, at: Addresses) -> None:
    side = make(at.nid(1))
    state = side.state()
    with socket.create_server((at.ip(1), 0)) as server, socket.socket() as caller:
        caller.connect(server.getsockname())
        sock, _ = server.accept()
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    hello = Hello(
        3, Nid.parse(at.nid(2)), state.identity.nid, LNET_PID, LNET_PID, 1, 2, int(ConnType.CONTROL)
    )
    peer = state.peer(hello.src_nid, LNET_PID)
    assert not state.add_conn(peer, sock, hello, ConnType.CONTROL)
    state.forget_if_idle(peer)
    assert sock.fileno() == -1


async def test_a_request_at_one_address_may_be_for_another(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), at.nid(1, net=1))
    second = Nid.parse(at.nid(1, net=1))
    raw = await dial(a, at.ip(3))
    await raw.send(ConnRequest.to(second).pack())
    raw2 = await connect(a, at.nid(4), to=second)
    assert raw2.hello is not None and raw2.hello.src_nid == second


async def test_a_bulk_port_of_its_own(make: Make, at: Addresses) -> None:
    bulk = free_port()
    a, b = make(at.nid(1), accept_port_bulk=bulk), make(at.nid(2), accept_port_bulk=bulk)
    a.put(at.nid(2), b"x")
    await linked(a, b)
    ports = {
        conn.ctype: conn.sock.getsockname()[1] for conn in b.peer(at.nid(1)).conns if conn.sock is not None
    }
    assert ports[ConnType.CONTROL] == b.params.accept_port
    assert ports[ConnType.BULK_IN] == ports[ConnType.BULK_OUT] == bulk


@pytest.mark.parametrize("params", [{"accept": "none"}, {"listen": False}])
async def test_a_node_that_takes_no_calls(make: Make, at: Addresses, params: dict[str, object]) -> None:
    a, b = make(at.nid(1), **params), make(at.nid(2))
    outcome = await b.ended(b.put(at.nid(1), b"x"))
    assert outcome.errno == errno.ECONNREFUSED
    a.put(at.nid(2), b"y")
    await until(b.core.complete(1))
    await linked(a, b)
    b.put(at.nid(1), b"z")
    await until(a.core.complete(1))


async def test_an_unprivileged_caller_is_reset_where_ports_must_be_secure(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), accept="secure")
    try:
        raw = await dial(a, at.ip(2))
    except ConnectionResetError:
        return  # so fast that we never saw the connection
    assert await raw.rest() == (b"", "RESET")


async def test_silent_callers_are_dropped(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), accept_timeout=0.1)
    callers = [await dial(a, at.ip(2)) for _ in range(3)]
    await callers[1].send(b"\x00\x71")
    await callers[2].send(ConnRequest.to(a.ni.nid).pack())
    for raw in callers:
        assert await raw.rest() == (b"", "EOF")
    assert a.lnd.pending_handshakes == 0


async def test_hello_has_a_time_of_its_own(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), accept_timeout=0.3)
    raw = await dial(a, at.ip(2))
    await asyncio.sleep(0.2)
    await raw.send(ConnRequest.to(a.ni.nid).pack())
    await raw.silent(0.2)


async def test_handshakes_in_progress_are_bounded(make: Make, at: Addresses) -> None:
    """Nobody who calls has to wait: the oldest give way, and no address has more than a quarter of all."""
    a = make(at.nid(1), max_handshakes=8, accept_timeout=60)
    first = await dial(a, at.ip(3))
    await until(lambda: a.lnd.pending_handshakes == 1)
    waiting = [await dial(a, at.ip(2)) for _ in range(20)]
    await turns()
    assert a.lnd.pending_handshakes <= 3
    for raw in waiting[:18]:
        assert await raw.rest() == (b"", "EOF")
    assert a.lnd.pending_handshakes == 3
    waiting += [await dial(a, at.ip(host)) for host in range(4, 9)]
    await until(lambda: a.lnd.pending_handshakes == 8)
    raw = await connect(a, at.nid(9))
    assert raw.hello is not None and raw.hello.ctype == ConnType.CONTROL
    assert await first.rest() == (b"", "EOF")
    for raw in waiting[18:]:
        raw.close()
    await until(lambda: not a.lnd.pending_handshakes)


async def test_half_open_connections_of_many_addresses_are_bounded_in_all(make: Make, at: Addresses) -> None:
    """Each keeps a descriptor and memory; those who call later are through before it is counted."""
    a = make(at.nid(1), max_handshakes=8, accept_timeout=60)
    waiting = [await dial(a, at.ip(host)) for host in range(3, 43)]
    friend = await connect(a, at.nid(50))
    assert friend.hello is not None
    assert a.lnd.pending_handshakes <= 8
    for raw in waiting[: 40 - 8]:
        assert await raw.rest() == (b"", "EOF")
    for raw in waiting:
        raw.close()
    await until(lambda: not a.lnd.pending_handshakes)


async def test_shutdown_finalizes_everything_at_once(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2), at.nid(2, net=1))
    with socket.socket() as mute:
        mute.bind((at.ip(3), a.params.accept_port))
        mute.listen()
        a.put(at.nid(2), b"x")
        await until(b.core.complete(1))
        before = len(a.core.outcomes)
        waiting = [a.put(at.nid(3), b"waits for a connection")]
        await turns()
        waiting += [a.put(at.nid(2), bytes(1 << 20)) for _ in range(5)]  # queued
        await dial(a, at.ip(9))  # half a handshake
        await until(lambda: a.lnd.pending_handshakes == 2)
        failed = a.put(at.nid(2), b"x", pid=77)  # failed, not told yet
        a.lnd.shutdown(a.nis.pop(a.ni.nid))
        assert not a.core.open
        told = {one.msg: one for one in a.core.outcomes[before:]}
        assert set(waiting) <= set(told)
        assert told[failed].errno == errno.EHOSTUNREACH
        assert told[waiting[0]].errno == errno.ESHUTDOWN
        assert all(
            one.status in (HealthStatus.LOCAL_ERROR, HealthStatus.OK, HealthStatus.REMOTE_ERROR)
            for one in told.values()
        )
        assert a.lnd.pending_handshakes == a.lnd.open_connections == 0


async def test_sending_after_shutdown_fails(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    ni = a.nis.pop(a.ni.nid)
    a.lnd.shutdown(ni)
    msg = a.put(at.nid(2), b"x", ni=ni)
    outcome = await a.ended(msg)
    assert (outcome.status, outcome.errno) == (HealthStatus.LOCAL_ERROR, errno.ESHUTDOWN)
    a.lnd.shutdown(ni)


async def test_an_ni_comes_back_in_another_life(make: Make, at: Addresses) -> None:
    quick = {"min_reconnectms": 5, "sweep_interval": 0.05, "sock_timeout": 1}
    a = make(at.nid(1), tunables={"timeout": 0}, **quick)
    b = make(at.nid(2), tunables={"timeout": 0}, **quick)
    for turn in range(5):
        a.put(at.nid(2), b"x")
        b.put(at.nid(1), b"y")
        await until(lambda turn=turn: b.core.complete(turn + 1)() and a.core.complete(turn + 1)())  # type: ignore[misc]
        a.lnd.shutdown(a.nis.pop(a.ni.nid))
        await until(lambda: not b.state().peers)
        a.add(at.nid(1))


async def test_two_nis_of_one_node_reach_each_other(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), at.nid(2))
    one, two = a.nis.values()
    a.put(two.nid, b"x", ni=one)
    a.put(one.nid, b"y", ni=two)
    await until(a.core.complete(2))


@pytest.mark.pure  # compiled code calls its own functions
@pytest.mark.parametrize("tied", [True, False])
async def test_sockets_belong_to_the_interface_where_it_leads_to_the_peer(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch, tied: bool
) -> None:
    """To an address of this host itself no device leads (e2e/test_cross_addresses.py has the others)."""
    if tied:
        monkeypatch.setattr("ulnet.lnd.tcp.sockets.leads", lambda own, peer, device: True)
    a, b = make(), make()
    a.add(at.nid(1), interface="lo")
    b.add(at.nid(2), interface="lo:1")  # an alias is no device of its own
    a.put(at.nid(2), b"x")
    await until(b.core.complete(1))
    conn = a.peer(at.nid(2)).conns[0]
    assert conn.sock is not None
    device = conn.sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
    assert device.rstrip(b"\0") == (b"lo" if tied else b"")


async def test_out_of_descriptors(make: Make, at: Addresses) -> None:
    """Who is not through with its handshake gives way to the next one; then callers wait; nothing spins."""
    a = make(at.nid(1))
    friend = await connect(a, at.nid(3))
    waiting = [await dial(a, at.ip(2))]
    await until(lambda: a.lnd.pending_handshakes == 1)
    second, third = RawPeer(socket.socket()), RawPeer(socket.socket())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (third.sock.fileno() + 1, hard))
    try:
        second.sock.connect_ex((at.ip(1), a.params.accept_port))
        assert await waiting[0].rest() == (b"", "EOF")
        await until(lambda: a.lnd.pending_handshakes == 1)
        await friend.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(3)), 0)))
        await until(a.core.complete(1))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    second.close()
    await until(lambda: not a.lnd.pending_handshakes)


async def test_some_descriptors_are_not_for_those_who_call(make: Make, at: Addresses) -> None:
    """Connections that are through stay, others are refused, and our own calls have what they need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = socket.socket()
    lowest = probe.fileno()
    probe.close()
    most = (lowest + 60) * 8 // 7  # an eighth is kept: 60 are left, however many other tests hold
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        a = make(at.nid(1))
        peers = [await connect(a, at.nid(host)) for host in range(3, 23)]
        kept = most // 8
        for host in range(23, 60):
            with suppress(ConnectionError):
                raw = await dial(a, at.ip(host))
                await raw.send(ConnRequest.to(a.ni.nid).pack())
                await raw.send(hello_bytes(Nid.parse(at.nid(host)), a.ni.nid))
                await raw.read_hello()
                peers.append(raw)
                continue
            break
        else:
            raise AssertionError("all descriptors were given away")
        assert a.lnd.open_connections == len(peers)
        assert any("nearly no file descriptors left" in line for line in a.reports)
        free = [socket.socket() for _ in range(kept - 2)]
        for sock in free:
            sock.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_odd_callers_are_reported_but_not_for_ever(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), sweep_interval=0.2)
    for _ in range(30):
        raw = await dial(a, at.ip(2))
        await raw.send(b"GET / HTTP/1.1\r\n\r\n")
        await raw.rest()
    await until(lambda: any("left out" in line for line in a.reports))
    assert len(a.reports) < 30
    assert a.reports[0].startswith(f"refused {at.ip(2)}:")
    assert "is not that of a connection request" in a.reports[0]


async def test_a_caller_of_a_plain_net_by_tls_is_named_as_that(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await dial(a, at.ip(2))
    await raw.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    await raw.rest()
    await until(lambda: bool(a.reports))
    assert a.reports[0].startswith(f"refused {at.ip(2)}:")
    assert ": a TLS connection came to a net without security: set its security to offer" in a.reports[0]


async def test_what_is_odd_about_a_caller_is_reported(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), accept_timeout=0.05)
    await dial(a, at.ip(2))
    await until(lambda: any("no whole connection request in time" in line for line in a.reports))
    raw = await dial(a, at.ip(2))
    await raw.send(ConnRequest.to(a.ni.nid).pack())
    await until(lambda: any("no whole HELLO in time" in line for line in a.reports))
    raw = await dial(a, at.ip(2))
    await raw.send(ConnRequest.to(Nid.parse("10.9.9.9@tcp")).pack())
    await until(lambda: any("wants 10.9.9.9@tcp" in line for line in a.reports))
