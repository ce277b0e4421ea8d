"""A Dask client that has data lie on the workers, each block where it is said, then moved between them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import dask.array as da
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
            graph().compute()  # the workers have imported what they need, and know each other
        jobs = jobs_of(client, chunk, workers)
        print("ready", flush=True)
        for _ in range(rounds):
            told: dict[str, Any] = {}
            for name, (graph, expected) in jobs.items():
                before, began = served(client), time.perf_counter()
                value = float(graph().compute())
                told[name] = time.perf_counter() - began
                told[f"{name} moved"] = (served(client) - before) / 2**20
                told[f"{name} right"] = value == expected
            print(json.dumps(told), flush=True)


def served(client: Client) -> int:
    """Bytes of results that workers have sent each other so far."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def jobs_of(client: Client, chunk: int, workers: int) -> dict[str, tuple[Callable[[], Any], float]]:
    """Each job with its right result; its blocks of chunk x chunk numbers are where they are to be."""
    numbers = range(BLOCKS)
    places = sorted(client.scheduler_info(n_workers=-1)["workers"])

    def placed(place: int, rows: int, columns: int, value: int) -> Any:
        future = client.submit(filled, rows, columns, value, workers=[places[place % workers]], pure=False)
        wait(future)
        return da.from_delayed(future, (rows, columns), "f8")

    # A block and that across the diagonal are at different workers.
    square = da.block([[placed(int(i < j), chunk, chunk, i * BLOCKS + j) for j in numbers] for i in numbers])
    rows = da.concatenate([placed(i, chunk, chunk * BLOCKS, i) for i in numbers])
    return {
        "transpose-sum": (lambda: (square + square.T).sum(), 2 * chunk**2 * sum(range(BLOCKS**2))),
        "shuffle": (
            lambda: rows.rechunk((chunk * BLOCKS, chunk), method="tasks").sum(),
            chunk**2 * BLOCKS * sum(numbers),
        ),
    }


def filled(rows: int, columns: int, value: int) -> Any:
    """A block of one number."""
    return np.full((rows, columns), value, "f8")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
