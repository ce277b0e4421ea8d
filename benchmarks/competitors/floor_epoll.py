"""One Python epoll around `recv` and `send`, for round trips only: what a loop cannot do without."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

from competitors.sockets import accepted, connected
from work import HEADER_BYTES, Measured, Meter, Work

ROOM = memoryview(bytearray(1 << 18))
WAIT = 0.02  # seconds; a node has deadlines as well


def serve(work: Work, announce: Callable[[str], None]) -> Measured:
    """Answer each frame."""
    with accepted(announce) as connection, select.epoll() as epoll:
        epoll.register(connection.fileno(), select.EPOLLIN)
        echo(connection, epoll, work, work.warmup)
        meter = Meter()
        connection.sendall(bytes(HEADER_BYTES))
        echo(connection, epoll, work, work.count)
        connection.sendall(bytes(HEADER_BYTES))
        return meter.stop()


def drive(work: Work, address: str) -> Measured:
    """Send a frame, wait for the answer, and so on."""
    with connected(address) as connection, select.epoll() as epoll:
        epoll.register(connection.fileno(), select.EPOLLIN)
        ask(connection, epoll, work, work.warmup)
        receive(connection, epoll, HEADER_BYTES)
        meter = Meter()
        latencies = ask(connection, epoll, work, work.count)
        receive(connection, epoll, HEADER_BYTES)
        return meter.stop(latencies)


def receive(connection: socket.socket, epoll: select.epoll, most: int) -> None:
    """Wait for what comes next, and take it."""
    while not epoll.poll(WAIT, 8):
        pass
    connection.recv_into(ROOM, most)


def echo(connection: socket.socket, epoll: select.epoll, work: Work, count: int) -> None:
    """Answer that many frames."""
    frame = bytes(HEADER_BYTES + work.size)
    for _ in range(count):
        receive(connection, epoll, len(ROOM))
        connection.send(frame)


def ask(connection: socket.socket, epoll: select.epoll, work: Work, count: int) -> list[int]:
    """That many round trips."""
    frame = bytes(HEADER_BYTES + work.size)
    clock = time.perf_counter_ns
    latencies = []
    for _ in range(count):
        began = clock()
        connection.send(frame)
        receive(connection, epoll, len(frame))
        latencies.append(clock() - began)
    return latencies
