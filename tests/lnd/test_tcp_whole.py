"""Frames that a peer cuts anywhere, taken whole or one by one: the same events, the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from lnd.conftest import Addresses
from lnd.kit import RawPeer, connect, lnet_frame, turns, until
from support.ports import free_port
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.ni import NI
from ulnet.core.peer import PeerFlag
from ulnet.core.receiver import RUN
from ulnet.lnd.contract import Inbound
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.lnd.tcp.turns import FIRST_TURN, TURNS
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import NO_WMD, Header, MsgType, unpack_header
from ulnet.wire.socklnd import KEEPALIVE_COOKIE, ConnType, FrameType, checksum, pack_frame_header

pytestmark = pytest.mark.pure
PORTAL = 9
LAST = 999  # header data
COUNT = 3 * RUN + 8
FRAME = 96  # of an ACK
Midway = Callable[["Node"], None]


def told(event: Event) -> tuple[Any, ...]:
    """What a program can see of an event."""
    # fmt: off
    return (event.kind, event.status, event.mlength, event.rlength, event.offset, event.match_bits,
            event.hdr_data, event.portal, event.initiator, event.source, event.sender, event.target,
            event.unlinked, bytes(event.data))
    # fmt: on


class Counting:
    """Counts messages that are taken whole, if any may be."""

    def __init__(self, receiver: Inbound, whole: bool) -> None:
        self.receiver = receiver
        self.begin, self.end, self.close = receiver.begin, receiver.end, receiver.close
        self.whole = whole
        self.taken = 0

    def deliver(self, hdr: Header, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int) -> int:
        if not self.whole:
            return pos
        stop = self.receiver.deliver(hdr, raw, buf, view, pos, end)
        self.taken += (stop - pos) // (len(raw) + hdr.payload_length)
        return stop


class Node(LNet):
    """A core with the driver, and memory that peers may reach; it may do something at a certain message."""

    def __init__(self, nid: str, peer: str, whole: bool) -> None:
        loop = asyncio.get_running_loop()
        self.log: list[str] = []
        self.whole = whole
        self.made: list[Counting] = []
        super().__init__(clock=loop.time, cookie=77, wake=lambda: self.soon(loop), report=self.log.append)
        self.params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)  # for `connect`
        self.lnd = TcpLnd(self, loop, self.params, report=self.log.append)
        self.register_lnd(self.lnd)
        us = Nid.parse(nid)
        self.peer_nid = Nid.parse(peer)
        self.add_ni(us.net, us)
        known = self.peers.learn(self.peer_nid)
        assert known is not None
        known.peer.mark(int(PeerFlag.DISCOVERED | PeerFlag.NIDS_UPTODATE))
        (self.ni,) = self.nis.values()
        self.seen: list[tuple[Any, ...]] = []
        self.acked: list[int] = []  # answers that had left when each message was told
        self.fetched = 0
        self.midway: dict[int, Midway] = {}
        self.closed = False
        self.answer = self.memory.md_bind(b"answer", None)
        self.inboxes = [bytearray(200_000), bytearray(1 << 22), bytearray(100), bytearray(5000)]
        options = (OP_PUT | MANAGE_REMOTE, OP_PUT, OP_PUT | MANAGE_REMOTE | TRUNCATE, OP_GET | MANAGE_REMOTE)
        for bits, (memory, option) in enumerate(zip(self.inboxes, options, strict=True)):
            me = self.memory.me_attach(PORTAL, match_bits=bits)
            self.memory.md_attach(me, memory, self.handle, options=option)

    def soon(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(lambda: self.tick(loop.time()))

    def receiver(  # type: ignore[override]
        self, ni: NI, nid: Nid, vouches: Callable[[Nid], bool] | None = None
    ) -> Inbound:
        self.made.append(Counting(super().receiver(ni, nid, vouches), self.whole))
        return self.made[-1]

    @property
    def taken(self) -> int:
        """Messages that were taken whole."""
        return sum(one.taken for one in self.made)

    def handle(self, event: Event) -> None:
        if event.kind is EventKind.GET:  # that its REPLY has left is told some time
            self.fetched += 1
        if event.kind is not EventKind.PUT:
            return
        self.seen.append(told(event))
        self.acked.append(self.ni.stats.sent[0])
        act = self.midway.get(len(self.seen))
        if act is not None:
            act(self)

    def is_over(self) -> bool:
        return bool(self.seen) and self.seen[-1][6] == LAST


def random_frames(chance: Random, us: Nid, foe: Nid) -> bytes:
    """Mostly PUTs, several alike in a row; some odd ones, and what is to be dropped."""
    frames: list[bytes] = []
    for _ in range(60):
        kind = chance.choices(["put", "get", "ack", "noop"], [80, 5, 8, 7])[0]
        hdr = Header(int(MsgType.PUT), us, foe, LNET_PID, LNET_PID, portal=PORTAL)
        if kind == "noop":
            frames.append(pack_frame_header(FrameType.NOOP, 0, 0, KEEPALIVE_COOKIE))
            continue
        if kind == "get":
            hdr.type, hdr.match_bits, hdr.wmd = int(MsgType.GET), 3, bytes(15) + b"\2"
            hdr.length = chance.choice([0, 10, 3000])
            frames.append(lnet_frame(hdr))
            continue
        if kind == "ack":
            hdr = Header(int(MsgType.ACK), us, foe, LNET_PID, LNET_PID, wmd=chance.randbytes(16), length=5)
            frames += [lnet_frame(hdr)] * chance.randint(1, 5)
            continue
        size = chance.choice([0, 1, 64, 64, 64, 900, 5000, 32767, 32768, 70_000])
        hdr.payload_length = size
        hdr.match_bits = chance.choice([0, 0, 0, 1, 1, 2, 7])
        hdr.offset = chance.choice([0, 0, 0, 64, 199_999])
        hdr.portal = chance.choice([PORTAL] * 9 + [PORTAL + 1, 64, 1 << 31])
        hdr.wmd = chance.choice([NO_WMD, bytes((9, *bytes(15))), bytes((9, *bytes(14), 0x40))])
        hdr.src_pid = chance.choice([LNET_PID] * 9 + [LNET_PID + 1])
        for _ in range(chance.randint(1, 1 if size > 5000 else 12)):
            payload = chance.randbytes(size)
            cookie = chance.choice([0] * 30 + [5])
            csum = chance.random() < 0.02
            frame = lnet_frame(hdr, payload, cookie0=cookie)
            if csum:
                frame = lnet_frame(hdr, payload, cookie0=cookie, csum=checksum(payload))
            frames.append(frame)
    hdr = Header(int(MsgType.PUT), us, foe, LNET_PID, LNET_PID, portal=PORTAL, hdr_data=LAST)
    return b"".join([*frames, lnet_frame(hdr)])


async def play(node: Node, raw: RawPeer, data: bytes, chance: Random) -> bytes:
    """Send data in pieces; what comes back until nothing more does."""
    back = bytearray()

    async def listen() -> None:
        with suppress(asyncio.CancelledError):
            while piece := await asyncio.get_running_loop().sock_recv(raw.sock, 65536):
                back.extend(piece)

    listener = asyncio.ensure_future(listen())
    at = 0
    while at < len(data):
        size = chance.choice([1, 30, 100, 5000, 100_000, 300_000])
        await raw.send(data[at : at + size])
        at += size
        await turns(3)
    await until(node.is_over)
    await until(lambda: not node.lnd.queued_messages and not node.stats.msgs_alloc)
    before = -1
    while before != len(back):
        before = len(back)
        await turns(20)
    listener.cancel()
    await asyncio.wait([listener])
    return bytes(back)


@pytest.mark.parametrize("seed", range(8))
async def test_taking_messages_whole_changes_nothing_that_a_peer_or_a_program_sees(
    at: Addresses, seed: int
) -> None:
    outcomes = []
    taken = []
    for whole in (True, False):
        node = Node(at.nid(1), at.nid(2), whole)
        chance = Random(seed)
        raw = await connect(node, at.nid(2))  # type: ignore[arg-type]
        bulk = await connect(node, at.nid(2), ConnType.BULK_OUT)  # type: ignore[arg-type]
        try:
            data = random_frames(chance, Nid.parse(at.nid(1)), Nid.parse(at.nid(2)))
            back = await play(node, raw, data, chance)
            stats, ni = node.stats, node.ni
            counted = (stats.recv_count, stats.recv_length, stats.drop_count, stats.drop_length, stats.drops)
            sent = (stats.send_count, stats.send_length, ni.stats.sent, ni.stats.received, ni.stats.dropped)
            log = sorted(node.log)  # messages of two connections: whose is first is chance
            outcomes.append((node.seen, node.fetched, node.inboxes, back, counted, sent, log))
            taken.append(node.taken)
        finally:
            raw.close()
            bulk.close()
            node.shutdown()
            node.lnd.close()
            await turns()
    fast, single = outcomes
    assert len(fast[0]) == len(single[0])
    for one, other in zip(fast, single, strict=True):
        assert one == other
    assert taken[0] > 20
    assert taken[1] == 0


def frames_of(data: bytes) -> list[bytes]:
    """The frames in what a node sent, in any order: answers to a run leave behind it."""
    found = []
    while data:
        size = FRAME + unpack_header(data[24:FRAME]).payload_length
        found.append(data[:size])
        data = data[size:]
    return sorted(found)


def unlink(node: Node) -> None:
    (me,) = node.memory.portal(PORTAL).entries()[:1]
    node.memory.me_unlink(me)


def attach_before(node: Node) -> None:
    me = node.memory.me_attach(PORTAL, match_bits=0, at_head=True)
    node.memory.md_attach(me, bytearray(99), node.handle, options=OP_PUT | MANAGE_REMOTE, threshold=RUN + 3)


def put(node: Node) -> None:
    node.put(node.answer, node.peer_nid, PORTAL, 1, ack=False)


def fail(node: Node) -> None:
    raise ValueError("mine")


def change_settings(node: Node) -> None:
    node.settings_changed()


async def exchange(at: Addresses, whole: bool, midway: dict[int, Midway]) -> tuple[Node, bytes]:
    """COUNT PUTs in one piece, each to be acknowledged: what the node saw, and what it sent."""
    node = Node(at.nid(1), at.nid(2), whole)
    node.midway = midway
    raw = await connect(node, at.nid(2))  # type: ignore[arg-type]
    try:
        hdr = Header(int(MsgType.PUT), node.ni.nid, node.peer_nid, LNET_PID, LNET_PID, portal=PORTAL)
        hdr.payload_length, hdr.wmd = 64, bytes((9, *bytes(15)))
        await raw.send(b"".join([lnet_frame(hdr, bytes([n % 256]) * 64) for n in range(COUNT)]))
        await until(lambda: node.stats.recv_count + node.stats.drop_count >= COUNT or node.closed)
        await until(lambda: not node.lnd.queued_messages and not node.stats.msgs_alloc)
        return node, await _all_of(raw)
    finally:
        raw.close()
        node.shutdown()
        node.lnd.close()
        await turns()


async def _all_of(raw: RawPeer) -> bytes:
    back = b""
    with suppress(TimeoutError, ConnectionResetError):  # who closes may leave what it has not read
        while True:
            piece = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(raw.sock, 65536), 0.2)
            if not piece:
                break
            back += piece
    return back


async def test_answers_leave_while_the_rest_of_a_read_is_worked_through(at: Addresses) -> None:
    node, back = await exchange(at, True, {})
    assert len(node.seen) == COUNT
    assert len(back) == COUNT * FRAME
    assert max(node.acked) >= RUN
    assert node.taken >= COUNT - 2


@pytest.mark.parametrize("act", [unlink, attach_before, put, fail, change_settings])
async def test_handlers_may_change_anything_within_a_run(at: Addresses, act: Midway) -> None:
    places: dict[int, Midway] = {5: act}
    if act is not unlink:
        places |= dict.fromkeys((RUN, RUN + 1, 2 * RUN + 7, COUNT - 1), act)
    fast, back = await exchange(at, True, places)
    single, back_singly = await exchange(at, False, places)
    assert fast.seen == single.seen
    assert fast.inboxes == single.inboxes
    assert fast.stats.recv_count == single.stats.recv_count
    assert fast.ni.stats.sent == single.ni.stats.sent
    assert frames_of(back) == frames_of(back_singly)
    assert fast.taken > 3


def close(node: Node) -> None:
    node.closed = True
    node.lnd.close()


async def test_a_connection_that_a_handler_closes_is_read_no_further(at: Addresses) -> None:
    node, back = await exchange(at, True, {2 * RUN + 9: close})
    assert len(node.seen) == 2 * RUN + 9
    assert TURNS[FIRST_TURN] // FRAME * FRAME <= len(back) < len(node.seen) * FRAME
