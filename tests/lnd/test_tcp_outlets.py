"""Which connection the next messages of a lane are queued on without asking (docs/design/hot-path.md)."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import Side, connect, linked, put_header, until
from support.ports import free_port
from ulnet.core.lanes import Lane
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer_table import PeerTable
from ulnet.core.status import HealthStatus
from ulnet.lnd.tcp.dialer import Dialer
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import Header, pack_header
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]
SMALL, LARGE = 64, 2048


class Sender:
    """A side with a lane to a peer."""

    def __init__(self, side: Side, nid: str) -> None:
        self.side = side
        self.nid = Nid.parse(nid)
        self.lane = self.new_lane()

    def new_lane(self) -> Lane:
        pni = PeerTable(lambda net: 8).imagine(self.nid)
        return Lane((self.side.ni, pni, "", ""), self.nid, 0, 0, LNET_PID, None)

    def header(self, size: int) -> Header:
        return put_header(self.nid, self.side.ni.nid, size)

    def put(self, hdr: Header, lane: Lane) -> Msg:
        msg = Msg(hdr, sending=True)
        msg.payload = [memoryview(bytes(hdr.payload_length))]
        msg.next_nid = self.nid
        msg.next_pid = LNET_PID
        msg.ni = self.side.ni
        msg.lane = lane
        core = self.side.core
        core.open.add(msg)
        core.sending = True
        self.side.lnd.send(msg.ni, msg)
        core.sending = False
        return msg

    def outlet_of(self, lane: Lane) -> ConnType | None:
        """The type of the connection that the lane's next message is queued on, if it needs not ask."""
        found = [conn for conn in self.side.peer(self.nid).conns if conn is lane.outlet and conn.sole]
        return found[0].ctype if found else None


async def test_a_lane_keeps_to_the_connection_for_its_size(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    a.put(at.nid(2), b"go")
    await linked(a, b)
    sender = Sender(a, at.nid(2))
    for size, ctype in ((SMALL, ConnType.CONTROL), (LARGE, ConnType.BULK_OUT)):
        sender.lane.hdr = sender.header(size)
        sender.lane.outlet = None
        sender.put(sender.lane.hdr, sender.lane)
        assert sender.outlet_of(sender.lane) is ctype
    await until(b.core.complete(3))


async def test_connections_that_are_refused_for_good_keep_small_messages_on_no_longer_way(
    make: Make, at: Addresses
) -> None:
    a, b = make(at.nid(1), accept_port_bulk=free_port()), make(at.nid(2))
    params = a.params
    params.min_reconnectms = params.max_reconnectms = params.refused_reconnectms = 60_000
    a.put(at.nid(2), b"go")
    dialer = a.dialer(at.nid(2))
    await until(lambda: a.pair(at.nid(2)).pause and not dialer.busy)
    assert a.kinds(at.nid(2)) == [ConnType.CONTROL]
    sender = Sender(a, at.nid(2))
    large = sender.new_lane()
    for lane, size, ctype in ((sender.lane, SMALL, ConnType.CONTROL), (large, LARGE, None)):
        lane.hdr = sender.header(size)
        sender.put(lane.hdr, lane)
        assert sender.outlet_of(lane) is ctype
    rest = dialer._rest
    assert rest is not None
    assert rest.when() == dialer._retry_at
    params.accept_port_bulk = None
    dialer._retry_at = a.pair(at.nid(2)).retry_at = 0.0  # the pause is over
    rest.cancel()
    dialer._rested()
    assert sender.outlet_of(sender.lane) is None
    assert sender.lane.hdr is not None
    sender.put(sender.lane.hdr, sender.lane)
    await linked(a, b)
    await until(lambda: not dialer.incomplete)
    sender.put(sender.lane.hdr, sender.lane)
    assert sender.outlet_of(sender.lane) is ConnType.CONTROL
    await until(b.core.complete(5))


def rests(dialer: Dialer) -> bool:
    """Whether messages are told when its pause is over."""
    return dialer._rest is not None


async def test_a_pause_of_the_dialer_ends_with_its_connections(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1), accept_port_bulk=free_port()), make(at.nid(2))
    a.params.min_reconnectms = a.params.max_reconnectms = a.params.refused_reconnectms = 60_000
    a.put(at.nid(2), b"go")
    dialer = a.dialer(at.nid(2))
    await until(lambda: a.pair(at.nid(2)).pause and not dialer.busy)
    sender = Sender(a, at.nid(2))
    sender.lane.hdr = sender.header(SMALL)
    sender.put(sender.lane.hdr, sender.lane)
    assert rests(dialer)
    b.close()
    await until(lambda: not a.kinds(at.nid(2)))
    assert not rests(dialer)
    assert sender.outlet_of(sender.lane) is None


