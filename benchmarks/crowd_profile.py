"""Where the time goes with many peers: a profile (docs/design/measured.md), in Markdown.

`crowd_profile.py` tells CPU time in the program and in the kernel, by the number of peers. `crowd_profile.py
lines` tells how many instructions a message takes, how often the first caches miss, and how many lines of
memory it gets from beyond the second (by valgrind, which takes minutes), and what such a line costs on this
machine. `crowd_profile.py steps` tells how many of Python's bytecodes it executes, and in which functions.
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
from collections.abc import Iterator, Sequence
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
from crowd_steps import Steps
from players import HERE, builds
from runner import environment_of
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

COUNTS = (1, 4, 64, 250, 1000)
COUNTED = (1, 64, 500)  # under valgrind
STEPPED = (1, 64)  # with what is executed: more peers change nothing
SECONDS = 1.5
COUNTED_SECONDS = 20.0
STEPPED_SECONDS = 3.0
ROWS = 40  # functions
FIRST_CACHES = ("--I1=32768,8,64", "--D1=32768,8,64")  # bytes, ways, bytes a line
TIMED, LINES, STEPS = "timed", "lines", "steps"  # how a node runs


class Found(NamedTuple):
    """Messages to so many peers in turn."""

    peers: int
    messages: int
    figures: Figures
    steps: dict[str, tuple[int, int]]  # bytecodes and calls by function, where they are counted


class Task(NamedTuple):
    """What the process with the node is to do."""

    player: str
    shape: str
    counts: tuple[int, ...]
    seconds: float
    how: str = TIMED


def cpu_table(player: str, shape: str) -> None:
    """One player, by the number of peers."""
    print(f"\n{player}: {shape}, CPU µs a message\n")
    print("| peers in turn | thousand/s | program | kernel | both | other side | TCP segments |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for found in _runs(Task(player, shape, COUNTS, SECONDS)):
        rate, cpu, kernel, far, segments = found.figures
        cells = (
            f"{rate / 1e3:.3g} | {cpu - kernel:.1f} | {kernel:.1f} | {cpu:.1f} | {far:.1f} | {segments:.2f}"
        )
        print(f"| {found.peers:,} | {cells} |", flush=True)


def lines_table(build: str, shape: str, mib: int) -> None:
    """What valgrind counts in the program: the same messages to a few peers and to many."""
    print(f"\n{build}: {shape}, a message in the program\n")
    print(f"| peers in turn | instructions | I1 misses | D1 misses | lines from beyond {mib} MiB |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes"]
        words += [*FIRST_CACHES, f"--LL={mib << 20},16,64", f"--callgrind-out-file={folder}/out"]
        for found in _runs(Task(build, shape, COUNTED, COUNTED_SECONDS, LINES), words):
            counted = _counted(Path(folder), found.peers)
            first = counted["D1mr"] + counted["D1mw"]
            lines = counted["DLmr"] + counted["DLmw"] + counted["ILmr"]
            figures = (counted["Ir"], counted["I1mr"], first, lines)
            cells = " | ".join(f"{figure / found.messages:,.0f}" for figure in figures)
            print(f"| {found.peers} | {cells} |", flush=True)


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


def steps_table(shape: str) -> None:
    """What is executed for a message to one peer, and to one of many; pure Python."""
    one, many = _runs(Task("pure", shape, STEPPED, STEPPED_SECONDS, STEPS))
    print(f"\npure: {shape}, bytecodes a message\n")
    print(f"| function | one peer: calls | bytecodes | {many.peers} peers: calls | bytecodes |")
    print("| --- | ---: | ---: | ---: | ---: |")
    names = dict.fromkeys((*many.steps, *one.steps))
    for name in ("", *names)[:ROWS]:
        print(f"| {f'`{name}`' if name else 'all'} | {_cells(one, name)} | {_cells(many, name)} |")


def _cells(found: Found, name: str) -> str:
    """Of that function, or of all."""
    steps = [found.steps.get(name, (0, 0))] if name else list(found.steps.values())
    bytecodes, calls = sum(count for count, _ in steps), sum(count for _, count in steps)
    return f"{calls / found.messages:.2f} | {bytecodes / found.messages:.0f}"


def _runs(task: Task, before: Sequence[str] = ()) -> Iterator[Found]:
    """Two processes, the node's started by the words `before`."""
    environment = environment_of(task.player)
    port = str(crowd.free_port())
    peers = str(max(task.counts))
    script = "crowd_sockets.py" if task.player == crowd.SOCKETS else "crowd_far.py"
    role = ["far"] if task.player == crowd.SOCKETS else []
    pipe = subprocess.PIPE
    quiet = subprocess.DEVNULL
    far_words = [sys.executable, str(HERE / script), *role, peers, port]
    with subprocess.Popen(
        far_words, env=environment, stdin=pipe, stdout=pipe, stderr=quiet, text=True
    ) as far:
        try:
            assert far.stdout is not None
            far.stdout.readline()
            hub_words = [*before, sys.executable, str(HERE / "crowd_profile.py"), "hub"]
            hub_words += [port, str(far.pid), json.dumps(task)]
            with subprocess.Popen(hub_words, env=environment, stdout=pipe, stderr=quiet, text=True) as hub:
                assert hub.stdout is not None
                for line in hub.stdout:
                    peers_now, messages, figures, steps = json.loads(line)
                    yield Found(peers_now, messages, Figures(*figures), steps)
            if hub.returncode:
                raise RuntimeError(f"the node of {task.player} failed with {peers} peers")
        finally:
            far.kill()


