"""Where the time goes with many peers: a profile (docs/design/profiles.md), in Markdown.

`crowd_profile.py` tells CPU time in the program and in the kernel, by the number of peers. `crowd_profile.py
lines` tells how many instructions a message takes and how many lines of memory it gets from beyond a cache
of 1 MiB (by valgrind, which takes minutes; best compiled), and what such a line costs on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import crowd
import crowd_sockets
import private_net
from competitors.ulnet_base import CREDITS, new_node
from crowd_far import nids_of
from crowd_hub import OWN, SHAPES, Traffic, both, connect
from crowd_meter import Figures
from players import HERE, builds
from runner import environment_of
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

COUNTS = (1, 64, 250, 1000)
COUNTED = (64, 500)  # under valgrind
SHAPE = "64 B"
SECONDS = 1.5
COUNTED_SECONDS = 20.0
CACHE = "1048576,16,64"  # bytes, ways, bytes a line


class Found(NamedTuple):
    """Messages to so many peers in turn."""

    peers: int
    messages: int
    figures: Figures


def cpu_table(player: str) -> None:
    """One player, by the number of peers."""
    print(f"\n{player}: {SHAPE}, CPU µs a message\n")
    print("| peers in turn | thousand/s | program | kernel | both | other side | TCP segments |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for peers, _, (rate, cpu, kernel, far, segments) in _runs(player, COUNTS, SECONDS, []):
        cells = (
            f"{rate / 1e3:.3g} | {cpu - kernel:.1f} | {kernel:.1f} | {cpu:.1f} | {far:.1f} | {segments:.2f}"
        )
        print(f"| {peers:,} | {cells} |", flush=True)


def lines_table(build: str) -> None:
    """What valgrind counts in the program: the same messages to a few peers and to many."""
    print(f"\n{build}: {SHAPE}, a message in the program\n")
    print("| peers in turn | instructions | lines from beyond 1 MiB |\n| ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes"]
        words += [f"--LL={CACHE}", f"--callgrind-out-file={folder}/out"]
        for peers, messages, _ in _runs(build, COUNTED, COUNTED_SECONDS, words):
            counted = _counted(Path(folder), peers)
            lines = counted["DLmr"] + counted["DLmw"] + counted["ILmr"]
            print(f"| {peers} | {counted['Ir'] / messages:,.0f} | {lines / messages:.0f} |", flush=True)


def _counted(folder: Path, peers: int) -> dict[str, int]:
    """What was counted with so many peers, by valgrind's names."""
    for dump in folder.iterdir():
        text = dump.read_text()
        if f"peers{peers}\n" in text:
            events, totals = (
                re.search(r"^events: (.+)$", text, re.M),
                re.search(r"^totals: (.+)$", text, re.M),
            )
            assert events is not None
            assert totals is not None
            return dict(zip(events[1].split(), map(int, totals[1].split()), strict=False))
    raise RuntimeError("valgrind wrote nothing: is callgrind_control there?")


def latency_table() -> None:
    """What a line costs that was not used for a while."""
    print("\n| memory in use, MiB | ns a line | in pages of 2 MiB |\n| ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "lines")
        subprocess.run(["cc", "-O2", "-o", program, HERE / "cold_lines.c"], check=True)
        done = subprocess.run([program], check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        print(f"| {' | '.join(line.split())} |")


def _runs(player: str, counts: tuple[int, ...], seconds: float, before: list[str]) -> Iterator[Found]:
    """Two processes, the node's started by the words `before`."""
    environment = environment_of(player)
    port = str(crowd.free_port())
    peers = str(max(counts))
    script = "crowd_sockets.py" if player == crowd.SOCKETS else "crowd_far.py"
    role = ["far"] if player == crowd.SOCKETS else []
    pipe = subprocess.PIPE
    quiet = subprocess.DEVNULL
    far_words = [sys.executable, str(HERE / script), *role, peers, port]
    with subprocess.Popen(
        far_words, env=environment, stdin=pipe, stdout=pipe, stderr=quiet, text=True
    ) as far:
        try:
            assert far.stdout is not None
            far.stdout.readline()
            task = json.dumps([player, port, far.pid, counts, seconds, bool(before)])
            hub_words = [*before, sys.executable, str(HERE / "crowd_profile.py"), "hub", task]
            with subprocess.Popen(hub_words, env=environment, stdout=pipe, stderr=quiet, text=True) as hub:
                assert hub.stdout is not None
                for line in hub.stdout:
                    peers_now, messages, figures = json.loads(line)
                    yield Found(peers_now, messages, Figures(*figures))
            if hub.returncode:
                raise RuntimeError(f"the node of {player} failed with {max(counts)} peers")
        finally:
            far.kill()


# The process with the node ------------------------------------------------------------------------------


async def _node(port: int, far: int, counts: list[int], seconds: float, counted: bool) -> None:
    size, burst = SHAPES[SHAPE]
    async with new_node(port) as node:
        for nid in OWN:
            node.add_ni(nid, tunables=NetTunables(peer_credits=CREDITS))
        for number in range(max(counts)):
            node.add_peer(*both(number))
        await connect(node, range(max(counts)))
        for count in counts:
            targets = [Nid.parse(nids_of(number)[0]) for number in range(count)]
            traffic = Traffic(node, targets, size, burst, far)
            if counted:
                traffic.before, traffic.after = _count_on, partial(_count_off, count)
            figures = await traffic.run(seconds)
            print(json.dumps(Found(count, traffic.measured, figures)), flush=True)


def _count_on() -> None:
    _control("--instr=on")


def _count_off(peers: int) -> None:
    _control("--instr=off")
    _control(f"--dump=peers{peers}")
    _control("--zero")


def _control(word: str) -> None:
    subprocess.run(["callgrind_control", word, str(os.getpid())], stdout=subprocess.DEVNULL, check=True)


def _sockets(port: int, far: int, counts: list[int], seconds: float) -> None:
    size, burst = SHAPES[SHAPE]
    with select.epoll() as poll:
        peers = crowd_sockets.connect(poll, max(counts), port)
        for count in counts:
            frame = crowd_sockets.frame_of(size)
            figures = crowd_sockets.traffic(poll, peers[:count], frame, burst, seconds, far)
            print(json.dumps(Found(count, 0, figures)), flush=True)


def main() -> None:
    """One of the tables, or the process of which they tell."""
    if sys.argv[1:2] == ["hub"]:
        crowd.peers_possible(crowd.PEERS)
        player, port, far, counts, seconds, counted = json.loads(sys.argv[2])
        if player == crowd.SOCKETS:
            _sockets(int(port), far, counts, seconds)
        else:
            asyncio.run(_node(int(port), far, counts, seconds, counted))
        return
    parser = argparse.ArgumentParser(
        description="Where the time goes with many peers.",
        epilog="Example: python benchmarks/crowd_profile.py cpu",
    )
    parser.add_argument(
        "table",
        nargs="?",
        choices=("cpu", "lines"),
        default="cpu",
        help="CPU time by the number of peers; or instructions and lines of memory (valgrind, minutes)",
    )
    table = parser.parse_args().table
    crowd.peers_possible(crowd.PEERS)
    if table == "lines":
        lines_table(builds()[-1])
        latency_table()
    else:
        private_net.enter()
        for player in (*builds(), crowd.SOCKETS):
            cpu_table(player)


if __name__ == "__main__":
    main()
