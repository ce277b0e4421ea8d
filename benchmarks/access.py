"""What access lists cost: 64 bytes and 1 MiB over plain connections, at a node with many rules and with none.

Two processes on loopback; the one that receives changes its lists between runs, so that both kinds of run
have the same connections and the same memory, each right behind the other. All messages are acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from players import COMPILED, HERE, builds

PORT = 9978
NIDS = ("127.71.0.1@tcp", "127.71.0.2@tcp")  # who sends, who receives
PORTAL = 30
RULES = 1000  # of each list
WORKS = {  # bytes, messages, those under way, whether each has match bits of its own
    "64 B": (64, 100_000, 256, False),
    "64 B, no two alike": (64, 15_000, 256, True),
    "1 MiB": (1 << 20, 1000, 8, False),
}
TITLES = {"pure": "ulnet", "compiled": "ulnet, compiled"}
HEADS = [
    "",
    "thousand/s, no rules",
    f"{2 * RULES:,} rules",
    "rate with rules, of that without",
    "a quarter–three quarters",
    "CPU time with rules, of that without",
]
HOW = (
    "Two processes over loopback, plain connections, each message acknowledged. The receiving node has no "
    f"rules and {2 * RULES:,} in turns: {RULES:,} that allow (ranges and NIDs, the sender's among them, to "
    f"connect and on the portal that is used) and {RULES:,} that deny others. “No two alike”: each message "
    "has match bits of its own, and is judged by itself. Each ratio is of two runs one behind the other, "
    "each after a fiftieth as many messages that are not counted; medians of all. CPU time is that of "
    "both processes."
)

Tell = Callable[[str], None]


@dataclass(slots=True)
class Pair:
    """Messages a second, and CPU seconds of both ends for one, without rules and with them."""

    rates: tuple[float, float]
    cpu: tuple[float, float]


@dataclass(slots=True)
class Times:
    """Of each build and work."""

    pairs: dict[str, dict[str, list[Pair]]] = field(default_factory=dict)


def rules() -> dict[str, list[str]]:
    """Both lists."""
    half = RULES // 2
    some = [f"10.{at >> 8}.{at & 255}" for at in range(half)]
    allow = [f"{one}.[1-8]@tcp" for one in some[: half - 1]] + ["127.71.0.*@tcp"]
    allow += [f"portal{PORTAL}={one}.9@tcp" for one in some[: half - 1]] + [f"portal*={NIDS[0]}"]
    deny = [f"{one}.[9-200]@tcp" for one in some] + [f"portal[4-40]={one}.0/25@tcp" for one in some]
    return {"allow": allow, "deny": deny}


def measure(rounds: int, quick: bool, tell: Tell) -> Times:
    """All works on all builds, each in turn without and with rules, `rounds` times."""
    times = Times()
    for build in builds():
        found = times.pairs.setdefault(build, {})
        for work, (size, count, window, unlike) in WORKS.items():
            tell(f"access lists, {TITLES[build]}: {work}")
            found[work] = _run(build, size, count // (10 if quick else 1), window, unlike, rounds)
    return times


class _End:
    """One of the two processes: says what a run took, for each line that it gets."""

    def __init__(self, build: str, *words: str) -> None:
        place = COMPILED if build == "compiled" else HERE.parent / "src"
        self._process = subprocess.Popen(
            [sys.executable, __file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(place)},
        )
        self.hear()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> list[float]:
        assert self._process.stdout is not None
        found: list[float] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _run(build: str, size: int, count: int, window: int, unlike: bool, rounds: int) -> list[Pair]:
    receiver = _End(build, "receive", str(size))
    sender = _End(build, "send", str(size), str(window), *(["--bits"] if unlike else []))
    try:
        pairs = []
        _once(receiver, sender, count, False)  # warm up
        for number in range(rounds):
            runs = {
                many: _once(receiver, sender, count, many)
                for many in (False, True)[:: -1 if number % 2 else 1]
            }
            (rate, cpu), (listed, listed_cpu) = runs[False], runs[True]
            pairs.append(Pair((rate, listed), (cpu, listed_cpu)))
        return pairs
    finally:
        sender.end()
        receiver.end()


def _once(receiver: _End, sender: _End, count: int, many: bool) -> tuple[float, float]:
    receiver.say("many" if many else "none")
    receiver.hear()
    sender.say(str(max(count // 50, 1)))  # what a change of lists costs once is not of each message
    sender.hear()
    receiver.say("")
    (before,) = receiver.hear()
    sender.say(str(count))
    seconds, sent = sender.hear()
    receiver.say("")
    (after,) = receiver.hear()
    return count / seconds, (after - before + sent) / count


# The two ends ----------------------------------------------------------------------------------------------


def _tell(*numbers: float) -> None:
    print(json.dumps(numbers), flush=True)


async def _receive(size: int) -> None:
    from ulnet import Node
    from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
    from ulnet.lnd.tcp import TcpParams

    loop = asyncio.get_running_loop()
    async with Node(tcp=TcpParams(accept_port=PORT)) as node:
        node.add_ni(NIDS[1])
        options = OP_PUT | TRUNCATE | MANAGE_REMOTE
        node.attach(
            PORTAL, 0, bytearray(size), ignore_bits=(1 << 64) - 1, options=options, handler=lambda event: None
        )
        lists = rules()
        _tell(0)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if line.strip():
                node.set_access(**(lists if line == "many\n" else {}))
            _tell(time.process_time())


async def _send(size: int, window: int, unlike: bool) -> None:
    from ulnet import Event, Node
    from ulnet.core.event import EventKind
    from ulnet.core.md import INFINITE
    from ulnet.lnd.tcp import TcpParams
    from ulnet.nid import Nid

    loop = asyncio.get_running_loop()
    async with Node(tcp=TcpParams(accept_port=PORT)) as node:
        node.add_ni(NIDS[0])
        core, target = node.core, Nid.parse(NIDS[1])
        left = out = bits = 0
        done = asyncio.Event()

        def acked(event: Event) -> None:
            nonlocal out
            if event.status:
                raise RuntimeError(f"{event.kind.name}: {event.status}")
            if event.kind is not EventKind.ACK:
                return
            out -= 1
            if left:
                send()
            elif not out:
                done.set()

        def send() -> None:
            nonlocal left, out, bits
            left -= 1
            out += 1
            bits += unlike
            core.put(md, target, PORTAL, bits)

        md = core.memory.md_bind(bytes(size), acked, threshold=INFINITE)
        _tell(0)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            left = int(line)
            done.clear()
            cpu, began = time.process_time(), time.perf_counter()
            core.cork()
            for _ in range(min(window, left)):
                send()
            core.uncork()
            await done.wait()
            _tell(time.perf_counter() - began, time.process_time() - cpu)


# What is shown ---------------------------------------------------------------------------------------------


def cells(times: Times) -> list[list[str]]:
    """A row for each work of each build."""
    table = []
    for build, works in times.pairs.items():
        for work, pairs in works.items():
            ratios = sorted(pair.rates[1] / pair.rates[0] for pair in pairs)
            cpu = statistics.median(pair.cpu[1] / pair.cpu[0] for pair in pairs)
            last = len(ratios) - 1
            table.append(
                [
                    f"{TITLES[build]}, {work}",
                    *(f"{statistics.median(pair.rates[at] for pair in pairs) / 1000:.4g}" for at in (0, 1)),
                    f"{statistics.median(ratios):.3f}",
                    f"{ratios[last // 4]:.3f}–{ratios[last - last // 4]:.3f}",
                    f"{cpu:.3f}",
                ]
            )
    return table


def figures(times: Times) -> dict[str, float]:
    """Ratios for the aims."""
    return {
        f"{work}, {build}": statistics.median(pair.rates[1] / pair.rates[0] for pair in pairs)
        for build, works in times.pairs.items()
        for work, pairs in works.items()
    }


def to_dict(times: Times) -> dict[str, Any]:
    """All runs."""
    return {
        build: {work: [[*pair.rates, *pair.cpu] for pair in pairs] for work, pairs in works.items()}
        for build, works in times.pairs.items()
    }


def main() -> None:
    """One end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("send", "receive"))
    parser.add_argument("size", type=int)
    parser.add_argument("window", type=int, nargs="?", default=1)
    parser.add_argument("--bits", action="store_true", help="each message has match bits of its own")
    options = parser.parse_args()
    from ulnet import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if options.role == "send":
            runner.run(_send(options.size, options.window, options.bits))
        else:
            runner.run(_receive(options.size))


if __name__ == "__main__":
    main()
