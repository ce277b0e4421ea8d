"""Many small messages over real sockets: all of them, in order, whatever the sizes and the buffers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from operator import sub

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.core.tunables import NetTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid

PORTAL, BITS = 30, 1
NUMBER = struct.Struct("<Q")


class Pair:
    """Two nodes on loopback; `got` holds the number in each PUT that arrived."""

    def __init__(self, host: int, credits: int, **params: int) -> None:
        self.addresses = [f"127.0.{host}.{end}" for end in (1, 2)]
        self.credits = credits
        tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False, **params)  # type: ignore[arg-type]
        self.nodes = [Node(tcp=tcp), Node(tcp=tcp)]
        self.got: list[int] = []
        self.bytes = 0
        self.before: list[tuple[int, int, int, int]] = []

    async def start(self) -> None:
        for node, address in zip(self.nodes, self.addresses, strict=True):
            await node.start()
            node.add_ni(f"{address}@tcp", tunables=NetTunables(peer_credits=self.credits))
        inbox = bytearray(1 << 14)

        def on_put(event: Event) -> None:
            if event.kind is EventKind.PUT:
                self.got.append(event.hdr_data)
                self.bytes += event.mlength
                assert not event.mlength or NUMBER.unpack_from(inbox)[0] == event.mlength

        self.nodes[1].attach(PORTAL, BITS, inbox, options=OP_PUT | MANAGE_REMOTE, handler=on_put)
        for node, address in zip(self.nodes, reversed(self.addresses), strict=True):
            await node.discover(f"{address}@tcp")
        while any(node.core.stats.msgs_alloc or node.core.memory.awaits_any for node in self.nodes):
            await asyncio.sleep(0.005)
        self.before = [self.counts(node) for node in self.nodes]

    @staticmethod
    def counts(node: Node) -> tuple[int, int, int, int]:
        """PUTs and ACKs sent, PUTs and ACKs received."""
        stats = next(ni for ni in node.core.nis.values() if ni.lnd.name == "tcp").stats
        return stats.sent[1], stats.sent[0], stats.received[1], stats.received[0]

    async def send(self, sizes: list[int], count: int, *, ack: bool, varied: bool) -> None:
        """Send `count` messages, of these sizes in turn; the header data number them, or are all 0."""
        core = self.nodes[0].core
        to = Nid.parse(f"{self.addresses[1]}@tcp")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent = ended = 0
        last = EventKind.ACK if ack else EventKind.SEND

        def on_event(event: Event) -> None:
            nonlocal ended
            assert not event.status, event.reason
            if event.kind is last:
                ended += 1
                fill()

        mds = [core.memory.md_bind(NUMBER.pack(size).ljust(size, b".")[:size], on_event) for size in sizes]

        def fill() -> None:
            nonlocal sent
            while sent < count and sent - ended < 3 * self.credits:
                md = mds[sent % len(mds)]
                sent += 1
                core.put(md, to, PORTAL, BITS, ack=ack, hdr_data=sent if varied else 0)
            if ended == count and not done.done():
                done.set_result(None)

        fill()
        await asyncio.wait_for(done, 60)
        for md in mds:
            core.memory.md_unlink(md)

    async def arrived(self, count: int) -> None:
        while len(self.got) < count:
            await asyncio.sleep(0.005)

    def check(self, count: int, ack: bool) -> None:
        """Counters of both ends, and what must be back where it was."""
        acks = count if ack else 0
        counted = [(count, 0, 0, acks), (0, acks, count, 0)]
        for node, before, expected in zip(self.nodes, self.before, counted, strict=True):
            core = node.core
            ni = next(ni for ni in core.nis.values() if ni.lnd.name == "tcp")
            assert tuple(map(sub, self.counts(node), before)) == expected
            assert core.stats.msgs_alloc == 0
            assert ni.tx_credits == ni.max_tx_credits
            assert ni.refs == 0
            for pni in core.peers.nis():
                assert (pni.refs, pni.tx_queued_bytes, pni.answers) == (1, 0, 0)
                assert pni.tx_credits == pni.max_tx_credits

    async def close(self) -> None:
        for node in self.nodes:
            await node.close()


@pytest.fixture
async def pairs() -> AsyncIterator[list[Pair]]:
    made: list[Pair] = []
    yield made
    for pair in made:
        await pair.close()


@pytest.mark.parametrize("ack", [False, True], ids=["one-way", "acknowledged"])
@pytest.mark.parametrize("varied", [False, True], ids=["alike", "numbered"])
@pytest.mark.parametrize("sizes", [[64], [0, 8, 900, 1100, 4096, 4097, 9000]], ids=["64", "mixed"])
async def test_all_arrive(pairs: list[Pair], sizes: list[int], varied: bool, ack: bool) -> None:
    pair = Pair(41, 16)
    pairs.append(pair)
    await pair.start()
    await pair.send(sizes, 2100, ack=ack, varied=varied)
    await pair.arrived(2100)
    small = [number for number in pair.got if sizes[(number - 1) % len(sizes)] < 900] if varied else []
    assert small == sorted(small), "those of one connection stay in order"
    assert sorted(pair.got) == (list(range(1, 2101)) if varied else [0] * 2100)
    assert pair.bytes == sum(sizes[at % len(sizes)] for at in range(2100))
    await asyncio.sleep(0.01)
    pair.check(2100, ack)


async def test_batches_that_leave_in_pieces(pairs: list[Pair]) -> None:
    """The kernel takes less than a batch: messages end one by one, those not begun wait."""
    pair = Pair(42, 64, tx_buffer_size=4608, rx_buffer_size=4608, min_bulk=8192)
    pairs.append(pair)
    await pair.start()
    await pair.send([700, 4000], 1500, ack=True, varied=True)
    assert pair.got == list(range(1, 1501))
    await asyncio.sleep(0.01)
    pair.check(1500, True)


async def test_spinning_nodes(pairs: list[Pair]) -> None:
    pair = Pair(43, 4, spin=100)
    pairs.append(pair)
    await pair.start()
    await pair.send([64], 500, ack=True, varied=True)
    assert pair.got == list(range(1, 501))
    await asyncio.sleep(0.01)
    pair.check(500, True)


async def test_a_receiver_that_goes_away_fails_each_message_once(pairs: list[Pair]) -> None:
    pair = Pair(44, 32)
    pairs.append(pair)
    await pair.start()
    await pair.send([64], 100, ack=False, varied=True)
    core = pair.nodes[0].core
    ended: list[int] = []
    md = core.memory.md_bind(b"x" * 64, lambda event: ended.append(event.status))
    to = Nid.parse(f"{pair.addresses[1]}@tcp")
    for number in range(300):
        if number == 200:
            await pair.nodes[1].close(drain=0)
        core.put(md, to, PORTAL, BITS, ack=False, hdr_data=number)
        await asyncio.sleep(0)
    while core.stats.msgs_alloc:
        await asyncio.sleep(0.01)
    assert len(ended) == 300
    assert sum(status == 0 for status in ended) >= 150
    core.memory.md_unlink(md)
    for pni in core.peers.nis():
        assert (pni.refs, pni.tx_queued_bytes) == (1, 0)
        assert pni.tx_credits == pni.max_tx_credits
