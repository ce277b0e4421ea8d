"""A ping soon after a peer was out of reach: it has an attempt to connect made in time."""

from __future__ import annotations

import asyncio
import errno

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.lnd.tcp.nistate import NiState
from ulnet.nid import LNET_PID, Nid

A, B = "127.0.0.1@tcp", "127.0.0.2@tcp"
LONG = 50.0  # seconds


def made(port: int) -> Node:
    return Node(tcp=TcpParams(accept="all", accept_port=port, reserved_ports=False))


def fail(node: Node, number: int, pause: float) -> None:
    """The last attempt of node to reach B has just failed, and was followed by about such a pause."""
    state = node.core.nis[Nid.parse(A)].lnd_data
    assert isinstance(state, NiState)
    dialer = state.peer(Nid.parse(B), LNET_PID).dialer
    assert dialer is not None
    for pair in dialer.pairs.values():
        pair.pause = pause
    dialer.failed(number, "planted by the test")


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize(("number", "pause"), [(errno.ECONNREFUSED, 0.4), (errno.ETIMEDOUT, LONG)])
async def test_a_ping_during_the_pause_after_a_failure_finds_who_is_back(number: int, pause: float) -> None:
    port = free_port()
    async with asyncio.timeout(60), made(port) as a:
        a.add_ni(A)
        with pytest.raises(LNetError) as refused:
            await a.ping(B, timeout=30)
        assert refused.value.errno == errno.ECONNREFUSED
        async with made(port) as b:
            b.add_ni(B)
            fail(a, number, pause)
            assert (await a.ping(B, timeout=30)).primary_nid == Nid.parse(B)


async def test_a_message_without_a_timeout_waits_for_no_long_pause() -> None:
    port = free_port()
    async with asyncio.timeout(60), made(port) as a:
        a.add_ni(A)
        with pytest.raises(LNetError):
            await a.ping(B, timeout=30)
        fail(a, errno.ETIMEDOUT, LONG)
        with pytest.raises(LNetError, match="no attempt before") as refused:
            await a.put(B, 30, 0, b"x", ack=False)
        assert refused.value.errno == errno.EHOSTUNREACH
