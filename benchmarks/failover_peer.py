"""One process of a run while a rail fails: `failover_peer.py serve|drive JOB`; answers in JSON lines."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict

from failover_job import Job


def _announce(word: str) -> None:
    print(json.dumps(word), flush=True)


def main() -> int:
    """Run one side."""
    role, words = sys.argv[1:3]
    job = Job.from_json(words)
    # The other player is left alone: a restarted peer is not to wait for what it does not need.
    module = importlib.import_module(f"competitors.failover_{'mptcp' if job.player == 'mptcp' else 'ulnet'}")
    if role == "serve":
        module.serve(job, _announce)
    else:
        print(json.dumps(asdict(module.drive(job, _announce))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
