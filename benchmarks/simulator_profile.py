"""What an event of the simulator costs in instructions and cache misses, by number of nodes (valgrind).

Each row is the difference between two runs under cachegrind, one of which has more events. The second cache
is as large as that of a core of most CPUs (1 MiB): what misses it comes from far.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from simulator import make_node, talk
from ulnet.sim import Simulation

NODES = (10, 100, 300)
EVENTS = 6000  # about so many more in the longer run
CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64")
_COUNT = re.compile(r"(I +refs|I1 +misses|D1 +misses|LL +misses): +([\d,]+)")
_ROUND = 15  # events for each node


def run(nodes: int, rounds: int) -> int:
    """The program that is looked at: a cluster whose nodes have met, and so many rounds. Its events."""
    sim = Simulation(1)
    all_nodes = [make_node(sim, number) for number in range(nodes)]
    for _ in range(1 + rounds):
        talk(sim, all_nodes)
    return sim.scheduler.events


def counted(nodes: int, rounds: int) -> list[int]:
    """Its events, instructions and misses, under cachegrind. Raises RuntimeError with its words."""
    words = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null", *CACHES]
    words += [sys.executable, str(Path(__file__).resolve()), "run", str(nodes), str(rounds)]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    found = dict(_COUNT.findall(done.stderr))
    return [int(done.stdout), *(int(count.replace(",", "")) for count in found.values())]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description="What an event of the simulator costs in instructions and cache misses.",
        epilog="Example: python benchmarks/simulator_profile.py 10 100",
    )
    parser.add_argument("nodes", nargs="*", type=int, help=f"of a cluster ({', '.join(map(str, NODES))})")
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("no valgrind here (Debian: apt-get install valgrind)")
    print("| nodes | instructions an event | I1 misses | D1 misses | misses of 1 MiB |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with ThreadPoolExecutor(2) as both:
        for nodes in options.nodes or NODES:
            few = both.submit(counted, nodes, 2)
            many = both.submit(counted, nodes, 2 + max(EVENTS // (_ROUND * nodes), 1))
            events, *costs = (b - a for a, b in zip(few.result(), many.result(), strict=True))
            print(
                f"| {nodes:,} | " + " | ".join(f"{cost / events:,.0f}" for cost in costs) + " |", flush=True
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        print(run(int(sys.argv[2]), int(sys.argv[3])))
    else:
        main()
