"""One process of a run while a rail fails: `failover_peer.py serve|drive JOB`; answers in JSON lines."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from competitors import failover_mptcp, failover_ulnet
from failover_job import Job


def _announce(word: str) -> None:
    print(json.dumps(word), flush=True)


def main() -> int:
    """Run one side."""
    role, words = sys.argv[1:3]
    job = Job.from_json(words)
    module = failover_ulnet if job.player in ("ulnet", "bond") else failover_mptcp
    if role == "serve":
        module.serve(job, _announce)
    else:
        print(json.dumps(asdict(module.drive(job, _announce))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
