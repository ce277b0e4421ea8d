"""Messages that are alike are handed over and written together: every byte of each, in order."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from itertools import pairwise

import pytest

from lnd.conftest import Addresses
from lnd.kit import Side, connect, linked, put_header, until
from support.ports import free_port
from ulnet.core.msg import Msg
from ulnet.core.status import HealthStatus
from ulnet.lnd.tcp.dialer import Dialer
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import pack_header
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]


def send(side: Side, nid: str, size: int, count: int, pieces: int = 1, fill: bytes = b"\0") -> list[Msg]:
    """Hand over so many messages with one header and one payload."""
    target = Nid.parse(nid)
    hdr = put_header(target, side.ni.nid, size)
    whole = memoryview((fill * size)[:size])
    cuts = [size * at // pieces for at in range(pieces + 1)]
    payload = [whole[begin:end] for begin, end in pairwise(cuts) if end > begin]
    msgs = []
    for _ in range(count):
        msg = Msg(hdr)
        msg.payload = payload
        msg.next_nid = target
        msg.next_pid = LNET_PID
        msg.ni = side.ni
        msgs.append(msg)
    core = side.core
    core.open.update(msgs)
    core.sending = True
    side.lnd.send(side.ni, list(msgs))
    core.sending = False
    return msgs


async def test_messages_that_are_handed_over_together_leave_in_order(make: Make, at: Addresses) -> None:
    """Also before there is a connection, and where several may carry them."""
    a, b = make(at.nid(1), tunables={"conns_per_peer": 3}), make(at.nid(2), tunables={"conns_per_peer": 3})
    msgs = send(a, at.nid(2), 5000, 40) + send(a, at.nid(2), 64, 40)
    await linked(a, b, 7)
    msgs += send(a, at.nid(2), 5000, 40) + send(a, at.nid(2), 64, 40)
    await until(b.core.complete(160))
    await until(lambda: not a.core.open)
    assert all(one.status is HealthStatus.OK for one in a.core.outcomes)
    small = [one.msg for one in a.core.outcomes if one.msg.hdr.payload_length == 64]
    assert small == [msg for msg in msgs if msg.hdr.payload_length == 64]


async def test_messages_without_a_peer_that_can_be_called_fail_together(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    msgs = send(a, at.nid(2), 64, 5)
    await until(lambda: not a.core.open)
    assert [one.msg for one in a.core.outcomes] == msgs
    assert all(one.unsent and one.errno for one in a.core.outcomes)


async def test_handles_of_their_own_are_written_into_the_header_that_they_share(
    make: Make, at: Addresses
) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    a.put(at.nid(2), b"go")
    await linked(a, b)
    msgs = send(a, at.nid(2), 100, 50)
    handles = [bytes([1 + number % 3]) * 16 if number % 7 else msgs[0].hdr.wmd for number in range(50)]
    for msg, handle in zip(msgs, handles, strict=True):
        msg.wmd = handle
    await until(b.core.complete(51))
    assert [one.hdr.wmd for one in b.core.arrivals[1:]] == handles


async def test_alike_messages_of_more_than_a_batch_all_leave(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    a.put(at.nid(2), b"go")
    await linked(a, b)
    send(a, at.nid(2), 1 << 20, 8)  # 4 MiB and some headers are more than 4 MiB
    await until(b.core.complete(9))
    await until(lambda: not a.core.open)


@pytest.mark.parametrize("seed", range(6))
async def test_every_byte_of_alike_messages_that_leave_in_pieces(
    make: Make, at: Addresses, seed: int
) -> None:
    """The socket takes little at a time, and the peer reads by fits and starts, or dies in the middle."""
    chance = random.Random(seed)
    b = make(at.nid(2))
    control = await connect(b, at.nid(1), ConnType.CONTROL)
    await until(lambda: b.kinds(at.nid(1)))
    (conn,) = b.peer(at.nid(1)).conns
    assert conn.sock is not None
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    expected = bytearray()
    sent: list[Msg] = []
    for size in chance.sample([0, 1, 40, 64, 900, 5000, 40_000], 5):
        count = chance.choice([1, 2, 30, 300 if size < 1000 else 8])
        msgs = send(b, at.nid(1), size, count, 1 + (size > 1), chance.randbytes(251))
        sent += msgs
        hdr, payload = msgs[0].hdr, b"".join(msgs[0].payload)
        expected += (conn.tx.prefix + pack_header(hdr, False) + payload) * count
    dies_after = chance.randrange(len(expected)) if seed % 2 else len(expected)
    got = bytearray()
    while len(got) < dies_after:
        got += await control.read(min(chance.choice([1, 100, 5000, 70_000]), dies_after - len(got)))
    assert got == expected[: len(got)]
    if dies_after < len(expected):
        control.reset()
    await until(lambda: not b.core.open)
    outcomes = {outcome.msg: outcome.status for outcome in b.core.outcomes}
    ended = [outcomes[msg] is not HealthStatus.OK for msg in sent]
    assert ended == sorted(ended)  # those that left come first
    control.close()


def rests(dialer: Dialer) -> bool:
    """Whether messages are told when its pause is over."""
    return dialer._rest is not None


async def test_a_pause_of_the_dialer_ends_with_its_connections(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1), accept_port_bulk=free_port()), make(at.nid(2))
    a.params.min_reconnectms = a.params.max_reconnectms = a.params.refused_reconnectms = 60_000
    a.put(at.nid(2), b"go")
    dialer = a.dialer(at.nid(2))
    await until(lambda: a.pair(at.nid(2)).pause and not dialer.busy)
    send(a, at.nid(2), 64, 2)
    assert rests(dialer)
    b.close()
    await until(lambda: not a.kinds(at.nid(2)))
    assert not rests(dialer)


async def test_the_core_hears_of_the_end_of_a_connection(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    a.put(at.nid(2), b"go")
    await linked(a, b)
    assert [one.closed for one in b.core.receivers] == [False] * 3
    a.close()
    await until(lambda: not b.lnd.open_connections)
    assert [one.closed for one in b.core.receivers] == [True] * 3
