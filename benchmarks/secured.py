"""Secured connections beside plain ones, Python's `ssl` on sockets, and C with OpenSSL: 1 MiB and 64 bytes.

All players have the same certificates, TLS 1.3 with the same cipher, two processes on loopback, and as many
messages under way, each of which is acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from players import COMPILED, HERE, builds

BULK, SMALL = 1 << 20, 64
COUNTS = {BULK: 2000, SMALL: 20_000}  # a second or less each: shorter rounds differ by a tenth
WINDOW = 8
PORT = 9977
NIDS = ("127.70.0.1@tcp", "127.70.0.2@tcp")  # who sends, who receives
CIPHER = "TLS_AES_256_GCM_SHA384"
TITLES = {
    "secured compiled": "ulnet secured, compiled",
    "secured pure": "ulnet secured",
    "plain compiled": "ulnet plain, compiled",
    "plain pure": "ulnet plain",
    "ssl": "Python `ssl` sockets",
    "c": "C with OpenSSL",
}
HEADS = ["", "1 MiB: MiB/s", "slowest–fastest", "64 B: thousand/s", "slowest–fastest"]
HOW = (
    f"Two processes over loopback, {WINDOW} messages under way, each acknowledged; TLS 1.3 with {CIPHER} and "
    "certificates on both sides. `ssl` and C are blocking sockets, whose acknowledgement is one byte. "
    "None uses kernel TLS. The ratios are of the fastest rounds."
)

Tell = Callable[[str], None]


@dataclass(slots=True)
class Times:
    """Messages a second of each round, by player and size."""

    rates: dict[str, dict[int, list[float]]] = field(default_factory=dict)


def measure(rounds: int, quick: bool, tell: Tell) -> Times:
    """All players in turn, `rounds` times."""
    times = Times()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _certify(directory)
        players = [f"{kind} {build}" for kind in ("secured", "plain") for build in reversed(builds())] + [
            "ssl"
        ]
        if _build(directory, tell):
            players.append("c")
        for number in range(rounds):
            for size, count in COUNTS.items():
                for player in players:
                    if size == SMALL and player in ("ssl", "c"):
                        continue
                    tell(f"round {number + 1} of {rounds}: {TITLES[player]}, {size} bytes")
                    seconds = _run(player, size, count // (5 if quick else 1), directory)
                    found = times.rates.setdefault(player, {}).setdefault(size, [])
                    found.append(count // (5 if quick else 1) / seconds)
    return times


def _certify(directory: Path) -> None:
    from ulnet.cli.pki import make_authority, make_node

    make_authority(directory / "ca")
    for number, nid in enumerate(NIDS):
        make_node(directory / "ca", directory / str(number), [nid])


def _build(directory: Path, tell: Tell) -> bool:
    """The C program; whether it is there."""
    words = ["cc", "-O2", "-o", str(directory / "tls"), str(HERE / "competitors/tls.c"), "-lssl", "-lcrypto"]
    if not shutil.which("cc"):
        tell("C with OpenSSL: left out, no C compiler")
        return False
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        tell("C with OpenSSL: left out, it needs the headers (Debian: libssl-dev)")
    return not done.returncode


def _run(player: str, size: int, count: int, directory: Path) -> float:
    """Seconds from the first message to the last acknowledgement."""
    kind, _, build = player.partition(" ")
    place = COMPILED if build == "compiled" else HERE.parent / "src"
    environment = {**os.environ, "PYTHONPATH": str(place)}
    words = [str(directory / "tls")] if kind == "c" else [sys.executable, __file__, kind]
    ends = [
        subprocess.Popen(
            [*words, role, str(size), str(count), str(directory / number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for role, number in (("receive", "1"), ("send", "0"))
    ]
    receiver, sender = ends
    try:
        assert receiver.stdout is not None
        assert sender.stdin is not None
        if receiver.stdout.readline() != "ready\n":
            raise RuntimeError(f"{player} does not receive")
        out, _ = sender.communicate("go\n", timeout=120)
        return float(out)
    finally:
        for one in ends:
            one.kill()
            one.communicate()


# The two ends ----------------------------------------------------------------------------------------------


def _context(directory: str, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(f"{directory}/ca.pem")
    context.load_cert_chain(f"{directory}/node.pem", f"{directory}/node.key")
    return context


def _receive_ssl(size: int, directory: str) -> None:
    listener = socket.create_server(("127.0.0.1", PORT))
    print("ready", flush=True)
    sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock = _context(directory, True).wrap_socket(sock, server_side=True)
    view = memoryview(bytearray(size))
    while True:
        at = 0
        while at < size:
            got = sock.recv_into(view[at:])
            if not got:
                return
            at += got
        sock.sendall(b"a")


def _send_ssl(size: int, count: int, directory: str) -> float:
    sock = socket.create_connection(("127.0.0.1", PORT))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock = _context(directory, False).wrap_socket(sock)
    assert sock.cipher()[0] == CIPHER  # type: ignore[index]
    data = bytes(size)
    began, out = time.perf_counter(), 0
    for _ in range(count):
        sock.sendall(data)
        out += 1
        while out >= WINDOW:
            out -= len(sock.recv(out))
    while out:
        out -= len(sock.recv(out))
    return time.perf_counter() - began


async def _ulnet(role: str, size: int, count: int, directory: str, security: int) -> None:
    from ulnet import Node
    from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
    from ulnet.core.tunables import LndTunables
    from ulnet.lnd.tcp import TcpParams

    mine, other = NIDS if role == "send" else reversed(NIDS)
    async with Node(tcp=TcpParams(credentials=directory, accept_port=PORT)) as node:
        node.add_ni(mine, lnd_tunables=LndTunables(security=security))
        if role == "receive":
            options = OP_PUT | TRUNCATE | MANAGE_REMOTE
            node.attach(30, 7, bytearray(BULK), options=options, handler=lambda event: None)
            print("ready", flush=True)
            await asyncio.Event().wait()
        data, left = bytes(size), WINDOW

        async def some() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await node.put(other, 30, 7, data)

        await some()
        left = count
        began = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(WINDOW)))
        print(time.perf_counter() - began)


# What is shown ---------------------------------------------------------------------------------------------


def cells(times: Times) -> list[list[str]]:
    """A row for each player."""
    table = []
    for player, sizes in times.rates.items():
        row = [TITLES[player]]
        for size, unit in ((BULK, 1.0), (SMALL, 1000.0)):
            found = [one / unit for one in sizes.get(size, [])]
            if found:
                row += [f"{statistics.median(found):.4g}", f"{min(found):.4g}–{max(found):.4g}"]
            else:
                row += ["–", "–"]
        table.append(row)
    return table


def figures(times: Times) -> dict[str, float]:
    """Ratios for the aims, each of the fastest rounds: what other programs take is nobody's."""

    def best(player: str, size: int) -> float | None:
        return max(times.rates.get(player, {}).get(size, []), default=None)

    found: dict[str, float] = {}
    for build in builds():
        for name, ours, other, size in (
            ("ssl", f"secured {build}", "ssl", BULK),
            ("c", f"secured {build}", "c", BULK),
            ("plain", f"secured {build}", f"plain {build}", SMALL),
        ):
            rate, reference = best(ours, size), best(other, size)
            if rate is not None and reference is not None:
                found[f"{name}, {build}"] = rate / reference
    return found


def to_dict(times: Times) -> dict[str, Any]:
    """All runs."""
    return {
        player: {str(size): rates for size, rates in sizes.items()} for player, sizes in times.rates.items()
    }


def main() -> None:
    """One end of a run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("secured", "plain", "ssl"))
    parser.add_argument("role", choices=("send", "receive"))
    parser.add_argument("size", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("directory")
    options = parser.parse_args()
    if options.role == "send":
        sys.stdin.readline()
    if options.kind != "ssl":
        from ulnet import new_event_loop

        security = 2 if options.kind == "secured" else 0
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_ulnet(options.role, options.size, options.count, options.directory, security))
    elif options.role == "send":
        print(_send_ssl(options.size, options.count, options.directory))
    else:
        _receive_ssl(options.size, options.directory)


if __name__ == "__main__":
    main()
