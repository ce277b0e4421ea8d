"""One process of a run over several rails: `rails_peer.py serve|drive JOB`; answers in JSON lines."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from competitors import rails_sockets, rails_ulnet
from rails_job import Job


def _announce(word: str) -> None:
    print(json.dumps(word), flush=True)


def main() -> int:
    """Run one side."""
    role, words = sys.argv[1:3]
    job = Job.from_json(words)
    module = rails_ulnet if job.player.startswith(("ulnet", "bond:")) else rails_sockets
    if role == "serve":
        module.serve(job, _announce)
    else:
        print(json.dumps(asdict(module.drive(job))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
