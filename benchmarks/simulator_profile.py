"""What an event of the simulator costs in instructions and cache misses, by number of nodes (valgrind).

Each row is the difference between two runs under cachegrind, one of which has more events.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cachegrind import HEADS, counted, need_valgrind
from simulator import make_node, talk
from ulnet.sim import Simulation

NODES = (10, 100, 300)
EVENTS = 6000  # about so many more in the longer run
_ROUND = 15  # events for each node


def run(nodes: int, rounds: int) -> int:
    """The program that is looked at: a cluster whose nodes have met, and so many rounds. Its events."""
    sim = Simulation(1)
    all_nodes = [make_node(sim, number) for number in range(nodes)]
    for _ in range(1 + rounds):
        talk(sim, all_nodes)
    return sim.scheduler.events


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description="What an event of the simulator costs in instructions and cache misses.",
        epilog="Example: python benchmarks/simulator_profile.py 10 100",
    )
    parser.add_argument("nodes", nargs="*", type=int, help=f"of a cluster ({', '.join(map(str, NODES))})")
    options = parser.parse_args()
    need_valgrind()
    script = str(Path(__file__).resolve())
    print(f"| nodes | {HEADS.format('an event')} |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with ThreadPoolExecutor(2) as both:
        for nodes in options.nodes or NODES:
            few = both.submit(counted, script, "run", str(nodes), "2")
            rounds = 2 + max(EVENTS // (_ROUND * nodes), 1)
            many = both.submit(counted, script, "run", str(nodes), str(rounds))
            events, *costs = (b - a for a, b in zip(few.result(), many.result(), strict=True))
            print(
                f"| {nodes:,} | " + " | ".join(f"{cost / events:,.0f}" for cost in costs) + " |", flush=True
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        print(run(int(sys.argv[2]), int(sys.argv[3])))
    else:
        main()
