"""What a program gets from a node, or configures it with, can be copied and pickled on both builds.

Of compiled classes Python knows no `__slots__`: what it copies by itself lacks its fields, or fails.
"""

from __future__ import annotations

import copy
import errno
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.status import HealthStatus, LNetError, LNetTimeoutError
from ulnet.core.tunables import GlobalSettings, LndTunables, NetTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import LO_NID, Nid
from ulnet.node import PingResult
from ulnet.wire.lnet import Header, MsgType
from ulnet.wire.ping import Feature, NiEntry, PingInfo

A = Nid.parse("10.0.0.1@tcp")
INFO = PingInfo(features=3, pid=9, sequence=4, entries=[NiEntry(A, 1)])


def pickled(value: object) -> object:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize(
    "value",
    [
        TcpParams(accept_port=5, spin=7),
        NetTunables(credits=99),
        LndTunables(timeout=3),
        GlobalSettings(numa_range=7),
        INFO,
        PingResult(A, (A,), Feature(3), INFO),
        Header(int(MsgType.PUT), dest_nid=A, portal=9, match_bits=1 << 63, wmd=bytes(range(16)), length=5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_copy_has_the_same_fields(value: object, again: Callable[[object], object]) -> None:
    other = again(value)
    assert other is not value
    assert other == value
    assert repr(other) == repr(value)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
def test_so_has_that_of_an_error(again: Callable[[Any], Any]) -> None:
    """As `concurrent.futures` and `multiprocessing` make them."""
    error = LNetError(errno.ETIMEDOUT, "no response")
    other = again(error)
    assert (type(other), other.errno, other.text, str(other)) == (
        LNetTimeoutError,
        error.errno,
        error.text,
        str(error),
    )


async def test_an_event_is_copied_whole() -> None:
    """One may be told of several messages: a handler that keeps it to change it copies it."""
    events: list[Event] = []
    async with Node() as node:
        node.attach(7, 1, bytearray(8), handler=events.append)
        await node.put(LO_NID, 7, 1, b"12345678")
    for event in events:
        event.status, event.health, event.reason = -errno.EIO, HealthStatus.LOCAL_ERROR, "for this test"
        other = copy.copy(event)
        assert other is not event
        for name in ("kind", "md", "hdr", "initiator", "sender", "mlength", "rlength", "offset"):
            assert getattr(other, name) is getattr(event, name) or getattr(other, name) == getattr(
                event, name
            )
        assert (other.status, other.health, other.reason) == (event.status, event.health, event.reason)
        assert other.unlinked == event.unlinked
    assert EventKind.PUT in [event.kind for event in events]
    assert True in [event.unlinked for event in events]
