"""The same traffic by plain sockets and one epoll: what the kernel's calls alone allow.

`crowd_sockets.py far COUNT PORT` answers each message, `crowd_sockets.py hub COUNT PORT SECONDS FAR` sends
them, FAR being the first process; its answer is a line of JSON with the rates of `crowd_hub.Hub`. Frames are
a header of 72 bytes and a payload, acknowledged by a header; what goes to one peer at a time shares a call,
as in ulnet.
"""

from __future__ import annotations

import itertools
import json
import math
import resource
import select
import socket
import struct
import sys
import time
from dataclasses import asdict

from crowd_hub import FEW, SHAPES, TURNS, WINDOW, Hub
from crowd_meter import WARM, Figures, Meter
from crowd_queue import Queue
from work import HEADER_BYTES

FAR = "127.2.255.1"
LENGTH = struct.Struct("<I")  # of the payload: the first bytes of a header
ROOM = memoryview(bytearray(1 << 18))


class Peer(Queue):
    """One connection, and what of a message is still to come."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._header = b""  # a part of one
        self._missing = 0  # bytes of payload

    def receive(self) -> int:
        """How many messages have come whole; -1 if the connection was closed."""
        header = self._header
        kept = len(header)
        ROOM[:kept] = header
        got = self.sock.recv_into(ROOM[kept:])
        if not got:
            return -1
        end, at, count = kept + got, 0, 0
        if self._missing:
            at = min(self._missing, end)
            self._missing -= at
            count = not self._missing
        while end - at >= HEADER_BYTES:
            length = LENGTH.unpack_from(ROOM, at)[0]
            at += HEADER_BYTES + length
            count += at <= end
        if at > end:
            self._missing += at - end
            at = end
        self._header = bytes(ROOM[at:end])
        return count


def serve(port: int) -> None:
    """Take connections, and answer each message; forever."""
    listener = socket.create_server((FAR, port), backlog=4096)
    peers: dict[int, Peer] = {}
    answer = bytes(HEADER_BYTES)
    print("ready", flush=True)
    with select.epoll() as poll:
        poll.register(listener, select.EPOLLIN)
        while True:
            for number, _ in poll.poll(-1, WINDOW):
                peer = peers.get(number)
                if peer is None:
                    peer = Peer(listener.accept()[0])
                    peers[peer.sock.fileno()] = peer
                    poll.register(peer.sock, select.EPOLLIN)
                    continue
                count = peer.receive()
                if count < 0:
                    peers.pop(number).sock.close()
                elif count:
                    peer.queue.append(answer * count)
                if peer.queue:
                    peer.flush(poll)


def connect(poll: select.epoll, count: int, port: int) -> list[Peer]:
    """So many connections, watched by poll."""
    peers = [Peer(socket.create_connection((FAR, port))) for _ in range(count)]
    for peer in peers:
        poll.register(peer.sock, select.EPOLLIN)
    return peers


def frame_of(size: int) -> bytes:
    """A message with so much payload."""
    return LENGTH.pack(size) + bytes(HEADER_BYTES - LENGTH.size + size)


def traffic(
    poll: select.epoll, peers: list[Peer], frame: bytes, burst: int, seconds: float, far: int
) -> Figures:
    """For so long, once it is warm."""
    by_number = {peer.sock.fileno(): peer for peer in peers}
    turn = itertools.cycle([peer for peer in peers for _ in range(burst)])
    clock = time.perf_counter
    acked, under_way, until = 0, WINDOW, math.inf
    warm = max(WARM * len(peers) * burst, WINDOW)
    meter = None
    dirty: dict[Peer, None] = {}
    for _ in range(WINDOW):
        peer = next(turn)
        peer.queue.append(frame)
        dirty[peer] = None
    while under_way:
        for peer in dirty:
            peer.flush(poll)
        dirty.clear()
        for number, _ in poll.poll(-1, WINDOW):
            peer = by_number[number]
            if peer.full:
                dirty[peer] = None
            try:
                count = peer.receive()
            except BlockingIOError:
                continue
            assert count >= 0
            acked += count
            if meter is None and acked >= warm:
                acked, meter = 0, Meter(far)
                until = clock() + seconds
            for _ in range(count):
                if clock() < until:
                    peer = next(turn)
                    peer.queue.append(frame)
                    dirty[peer] = None
                else:
                    under_way -= 1
    assert meter is not None
    return meter.stop(acked)


def drive(count: int, port: int, seconds: float, far: int) -> None:
    """Every shape of traffic, to one peer and to all."""
    hub = Hub(count)
    with select.epoll() as poll:
        peers = connect(poll, count, port)
        for _ in range(TURNS):
            for shape, (size, burst) in SHAPES.items():
                frame = frame_of(size)
                for found, few in ((hub.one, 1), (hub.few, FEW), (hub.all, count)):
                    figures = traffic(poll, peers[:few], frame, burst, seconds, far)
                    found.setdefault(shape, []).append(figures)
    print(json.dumps(asdict(hub)))


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if sys.argv[1] == "far":
        serve(int(sys.argv[3]))
    drive(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
