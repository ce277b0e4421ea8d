"""The far side of the benchmark of many peers: to a node it is peers with two rails, and it answers right."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import crowd
from crowd_far import SIZE, nids_of
from crowd_hub import OWN
from players import HERE
from runner import environment_of
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.lnet import NO_WMD, Header, MsgType, pack_header, unpack_header
from ulnet.wire.socklnd import ConnType, FrameType, Hello, pack_frame_header

COUNT = 300  # so that the last ones differ in both bytes of their addresses
FIRST, LAST = nids_of(0), nids_of(COUNT - 1)
US, THEM = Nid.parse(OWN[0]), Nid.parse(LAST[0])
FRAME = pack_frame_header(FrameType.LNET)


@contextmanager
def far_side() -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = crowd.free_port()
    words = [sys.executable, str(HERE / "crowd_far.py"), str(COUNT), str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env=environment_of("pure"), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as far:
        try:
            assert far.stdout is not None
            assert far.stdout.readline() == "ready\n"
            yield far, port
        finally:
            far.kill()


@contextmanager
def connected(port: int, ctype: ConnType) -> Iterator[socket.socket]:
    with socket.create_connection((THEM.ip, port), timeout=20) as sock:
        opening = ConnRequest.to(THEM).pack() + Hello(3, US, THEM, 12345, 0, 7, 0, ctype).pack()
        sock.sendall(opening[:30])
        sock.sendall(opening[30:])
        answer = Hello.unpack(sock.recv(56, socket.MSG_WAITALL))
        assert (answer.src_nid, answer.dst_nid, answer.ctype) == (THEM, US, ctype.inverted())
        yield sock


def put(size: int, number: int, ack: bool = True) -> bytes:
    wmd = number.to_bytes(16, "big") if ack else NO_WMD
    header = Header(MsgType.PUT, THEM, US, 12345, 77, size, wmd, number, portal=30)
    return FRAME + pack_header(header, False) + bytes(size)


def ack(size: int, number: int) -> bytes:
    header = Header(
        MsgType.ACK, US, THEM, 77, 12345, 0, number.to_bytes(16, "big"), match_bits=number, length=size
    )
    return FRAME + pack_header(header, False)


def test_a_node_finds_peers_of_two_rails_and_each_put_is_acknowledged_once() -> None:
    async def talk(port: int) -> None:
        params = TcpParams(accept="all", accept_port=port, reserved_ports=False)
        async with Node(tcp=params) as node:
            for nid in OWN:
                node.add_ni(nid)
            for nids in (FIRST, LAST):
                peer = await node.discover(nids[0], timeout=20)
                assert (str(peer.primary_nid), [str(nid) for nid in peer.nids()]) == (nids[0], list(nids))
            told: list[Event] = []
            md = node.core.memory.md_bind(bytes(SIZE), told.append)
            for _ in range(50):
                for nid in (*FIRST, *LAST):
                    node.core.put(md, Nid.parse(nid), 30, 1)
            for own, nid in zip(OWN, LAST, strict=True):
                for size in (64, SIZE):
                    await node.put(nid, 30, 1, bytes(size), source=own, timeout=20)
            async with asyncio.timeout(20):
                while sum(event.kind is EventKind.ACK for event in told) < 200:
                    await asyncio.sleep(0.01)
            acks = [event for event in told if event.kind is EventKind.ACK]
            assert {(event.status, event.mlength) for event in acks} == {(0, SIZE)}
            assert len(acks) == 200

    with far_side() as (_, port):
        asyncio.run(talk(port))


def test_acks_come_once_the_payload_has_on_the_connection_for_them() -> None:
    with far_side() as (_, port), connected(port, ConnType.BULK_OUT) as bulk:
        data = put(SIZE, 1)
        for first, last in ((0, 23), (23, 90), (90, 5000), (5000, len(data))):
            bulk.sendall(data[first:last])
        assert bulk.recv(96, socket.MSG_WAITALL) == ack(SIZE, 1)  # there is no other yet
        with connected(port, ConnType.CONTROL) as control:
            control.sendall(pack_frame_header(FrameType.NOOP, cookie1=1) + put(64, 2) + put(0, 3)[:30])
            assert control.recv(96, socket.MSG_WAITALL) == ack(64, 2)
            bulk.sendall(put(SIZE, 4, ack=False) + put(2000, 5)[:-1])
            control.sendall(put(0, 3)[30:])
            assert control.recv(96, socket.MSG_WAITALL) == ack(0, 3)
            bulk.sendall(bytes(1))
            assert control.recv(96, socket.MSG_WAITALL) == ack(2000, 5)
            control.shutdown(socket.SHUT_WR)
            assert not control.recv(1)
        bulk.sendall(put(64, 6) * 3)
        assert bulk.recv(3 * 96, socket.MSG_WAITALL) == ack(64, 6) * 3


def test_answers_wait_for_who_does_not_read_them() -> None:
    count = 200_000
    with far_side() as (_, port), connected(port, ConnType.CONTROL) as control:
        control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        piece = put(0, 1) * (count // 10)
        for _ in range(10):
            control.sendall(piece)
        time.sleep(0.5)  # for what was sent to be read, so that nothing but room makes it send more
        left = count * 96
        while left:
            got = control.recv(min(left, 1 << 16))
            assert got
            left -= len(got)
        control.sendall(put(64, 2))
        answer = control.recv(96, socket.MSG_WAITALL)
        assert unpack_header(answer, 24).length == 64


def test_it_ends_with_who_started_it() -> None:
    with far_side() as (far, _):
        assert far.stdin is not None
        far.stdin.close()
        assert far.wait(20) == 0


@pytest.mark.parametrize(
    "message",
    [
        pack_frame_header(0xC1, cookie0=5) + put(0, 1)[24:],
        FRAME + pack_header(Header(MsgType.ACK, THEM, US), False),
        b"\0" * 96,
    ],
    ids=["cookie", "ack", "noise"],
)
def test_what_no_node_sends_here_is_told(message: bytes) -> None:
    with far_side() as (far, port), connected(port, ConnType.CONTROL) as control:
        control.sendall(message)
        assert far.wait(20) == 1
        assert far.stderr is not None
        assert "ValueError: a " in far.stderr.read()
