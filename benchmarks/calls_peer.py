"""One process of a run of calls: `calls_peer.py serve|drive JOB [SERVER]`; answers in JSON lines."""

from __future__ import annotations

import cProfile
import json
import os
import sys
from dataclasses import asdict
from importlib import import_module
from typing import Any

from calls_job import Job
from peer import check_build

MODULES = {"grpc": "calls_grpc", "zmq": "calls_zmq", "asyncio": "calls_asyncio"}  # all others are of ulnet


def announce() -> None:
    """Tell the harness that this process serves, and which one it is."""
    print(json.dumps(os.getpid()), flush=True)


def main() -> int:
    """Run one side, under the profiler if that is wanted."""
    if os.environ.get("ULNET_BENCH_BUILD") == "compiled":
        check_build()
    folder = os.environ.get("ULNET_BENCH_PROFILES")
    if folder is None:
        return run()
    profile = cProfile.Profile()
    status = profile.runcall(run)
    profile.dump_stats(f"{folder}/{sys.argv[1]}.prof")
    return status


def run() -> int:
    """Serve until the standard input ends, or call."""
    role, words = sys.argv[1:3]
    job = Job.from_json(words)
    module: Any = import_module(f"competitors.{MODULES.get(job.player, 'calls_ulnet')}")
    if role == "serve":
        module.serve(job, announce)
    else:
        print(json.dumps(asdict(module.drive(job, int(sys.argv[3])))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
