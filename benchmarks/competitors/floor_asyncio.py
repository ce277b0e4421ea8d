"""asyncio's `add_reader` around `recv` and `send`, for round trips only: what its loop cannot do without."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

from competitors.floor_epoll import ROOM, WAIT
from competitors.sockets import accepted, connected
from work import HEADER_BYTES, Measured, Meter, Work


def serve(work: Work, announce: Callable[[str], None]) -> Measured:
    """Answer each frame."""
    with accepted(announce) as connection:
        return asyncio.run(_serve(connection, work))


def drive(work: Work, address: str) -> Measured:
    """Send a frame, wait for the answer, and so on."""
    with connected(address) as connection:
        return asyncio.run(_drive(connection, work))


async def _serve(connection: socket.socket, work: Work) -> Measured:
    frame = bytes(HEADER_BYTES + work.size)
    _tick(asyncio.get_running_loop())
    await _each(connection, work.warmup, lambda last: connection.send(frame))
    meter = Meter()
    connection.sendall(bytes(HEADER_BYTES))
    await _each(connection, work.count, lambda last: connection.send(frame))
    connection.sendall(bytes(HEADER_BYTES))
    return meter.stop()


async def _drive(connection: socket.socket, work: Work) -> Measured:
    _tick(asyncio.get_running_loop())
    await _ask(connection, work, work.warmup)
    await _each(connection, 1, lambda last: None, HEADER_BYTES)
    meter = Meter()
    latencies = await _ask(connection, work, work.count)
    await _each(connection, 1, lambda last: None, HEADER_BYTES)
    return meter.stop(latencies)


def _tick(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_later(WAIT, _tick, loop)


async def _ask(connection: socket.socket, work: Work, count: int) -> list[int]:
    frame = bytes(HEADER_BYTES + work.size)
    clock = time.perf_counter_ns
    latencies: list[int] = []
    began = clock()

    def answered(last: bool) -> None:
        nonlocal began
        latencies.append(clock() - began)
        if not last:
            began = clock()
            connection.send(frame)

    connection.send(frame)
    await _each(connection, count, answered, len(frame))
    return latencies


async def _each(
    connection: socket.socket, count: int, take: Callable[[bool], object], most: int = len(ROOM)
) -> None:
    """Call `take` for each of that many frames."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    left = count

    def on_readable() -> None:
        nonlocal left
        connection.recv_into(ROOM, most)
        left -= 1
        if not left:
            loop.remove_reader(connection)
            done.set_result(None)
        take(left == 0)

    loop.add_reader(connection, on_readable)
    await done
