"""A long read of messages that are alike: answers leave meanwhile, and handlers may change things."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from lnd.conftest import Addresses
from lnd.kit import RawPeer, connect, lnet_frame, turns, until
from lnd.test_tcp_inlets import PORTAL, Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.core.runs import RUN
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import Header, MsgType, unpack_header

pytestmark = pytest.mark.pure
COUNT = 3 * RUN + 8
FRAME = 96  # of an ACK
Midway = Callable[["Host"], None]


class Host(Node):
    """A node that does something at a certain message."""

    def __init__(self, nid: str, peer: str, inlets: bool) -> None:
        super().__init__(nid, peer, inlets)
        self.peer_nid = Nid.parse(peer)
        self.midway: dict[int, Midway] = {}
        self.closed = False
        self.acked: list[int] = []  # answers that had left when each message was told
        (self.ni,) = self.nis.values()
        self.answer = self.memory.md_bind(b"answer", None)

    def handle(self, event: Event) -> None:
        if event.kind is not EventKind.PUT:
            return
        super().handle(event)
        self.acked.append(self.ni.stats.sent[0])
        act = self.midway.get(len(self.seen))
        if act is not None:
            act(self)


def unlink(host: Host) -> None:
    (me,) = host.memory.portal(PORTAL).entries()[:1]
    host.memory.me_unlink(me)


def attach_before(host: Host) -> None:
    me = host.memory.me_attach(PORTAL, match_bits=0, at_head=True)
    host.memory.md_attach(me, bytearray(99), host.handle, options=OP_PUT | MANAGE_REMOTE, threshold=RUN + 3)


def put(host: Host) -> None:
    host.put(host.answer, host.peer_nid, PORTAL, 1, ack=False)


def fail(host: Host) -> None:
    raise ValueError("mine")


def change_settings(host: Host) -> None:
    host.settings_changed()


async def exchange(at: Addresses, inlets: bool, midway: dict[int, Midway]) -> tuple[Host, bytes]:
    """COUNT PUTs in one piece, each to be acknowledged: what the node saw, and what it sent."""
    host = Host(at.nid(1), at.nid(2), inlets)
    host.midway = midway
    raw = await connect(host, at.nid(2))  # type: ignore[arg-type]
    try:
        hdr = Header(int(MsgType.PUT), host.ni.nid, host.peer_nid, LNET_PID, LNET_PID, portal=PORTAL)
        hdr.payload_length, hdr.wmd = 64, bytes((9, *bytes(15)))
        await raw.send(b"".join([lnet_frame(hdr, bytes([n % 256]) * 64) for n in range(COUNT)]))
        await until(lambda: host.stats.recv_count + host.stats.drop_count >= COUNT or host.closed)
        await until(lambda: not host.lnd.queued_messages and not host.stats.msgs_alloc)
        return host, await _all_of(raw)
    finally:
        raw.close()
        host.shutdown()
        host.lnd.close()
        await turns()


async def _all_of(raw: RawPeer) -> bytes:
    back = b""
    with suppress(TimeoutError):
        while True:
            piece = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(raw.sock, 65536), 0.2)
            if not piece:
                break
            back += piece
    return back


async def test_answers_leave_while_the_rest_of_a_read_is_worked_through(at: Addresses) -> None:
    host, back = await exchange(at, True, {})
    assert len(host.seen) == COUNT
    assert len(back) == COUNT * FRAME
    assert max(host.acked) >= RUN
    assert host.made[0].taken >= COUNT - 2


@pytest.mark.parametrize("act", [unlink, attach_before, put, fail, change_settings])
async def test_handlers_may_change_anything_within_a_run(at: Addresses, act: Midway) -> None:
    places: dict[int, Midway] = {5: act}
    if act is not unlink:
        places |= dict.fromkeys((RUN, RUN + 1, 2 * RUN + 7, COUNT - 1), act)
    fast, told = await exchange(at, True, places)
    general, told_generally = await exchange(at, False, places)
    assert fast.seen == general.seen
    assert fast.inboxes == general.inboxes
    assert fast.stats.recv_count == general.stats.recv_count
    assert fast.ni.stats.sent == general.ni.stats.sent
    assert _frames(told) == _frames(told_generally)
    assert fast.made[0].taken > 3


def _frames(data: bytes) -> list[bytes]:
    """In any order: answers to a run leave behind it."""
    found = []
    while data:
        size = FRAME + unpack_header(data[24:FRAME]).payload_length
        found.append(data[:size])
        data = data[size:]
    return sorted(found)


def close(host: Host) -> None:
    host.closed = True
    host.lnd.close()


async def test_a_connection_that_a_handler_closes_is_read_no_further(at: Addresses) -> None:
    host, back = await exchange(at, True, {RUN + 9: close})
    assert len(host.seen) == RUN + 9
    assert RUN * FRAME <= len(back) < len(host.seen) * FRAME