# The process with the node ------------------------------------------------------------------------------


async def _node(port: int, far: int, task: Task) -> None:
    size, burst = SHAPES[task.shape]
    peers = range(max(task.counts))
    async with new_node(port) as node:
        for nid in OWN:
            node.add_ni(nid, tunables=NetTunables(peer_credits=CREDITS))
        for number in peers:
            node.add_peer(*both(number))
        await connect(node, peers)
        for count in task.counts:
            targets = [Nid.parse(nids_of(number)[0]) for number in range(count)]
            traffic = Traffic(node, targets, size, burst, far)
            steps = Steps()
            if task.how == LINES:
                traffic.before, traffic.after = _count_on, partial(_count_off, count)
            elif task.how == STEPS:
                traffic.before, traffic.after = steps.begin, steps.end
            figures = await traffic.run(task.seconds)
            print(json.dumps(Found(count, traffic.measured, figures, steps.found())), flush=True)


def _count_on() -> None:
    _control("--instr=on")


def _count_off(peers: int) -> None:
    _control("--instr=off")
    _control(f"--dump=peers{peers}")
    _control("--zero")


def _control(word: str) -> None:
    subprocess.run(["callgrind_control", word, str(os.getpid())], stdout=subprocess.DEVNULL, check=True)


def _sockets(port: int, far: int, task: Task) -> None:
    size, burst = SHAPES[task.shape]
    with select.epoll() as poll:
        peers = crowd_sockets.connect(poll, max(task.counts), port)
        for count in task.counts:
            frame = crowd_sockets.frame_of(size)
            figures = crowd_sockets.traffic(poll, peers[:count], frame, burst, task.seconds, far)
            print(json.dumps(Found(count, 0, figures, {})), flush=True)


def main() -> None:
    """One of the tables, or the process of which they tell."""
    if sys.argv[1:2] == ["hub"]:
        crowd.peers_possible(crowd.PEERS)
        port, far, task = int(sys.argv[2]), int(sys.argv[3]), Task(*json.loads(sys.argv[4]))
        if task.player == crowd.SOCKETS:
            _sockets(port, far, task)
        else:
            asyncio.run(_node(port, far, task))
        return
    parser = argparse.ArgumentParser(
        description="Where the time goes with many peers.",
        epilog='Example: python benchmarks/crowd_profile.py lines --shape "64 B, 16 at a time" --of pure',
    )
    parser.add_argument(
        "table",
        nargs="?",
        choices=("cpu", "lines", "steps"),
        default="cpu",
        help="CPU time by the number of peers; instructions and lines of memory (valgrind, minutes); "
        "or bytecodes by function",
    )
    players = (*builds(), crowd.SOCKETS)
    parser.add_argument(
        "--shape",
        choices=tuple(SHAPES),
        default="64 B",
        metavar="SHAPE",
        help=f"of the traffic: {'; '.join(SHAPES)} (default: %(default)s)",
    )
    parser.add_argument(
        "--of", choices=players, help="one build of ulnet, or plain sockets; default: all, or the last"
    )
    parser.add_argument(
        "--cache", type=int, default=1, metavar="MIB", help="the CPU's second one (default: %(default)s)"
    )
    words = parser.parse_args()
    crowd.peers_possible(crowd.PEERS)
    if words.table == "steps":
        steps_table(words.shape)
    elif words.table == "lines":
        lines_table(words.of or builds()[-1], words.shape, words.cache)
        latency_table()
    else:
        private_net.enter()
        for player in (words.of,) if words.of else players:
            cpu_table(player, words.shape)


if __name__ == "__main__":
    main()
