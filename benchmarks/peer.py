"""One process of a run; results are JSON lines.

`peer.py COMPETITOR serve|drive WORK [ADDRESS]`, or `peer.py COMPETITOR pair WORK` under a launcher of both.
"""

from __future__ import annotations

import cProfile
import json
import os
import sys
from dataclasses import asdict
from importlib import import_module

from work import Work


def announce(address: str) -> None:
    """Tell the harness where the serving process listens."""
    print(json.dumps({"address": address}), flush=True)


def main() -> int:
    """Run one side, under the profiler if that is wanted."""
    folder = os.environ.get("ULNET_BENCH_PROFILES")
    if folder is None:
        return run()
    profile = cProfile.Profile()
    status = profile.runcall(run)
    profile.dump_stats(f"{folder}/{sys.argv[2]}.prof")
    return status


def run() -> int:
    """Run one side."""
    name, role, words = sys.argv[1:4]
    competitor = import_module(f"competitors.{name}")
    work = Work.from_json(words)
    if role == "pair":
        role, measured = competitor.pair(work)
    elif role == "serve":
        measured = competitor.serve(work, announce)
    else:
        measured = competitor.drive(work, sys.argv[4])
    sys.stdout.write(json.dumps({role: asdict(measured)}) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