async def test_alike_messages_of_more_than_a_batch_all_leave(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    a.put(at.nid(2), b"go")
    await linked(a, b)
    sender = Sender(a, at.nid(2))
    hdr = sender.lane.hdr = sender.header(1 << 20)
    first = sender.put(hdr, sender.lane)
    for _ in range(7):  # 4 MiB and some headers are more than 4 MiB
        sender.put(hdr, sender.lane).payload = first.payload
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
    sender = Sender(b, at.nid(1))
    expected = bytearray()
    sent: list[Msg] = []
    for size in chance.sample([0, 1, 40, 64, 900, 5000, 40_000], 5):
        lane = sender.new_lane()
        hdr = lane.hdr = sender.header(size)
        payload = [memoryview(chance.randbytes(size))] if size else []
        if size > 1:
            payload = [payload[0][:1], payload[0][1:]]
        for _ in range(chance.choice([1, 2, 30, 300 if size < 1000 else 8])):
            msg = sender.put(hdr, lane)
            msg.payload = payload
            sent.append(msg)
            expected += conn.prefix + pack_header(hdr, False) + b"".join(payload)
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


async def test_a_message_that_waited_leaves_no_outlet_for_those_of_another_size(
    make: Make, at: Addresses
) -> None:
    """It waited for credits; meanwhile the lane's requests are larger."""
    a, b = make(at.nid(1)), make(at.nid(2))
    a.put(at.nid(2), b"go")
    await linked(a, b)
    sender = Sender(a, at.nid(2))
    sender.lane.hdr = sender.header(LARGE)
    sender.put(sender.header(SMALL), sender.lane)
    assert sender.outlet_of(sender.lane) is None
    await until(b.core.complete(2))


async def test_an_outlet_that_was_all_there_was_is_not_taken_for_one_of_its_kind(
    make: Make, at: Addresses
) -> None:
    """Both kinds of messages take the first connection; then those for large ones come."""
    b = make(at.nid(2))
    control = await connect(b, at.nid(1), ConnType.CONTROL)
    await until(lambda: b.kinds(at.nid(1)))
    sender = Sender(b, at.nid(1))
    small, large = sender.new_lane(), sender.new_lane()
    for lane, size in ((small, SMALL), (large, LARGE)):
        lane.hdr = sender.header(size)
        sender.put(lane.hdr, lane)
    bulk = await connect(b, at.nid(1), ConnType.BULK_IN)
    await until(lambda: len(b.kinds(at.nid(1))) == 2)
    assert small.hdr is not None
    sender.put(small.hdr, small)
    assert sender.outlet_of(small) is ConnType.CONTROL
    assert sender.outlet_of(large) is None
    assert large.hdr is not None
    sender.put(large.hdr, large)
    assert sender.outlet_of(large) is ConnType.BULK_OUT
    await until(lambda: not b.core.open)
    control.close()
    bulk.close()


class Inlet:
    """What the core keeps of a connection."""

    def __init__(self) -> None:
        self.closed = False

    def take(self, hdr: Header, view: memoryview, at: int) -> bool:
        return False

    def begin(self, hdr: Header) -> None:
        return None

    def end(self, msg: Msg) -> bool:
        return False

    def settle(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@pytest.mark.pure
async def test_the_core_hears_of_the_end_of_a_connection(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    inlets: list[Inlet] = []

    def inlet(ni: NI, nid: Nid) -> Inlet:
        inlets.append(Inlet())
        return inlets[-1]

    b.core.inlet = inlet  # type: ignore[method-assign, assignment]
    a.put(at.nid(2), b"go")
    await linked(a, b)
    assert [one.closed for one in inlets] == [False] * 3
    a.close()
    await until(lambda: not b.lnd.open_connections)
    assert [one.closed for one in inlets] == [True] * 3
