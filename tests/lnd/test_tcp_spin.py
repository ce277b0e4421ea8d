"""Looking for more before the process sleeps: bounded, and given up where it is of no use."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import Arrival, Side, connect, lnet_frame, put_header, until
from ulnet.core.status import LNetError
from ulnet.lnd.tcp.params import MAX_SPIN, TcpParams
from ulnet.lnd.tcp.spin import Spin
from ulnet.nid import Nid

Make = Callable[..., Side]


@pytest.mark.parametrize(("spin", "seen_before_the_loop_went_on"), [(MAX_SPIN, 2), (0, 1)])
async def test_what_comes_meanwhile_is_taken_before_the_loop_goes_on(
    make: Make, at: Addresses, spin: int, seen_before_the_loop_went_on: int
) -> None:
    side = make(at.nid(1), spin=spin)
    if spin:
        patience = side.lnd._shared.spin
        patience.seconds = patience.longest = 5.0  # the machine may be busy
    raw = await connect(side, at.nid(2))
    frame = lnet_frame(put_header(Nid.parse(at.nid(1)), Nid.parse(at.nid(2)), 0))
    seen: list[int] = []

    def answer(arrival: Arrival) -> None:
        if not side.core.arrivals:
            raw.sock.send(frame)
            asyncio.get_running_loop().call_soon(lambda: seen.append(len(side.core.arrivals)))
        else:
            side.lnd._shared.spin.longest = 0.0

    side.core.on_parse = answer
    await raw.send(frame)
    await until(lambda: len(side.core.arrivals) == 2)
    assert seen == [seen_before_the_loop_went_on]


async def test_a_peer_that_hangs_up_meanwhile(make: Make, at: Addresses) -> None:
    side = make(at.nid(1), spin=MAX_SPIN)
    raw = await connect(side, at.nid(2))
    side.core.on_parse = lambda arrival: raw.close()
    await raw.send(lnet_frame(put_header(Nid.parse(at.nid(1)), Nid.parse(at.nid(2)), 0)))
    await until(lambda: side.lnd.open_connections == 0)


def test_the_more_often_in_vain_the_more_seldom() -> None:
    spin = Spin(50)
    tries = 0
    for _ in range(1000):
        if spin.wanted():
            tries += 1
            spin.tried(False)
    assert 10 <= tries <= 30
    while not spin.wanted():
        pass
    spin.tried(True)
    assert spin.wanted()


def test_it_ends_however_much_comes() -> None:
    spin = Spin(50)
    assert spin.end(10.0, 10.0) == pytest.approx(10.00005)
    assert spin.end(10.0, 10.002) < 10.002


def test_nobody_spins_who_was_not_told_to() -> None:
    assert not Spin(0).wanted()


@pytest.mark.parametrize("value", [-1, MAX_SPIN + 1])
def test_the_bound_is_told(value: int) -> None:
    with pytest.raises(LNetError, match=f"spin={value} is out of range: use 1 to {MAX_SPIN} microseconds"):
        TcpParams(spin=value)


def test_a_connection_that_reads_nothing_is_looked_at_no_longer_than_asked() -> None:
    """One that is paused has bytes behind it, which is nothing new."""
    spin = Spin(20)
    spin.longest = 1000.0
    reads = 0

    def read() -> bool | None:
        nonlocal reads
        reads += 1
        return False

    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        spin.go_on(ours.fileno(), read)
        assert reads
        assert not spin.wanted(), "it was in vain"
        closed = [True, None]
        spin = Spin(1_000_000)
        spin.go_on(ours.fileno(), lambda: closed.pop(0))
        assert closed == []
        assert spin.wanted()
