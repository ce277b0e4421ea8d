"""Calls that fail at once, or whose peer hangs up at once: bounded, and nothing is left waiting for them."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import (
    Outcome,
    RawListener,
    RawPeer,
    Side,
    connect,
    hello_bytes,
    lnet_frame,
    put_header,
    turns,
    until,
)
from lnd.test_tcp_connect import swallowing
from support.cycles import left_in_cycles
from ulnet.core.status import HealthStatus
from ulnet.lnd.base import DeviceNews
from ulnet.lnd.tcp import sockets
from ulnet.lnd.tcp.params import MAX_SPIN
from ulnet.nid import PID_USER_FLAG, Nid
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]


async def stuffed(side: Side, nid: str, source: str | None = None) -> RawPeer:
    """A raw peer that reads nothing over a connection that takes little."""
    raw = await connect(side, nid, ConnType.CONTROL, source=source)
    raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    (peer,) = side.state().peers.values()
    (conn,) = peer.conns
    assert conn.sock is not None
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    return raw


@pytest.mark.pure
async def test_a_silent_path_that_cannot_even_be_called_is_not_avoided_for_ever(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*args: object) -> socket.socket:
        raise OSError(errno.ENETUNREACH, "no way there")

    monkeypatch.setattr("ulnet.lnd.tcp.conn.is_stalled", lambda sock, quiet: True)
    a = make(at.nid(1), tunables={"timeout": 1})
    raw = await stuffed(a, at.nid(2))
    monkeypatch.setattr(sockets, "dial", unreachable)
    outcome = await a.ended(a.put(at.nid(2), bytes(20 << 20)))
    assert outcome.status is HealthStatus.NETWORK_TIMEOUT
    await until(lambda: not a.dialer(at.nid(2)).busy)
    assert a.core.ever_stalled and not a.core.stalled
    raw.close()


@pytest.mark.pure
async def test_a_silent_path_whose_call_is_called_off_is_not_avoided_for_ever(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ulnet.lnd.tcp.conn.is_stalled", lambda sock, quiet: True)
    a = make(at.nid(1), tunables={"timeout": 1})
    raw = await stuffed(a, at.nid(2))
    msg = a.put(at.nid(2), bytes(20 << 20))
    state = a.state()
    news = DeviceNews("eth9", "it has no carrier")
    a.core.on_finalize = lambda outcome: state.device_changed(state.devices[0], news)
    await a.ended(msg)
    await turns()
    assert a.core.ever_stalled and not a.core.stalled
    raw.close()


@pytest.mark.pure
async def test_a_process_that_may_not_be_called_is_not_when_it_falls_silent(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ulnet.lnd.tcp.conn.is_stalled", lambda sock, quiet: True)
    a = make(at.nid(1), tunables={"timeout": 1})
    raw = await stuffed(a, at.nid(7), source=at.ip(2))  # renamed: by its address and port
    pid = raw.sock.getsockname()[1] | PID_USER_FLAG
    outcome = await a.ended(a.put(at.nid(2), bytes(20 << 20), pid=pid))
    assert outcome.status is HealthStatus.NETWORK_TIMEOUT
    await turns()
    assert not a.state().peers, "it is called by nobody"
    assert not a.core.stalled
    raw.close()


@pytest.mark.pure
async def test_a_call_that_cannot_be_made_anew_keeps_no_message_waiting(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*args: object) -> socket.socket:
        raise OSError(errno.ENETUNREACH, "no way there")

    def send_again(outcome: Outcome) -> None:
        a.core.on_finalize = None
        again.append(a.put(at.nid(2), b"again"))

    again: list[object] = []
    a = make(at.nid(1), tunables={"timeout": 50})
    monkeypatch.setattr("ulnet.lnd.tcp.dialer._ANEW", 0.1)
    with swallowing(at.ip(2), a.params.accept_port):
        a.put(at.nid(2), b"x")
        dialer = a.dialer(at.nid(2))
        await until(lambda: dialer.connecting)
        a.core.on_finalize = send_again
        monkeypatch.setattr(sockets, "dial", unreachable)
        await until(lambda: again and not dialer.connecting)
        await turns(20)
        assert not a.peer(at.nid(2)).queue, "nobody is calling"


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("more", [True, False])
async def test_a_peer_that_hangs_up_as_soon_as_it_is_connected_is_not_called_without_end(
    make: Make, at: Addresses, more: bool, whole: bool
) -> None:
    a = make(at.nid(1))
    listener = RawListener(at.ip(2), a.params.accept_port)
    calls = 0

    async def answer() -> None:
        nonlocal calls
        while True:
            raw, _, hello = await listener.accept_hello()
            calls += 1
            await raw.send(hello_bytes(Nid.parse(at.nid(2)), hello.src_nid, ConnType(hello.ctype).inverted()))
            await asyncio.sleep(0.002)
            raw.close() if whole else raw.reset()

    answering = asyncio.create_task(answer())
    a.put(at.nid(2), b"x")
    for _ in range(90):
        await asyncio.sleep(0.01)
        if more:
            a.put(at.nid(2), b"y")
    assert 1 <= calls <= 40
    if not more:
        assert not a.state().peers or not a.dialer(at.nid(2)).busy, "nobody wants it"
    answering.cancel()
    await asyncio.wait([answering])
    listener.close()


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ECONNRESET])
async def test_parameters_of_zero_do_not_mean_to_call_without_a_pause(
    make: Make, at: Addresses, number: int
) -> None:
    a = make(at.nid(1), min_reconnectms=0, max_reconnectms=0, refused_reconnectms=0)
    await a.ended(a.put(at.nid(2), b"x"))
    dialer = a.dialer(at.nid(2))
    dialer.failed(number, "a planted failure")
    assert a.pair(at.nid(2)).pause >= 0.001


async def test_looking_for_more_while_a_payload_is_about_to_go_on(make: Make, at: Addresses) -> None:
    """What was read behind its header comes before what is still in the socket."""
    a = make(at.nid(1), spin=MAX_SPIN)
    patience = a.lnd._shared.spin
    patience.seconds = patience.longest = 0.05
    raw = await connect(a, at.nid(2))
    payload = bytes(range(250)) * 80
    frame = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), len(payload)), payload)
    a.core.hold = True

    def begin(arrival: object) -> None:
        a.put(at.nid(2), b"sent when this read is worked through")

    def go_on(outcome: Outcome) -> None:
        a.core.on_finalize = None
        raw.sock.send(frame[5000:])
        a.core.take(a.core.held.pop())

    a.core.on_parse = begin
    a.core.on_finalize = go_on
    await raw.send(frame[:5000])
    await until(a.core.complete(1))
    assert bytes(a.core.arrivals[0].memory) == payload


async def test_who_hangs_up_during_a_handshake_is_called_again_soon(make: Make, at: Addresses) -> None:
    """As a process that ends does: its host is well, and its next life may be there at any moment."""
    a = make(at.nid(1), min_reconnectms=1_000_000, max_reconnectms=1_000_000)
    listener = RawListener(at.ip(2), a.params.accept_port)
    msg = a.put(at.nid(2), b"to the former life")
    raw = await listener.accept()
    sockets.reset(raw.sock)
    outcome = await a.ended(msg)
    assert outcome.errno in (errno.ECONNRESET, errno.ECONNABORTED)
    listener.close()
    b = make(at.nid(2))

    async def sent() -> bool:
        return (await a.ended(a.put(at.nid(2), b"to the next one"))).errno == 0

    async with asyncio.timeout(60):
        while not await sent():
            await asyncio.sleep(0.01)
    await until(b.core.complete(1))


async def test_peers_that_are_forgotten_are_freed_at_once(make: Make, at: Addresses) -> None:
    """What they have of attempts to connect had them, too: a flood of these was for Python's collector."""
    a = make(at.nid(1), refused_reconnectms=1, min_reconnectms=1, max_reconnectms=1)
    state = a.state()
    with left_in_cycles() as found:
        for number in range(2, 52):
            assert (await a.ended(a.put(at.nid(number), b"x"))).errno == errno.ECONNREFUSED

        def all_forgotten() -> bool:
            for peer in list(state.peers.values()):
                state.forget_if_idle(peer)
            return not state.peers

        await until(all_forgotten)
        await turns()
    for one in ("Peer", "Dialer", "Outbound", "ActiveHandshake"):  # a few may be of what other tests had
        assert found.count(one) < 25, one
