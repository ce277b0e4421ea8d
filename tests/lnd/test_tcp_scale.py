"""10,000 connections of 1,000 peers on one node."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lnd.conftest import Addresses
from lnd.kit import Side
from ulnet.nid import Nid
from ulnet.wire.socklnd import ConnType

PEERS = 1000
EACH = [ConnType.CONTROL, *[ConnType.BULK_IN] * 5, *[ConnType.BULK_OUT] * 4]
CONNECTIONS = PEERS * len(EACH)
BYTES_PER_CONNECTION = 6000  # about 2,500 today, with the loop's own part

# The peers live in another process: their descriptors and memory are not the node's.
CROWD = """
import socket, sys
from ulnet.nid import Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.socklnd import Hello
net, port, peers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
kinds = [int(kind) for kind in sys.argv[4].split(",")]
us = Nid.parse(f"{net}.255.1@tcp")
socks = []
for number in range(peers):
    nid = Nid.parse(f"{net}.{number // 250}.{number % 250 + 1}@tcp")
    for kind in kinds:
        sock = socket.create_connection((us.ip, port), source_address=(nid.ip, 0))
        sock.sendall(ConnRequest(1, us).pack() + Hello(3, nid, us, 12345, 0, 7, 0, kind).pack())
        socks.append(sock)
for sock in socks:
    answer = sock.recv(56, socket.MSG_WAITALL)
    assert len(answer) == 56 and Hello.unpack(answer).ctype >= 0
print("up", flush=True)
last = socks[-len(kinds)]
frame = last.recv(24 + 72 + 5, socket.MSG_WAITALL)
assert frame[-5:] == b"hello"
print("heard", flush=True)
sys.stdin.read()
"""


def resident() -> int:
    """Bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    """Room for that many open files, also in child processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(count, hard)))
        except (ValueError, OSError):
            pytest.skip(f"needs {count} open files; the limit here is {hard}: raise it with ulimit -n")
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_ten_thousand_idle_connections(make: Callable[..., Side], at: Addresses) -> None:
    with many_descriptors(CONNECTIONS + 200):
        side = make(
            at.nid(1, net=255), tunables={"conns_per_peer": 5}, accept_timeout=120, sweep_interval=0.1
        )
        before = resident()
        net = at.ip(0).removesuffix(".0.0")
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CROWD, net, str(side.params.accept_port), str(PEERS)),
            ",".join(str(int(kind)) for kind in EACH),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert child.stdin is not None and child.stdout is not None
            assert await child.stdout.readline() == b"up\n"
            assert side.lnd.open_connections == CONNECTIONS
            assert len(side.state().peers) == PEERS
            each = (resident() - before) / CONNECTIONS
            assert each < BYTES_PER_CONNECTION, f"{each:.0f} bytes for each connection"
            print(f"{each:.0f} bytes of user memory for each connection")
            await asyncio.sleep(0.5)  # some sweeps
            last = Nid.parse(f"{net}.{(PEERS - 1) // 250}.{(PEERS - 1) % 250 + 1}@tcp")
            side.put(last, b"hello")
            assert await child.stdout.readline() == b"heard\n"
            child.stdin.close()
            assert await child.wait() == 0
            while side.state().peers:
                await asyncio.sleep(0.01)
            assert side.lnd.open_connections == 0
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
