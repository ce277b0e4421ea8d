"""A Dask client that has data lie on the workers, each block where it is said, then moved between them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed import Client, wait

BLOCKS = 8  # in each direction
SMALLER = 16  # the side of a block that warms up is so many times as short


def main(address: str, side: int, rounds: int, workers: int) -> None:
    """Print `ready` when all is in place, then a line of JSON for each round."""
    with Client(address, timeout=60) as client:
        client.wait_for_workers(workers, timeout=120)
        chunk = side // BLOCKS
        for graph, _ in jobs_of(client, max(chunk // SMALLER, 1), workers).values():
            graph()  # the workers have imported what they need, and know each other
        print("ready", flush=True)
        for _ in range(rounds):
            told: dict[str, Any] = {}
            # New ones each time: what was fetched before stays with both workers.
            for name, (graph, expected) in jobs_of(client, chunk, workers).items():
                before, began = served(client), time.perf_counter()
                value = graph()
                told[name] = time.perf_counter() - began
                told[f"{name} moved"] = (served(client) - before) / 2**20
                told[f"{name} right"] = value == expected
            print(json.dumps(told), flush=True)


def served(client: Client) -> int:
    """Bytes of results that workers have sent each other so far."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def jobs_of(client: Client, chunk: int, workers: int) -> dict[str, tuple[Callable[[], float], float]]:
    """Each job with its right result. Blocks and tasks have places, so that all move the same."""
    numbers = range(BLOCKS)
    places = sorted(client.scheduler_info(n_workers=-1)["workers"])

    def at(place: int, work: Callable[..., Any], *given: Any) -> Any:
        return client.submit(work, *given, workers=[places[place % workers]], pure=False)

    # A block and that across the diagonal are at different workers.
    square = [[at(int(i < j), filled, chunk, chunk, i * BLOCKS + j) for j in numbers] for i in numbers]
    rows = [at(i, filled, chunk, chunk * BLOCKS, i) for i in numbers]
    wait([square, rows])

    def transposed() -> float:
        sums = [at(int(i < j), sum_of_both, square[i][j], square[j][i]) for i in numbers for j in numbers]
        return float(sum(client.gather(sums)))

    def shuffled() -> float:
        cut = [[at(i, columns, rows[i], j * chunk, chunk) for i in numbers] for j in numbers]
        return float(sum(client.gather([at(j, sum_of_joined, cut[j]) for j in numbers])))

    return {
        "transpose-sum": (transposed, 2 * chunk**2 * sum(range(BLOCKS**2))),
        "shuffle": (shuffled, chunk**2 * BLOCKS * sum(numbers)),
    }


def sum_of_both(block: Any, across: Any) -> float:
    """Of a block of a square and of what is added to it, the block across the diagonal."""
    return float((block + across.T).sum())


def columns(row: Any, first: int, count: int) -> Any:
    """Some columns of a row, in memory of their own."""
    return row[:, first : first + count].copy()


def sum_of_joined(parts: list[Any]) -> float:
    """Of columns, whose parts come from each row."""
    return float(np.concatenate(parts).sum())


def filled(rows: int, columns: int, value: int) -> Any:
    """A block of one number."""
    return np.full((rows, columns), value, "f8")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
