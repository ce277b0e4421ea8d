"""A file that is pushed to a client, its pages mapped or read into memory: `python benchmarks/files.py`.

Beside them what the system does at most between two processes: `sendfile`, and `send` of mapped pages. Server
and client are two processes on loopback; each way is taken in turn, and the median told.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ulnet import Node
from ulnet.lnd.tcp import TcpParams
from ulnet.rpc import Call, Client, Server, Service

SIZE = 256 << 20
ROUNDS = 7
PARAMS = TcpParams(accept="all", accept_port=19881, reserved_ports=False)
HERE, THERE = "127.0.6.1@tcp", "127.0.6.2@tcp"
STOP = b"."


@contextmanager
def mapped(name: str) -> Iterator[memoryview]:
    """The pages of a file."""
    with open(name, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        view = memoryview(pages)
        yield view
        view.release()


def pieces(name: str) -> Iterator[memoryview]:
    """What is in a file, each piece in the same memory."""
    memory = bytearray(16 << 20)
    with open(name, "rb") as file:
        while count := file.readinto(memory):
            yield memoryview(memory)[:count]


def service() -> Service:
    """Ways to push a file."""
    service = Service("files")

    @service.method("mmap")
    async def push_mapped(call: Call, name: str) -> None:
        with mapped(name) as view:
            await call.push(view)

    @service.method("read")
    async def push_whole(call: Call, name: str) -> None:
        await call.push(read(name))

    @service.method("read by pieces")
    async def push_pieces(call: Call, name: str) -> None:
        for piece in pieces(name):
            await call.push(piece)

    return service


def read(name: str) -> bytes:
    """All that is in a file."""
    return Path(name).read_bytes()


async def serve(ready: Any) -> None:
    """The server's process."""
    async with Node(tcp=PARAMS) as node:
        node.add_ni(HERE)
        async with Server(service(), node):
            ready.set()
            await asyncio.Event().wait()


def send_raw(port: int, name: str) -> None:
    """The other process for what the system does."""
    with socket.create_connection(("127.0.0.1", port)) as sock, open(name, "rb") as file:
        while (way := sock.recv(1)) != STOP and way:
            if way == b"s":
                at = 0
                while at < SIZE:
                    at += os.sendfile(sock.fileno(), file.fileno(), at, SIZE - at)
            else:
                with mapped(name) as pages:
                    sock.sendall(pages)


def receive_raw(sock: socket.socket, way: bytes, into: memoryview) -> None:
    """All of the file by that way."""
    sock.sendall(way)
    at = 0
    while at < SIZE:
        at += sock.recv_into(into[at : at + (1 << 20)])


async def main() -> None:
    """Measure, and print a table."""
    spawn = get_context("spawn")
    into = bytearray(SIZE)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file, socket.create_server(("127.0.0.1", 0)) as hub:
        file.write(os.urandom(1 << 20) * (SIZE >> 20))
        file.flush()
        ready = spawn.Event()
        processes = [
            spawn.Process(target=run_server, args=(ready,), daemon=True),
            spawn.Process(target=send_raw, args=(hub.getsockname()[1], file.name), daemon=True),
        ]
        for process in processes:
            process.start()
        ready.wait()
        raw, _ = hub.accept()
        async with Node(tcp=PARAMS) as node:
            node.add_ni(THERE)
            async with Client(node, HERE, "files") as client:

                def fetched(way: str) -> Callable[[], Awaitable[object]]:
                    return lambda: client.call(way, file.name, into=into, timeout=120)

                def sent(way: bytes) -> Callable[[], Awaitable[object]]:
                    return lambda: asyncio.to_thread(receive_raw, raw, way, memoryview(into))

                ways = {way: fetched(way) for way in ("mmap", "read", "read by pieces")}
                ways |= {"sendfile alone": sent(b"s"), "send of mapped pages alone": sent(b"m")}
                took: dict[str, list[float]] = {way: [] for way in ways}
                for _ in range(ROUNDS):
                    for way, fetch in ways.items():
                        began = time.perf_counter()
                        await fetch()
                        took[way].append(time.perf_counter() - began)
        raw.sendall(STOP)
        raw.close()
        processes[0].terminate()
        for process in processes:
            process.join()
    for way, times in took.items():
        print(f"{way:28} {SIZE / statistics.median(times) / 1e6:7.0f} MB/s")


def run_server(ready: Any) -> None:
    """In its own process."""
    asyncio.run(serve(ready))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
