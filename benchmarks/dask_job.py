"""A Dask client that has data spread over the workers, then moved between them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import dask.array as da
from distributed import Client, wait


def main(address: str, side: int, rounds: int, workers: int) -> None:
    """Print a line of JSON for each round, `ready` before the first."""
    with Client(address, timeout=60) as client:
        client.wait_for_workers(workers, timeout=120)
        chunk = -(-side // 8)
        x = da.ones((side, side), chunks=(chunk, chunk)).cumsum(axis=0).persist()
        rows = x.rechunk((chunk, side)).persist()
        wait([x, rows])
        total = float(x.sum().compute())
        print("ready", flush=True)
        for _ in range(rounds):
            told: dict[str, Any] = {}
            for name, work in jobs(x, rows, side, chunk).items():
                began = time.perf_counter()
                value = work()
                told[name] = time.perf_counter() - began
                told[f"{name} right"] = abs(value - total) <= 1e-9 * total
            print(json.dumps(told), flush=True)


def jobs(x: Any, rows: Any, side: int, chunk: int) -> dict[str, Callable[[], float]]:
    """The two: a sum with the transpose, and all rows made columns, which is a shuffle."""
    return {
        "transpose-sum": lambda: float((x + x.T).sum().compute()) / 2,
        "shuffle": lambda: float(rows.rechunk((side, chunk), method="tasks").sum().compute()),
    }


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
