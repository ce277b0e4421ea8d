"""A Dask client that shuffles a dataframe again and again, and looks at all that comes out."""

from __future__ import annotations

import json
import sys
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

PARTS = 8
KEYS = 1000


def main(address: str, method: str, rows: int, rounds: int) -> None:
    """Print `ready` when the workers are there, then a line of JSON for each round."""
    with dask.config.set({"dataframe.shuffle.method": method}), Client(address, timeout=60) as client:
        client.wait_for_workers(2, timeout=120)
        print("ready", flush=True)
        for number in range(rounds):
            frame = dd.from_map(part, range(PARTS), rows=rows, salt=number, meta=part(0, 1, 0))
            shuffled = frame.shuffle("key", shuffle_method=method)
            seen = shuffled.map_partitions(facts, meta=facts(part(0, 1, 0))).compute()
            keys = [key for some in seen["keys"] for key in some.split()]
            told = {
                "rows": int(seen["rows"].sum()) == PARTS * rows,
                "values": int(seen["total"].sum()) == sum(range(PARTS * rows)),
                "texts": int(seen["texts"].sum()) == PARTS * rows,
                "each key in one partition": len(keys) == len(set(keys)) == KEYS,
            }
            print(json.dumps(told), flush=True)


def part(number: int, rows: int, salt: int) -> pd.DataFrame:
    """Rows that are known: values without a gap over all parts, a text that repeats the value."""
    values = np.arange(number * rows, (number + 1) * rows, dtype="i8")
    keys = np.random.default_rng((number, salt)).integers(0, KEYS, rows)
    return pd.DataFrame({"key": keys, "value": values, "text": [f"value {value:>16}" for value in values]})


def facts(frame: pd.DataFrame) -> pd.DataFrame:
    """What a partition holds, in a row."""
    both = zip(frame["text"], frame["value"], strict=True)
    texts = sum(text == f"value {value:>16}" for text, value in both)
    keys = " ".join(map(str, frame["key"].unique()))
    row: dict[str, Any] = {"rows": len(frame), "total": frame["value"].sum(), "texts": texts, "keys": keys}
    return pd.DataFrame([row])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
