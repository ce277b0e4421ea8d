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
from typing import Any

from work import Work, pin


def announce(address: str) -> None:
    """Tell the harness where the serving process listens."""
    print(json.dumps({"address": address}), flush=True)


def main() -> int:
    """Run one side, under the profiler if that is wanted; imports are not profiled."""
    if os.environ.get("ULNET_BENCH_BUILD") == "compiled":
        check_build()
    competitor = import_module(f"competitors.{sys.argv[1]}")
    folder = os.environ.get("ULNET_BENCH_PROFILES")
    if folder is None:
        return run(competitor)
    profile = cProfile.Profile()
    status = profile.runcall(run, competitor)
    profile.dump_stats(f"{folder}/{sys.argv[2]}.prof")
    return status


def run(competitor: Any) -> int:
    """Run one side."""
    role, words = sys.argv[2:4]
    work = Work.from_json(words)
    if role == "pair":
        role, measured = competitor.pair(work)
    elif role == "serve":
        pin(work, False)
        measured = competitor.serve(work, announce)
    else:
        pin(work, True)
        measured = competitor.drive(work, sys.argv[4])
    sys.stdout.write(json.dumps({role: asdict(measured)}) + "\n")
    sys.stdout.flush()
    return 0


def check_build() -> None:
    """What is told of the compiled build must be of it."""
    from ulnet.core import sender

    if not str(sender.__file__).endswith(".so"):
        raise RuntimeError(f"the compiled build is to be measured, and {sender.__file__} is not of it")


if __name__ == "__main__":
    raise SystemExit(main())
