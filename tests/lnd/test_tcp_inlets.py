"""Frames that a peer cuts anywhere, taken by the core's inlets or not: the same events, the same answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from lnd.conftest import Addresses
from lnd.kit import RawPeer, connect, lnet_frame, turns, until
from support.lanes import told
from support.ports import free_port
from ulnet.core.bulk_inlet import BulkInlet
from ulnet.core.event import Event, EventKind
from ulnet.core.instance import LNet
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import PeerFlag
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import NO_WMD, Header, MsgType
from ulnet.wire.socklnd import KEEPALIVE_COOKIE, ConnType, FrameType, checksum, pack_frame_header

PORTAL = 9
LAST = 999  # header data


class Node(LNet):
    """A core with the driver, and memory that peers may reach."""

    def __init__(self, nid: str, peer: str, inlets: bool) -> None:
        loop = asyncio.get_running_loop()
        self.log: list[str] = []
        self.inlets = inlets
        self.made: list[Counting] = []
        super().__init__(clock=loop.time, cookie=77, wake=lambda: self.soon(loop), report=self.log.append)
        self.params = TcpParams(accept="all", accept_port=free_port())  # for `connect`
        self.lnd = TcpLnd(self, loop, self.params, report=self.log.append)
        self.register_lnd(self.lnd)
        us = Nid.parse(nid)
        self.add_ni(us.net, us)
        known = self.peers.learn(Nid.parse(peer))
        assert known is not None
        known.peer.mark(int(PeerFlag.DISCOVERED | PeerFlag.NIDS_UPTODATE))
        self.seen: list[tuple[Any, ...]] = []
        self.fetched = 0
        self.inboxes = [bytearray(200_000), bytearray(1 << 22), bytearray(100), bytearray(5000)]
        options = (OP_PUT | MANAGE_REMOTE, OP_PUT, OP_PUT | MANAGE_REMOTE | TRUNCATE, OP_GET | MANAGE_REMOTE)
        for bits, (memory, option) in enumerate(zip(self.inboxes, options, strict=True)):
            me = self.memory.me_attach(PORTAL, match_bits=bits)
            self.memory.md_attach(me, memory, self.handle, options=option)

    def soon(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(lambda: self.tick(loop.time()))

    def inlet(self, ni: NI, nid: Nid) -> BulkInlet:
        self.made.append(Counting(super().inlet(ni, nid), self.inlets))
        return self.made[-1]  # type: ignore[return-value]

    def handle(self, event: Event) -> None:
        if event.kind is EventKind.GET:  # that its REPLY has left is told some time
            self.fetched += 1
        else:
            self.seen.append((*told(event), bytes(event.data)))

    def is_over(self) -> bool:
        return bool(self.seen) and self.seen[-1][6] == LAST


class Counting:
    """An inlet, or what takes nothing."""

    def __init__(self, inlet: BulkInlet, used: bool) -> None:
        self.inlet = inlet
        self.used = used
        self.taken = self.begun = 0
        self.settle, self.close = inlet.settle, inlet.close

    @property
    def named(self) -> bool:
        return self.inlet.named

    def take(self, hdr: Header, view: memoryview, at: int, name: bytes = b"") -> bool:
        took = self.used and self.inlet.take(hdr, view, at, name)
        self.taken += took
        return took

    def take_run(self, hdr: Header, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int) -> int:
        stop = self.inlet.take_run(hdr, raw, buf, view, pos, end)
        self.taken += (stop - pos) // (len(raw) + hdr.payload_length)
        return stop

    def begin(self, hdr: Header) -> Msg | None:
        msg = self.inlet.begin(hdr) if self.used else None
        self.begun += msg is not None
        return msg

    def end(self, msg: Msg) -> bool:
        return self.inlet.end(msg)


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


@pytest.mark.pure
@pytest.mark.parametrize("seed", range(8))
async def test_inlets_change_nothing_that_a_peer_or_a_program_sees(at: Addresses, seed: int) -> None:
    outcomes = []
    taken = []
    for inlets in (True, False):
        node = Node(at.nid(1), at.nid(2), inlets)
        chance = Random(seed)
        raw = await connect(node, at.nid(2))  # type: ignore[arg-type]
        bulk = await connect(node, at.nid(2), ConnType.BULK_OUT)  # type: ignore[arg-type]
        try:
            data = random_frames(chance, Nid.parse(at.nid(1)), Nid.parse(at.nid(2)))
            back = await play(node, raw, data, chance)
            (ni,) = node.nis.values()
            stats = node.stats
            counted = (stats.recv_count, stats.recv_length, stats.drop_count, stats.drop_length, stats.drops)
            sent = (stats.send_count, stats.send_length, ni.stats.sent, ni.stats.received, ni.stats.dropped)
            outcomes.append((node.seen, node.fetched, node.inboxes, back, counted, sent, node.log))
            taken.append((sum(one.taken for one in node.made), sum(one.begun for one in node.made)))
        finally:
            raw.close()
            bulk.close()
            node.shutdown()
            node.lnd.close()
            await turns()
    fast, general = outcomes
    assert len(fast[0]) == len(general[0])
    for one, other in zip(fast, general, strict=True):
        assert one == other
    assert taken[0][0] > 20
    assert taken[0][1] > 1
    assert taken[1] == (0, 0)
