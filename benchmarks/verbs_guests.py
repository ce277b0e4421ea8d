"""o2ib on soft-RoCE beside pyverbs alone, in the guests of scripts/verbs_bed.py: only ratios mean anything.

Run as `python benchmarks/verbs_guests.py --seconds 10`; it needs what `make test-verbs` needs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from players import builds  # noqa: E402
from runner import environment_of  # noqa: E402
from verbs_bed import Bed, Guest, prepare  # noqa: E402

BULK, WINDOW = 1 << 20, 8


def python(build: str) -> tuple[str, ...]:
    """What runs a program with that build of ulnet in a guest."""
    return ("env", f"PYTHONPATH={environment_of(build)['PYTHONPATH']}", str(ROOT / ".venv/bin/python"))


def serve(guest: Guest, *words: str) -> int:
    """Start what serves, and wait until it does."""
    number = guest.start(*words)
    guest.ok("sh", "-c", f"until grep -q serving /tmp/written.{number}; do sleep 0.5; done", timeout=200)
    return number


def main() -> int:
    """Measure, and print one line each."""
    parser = argparse.ArgumentParser(description="o2ib on soft-RoCE beside pyverbs alone.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    lacking = prepare()
    if lacking:
        print(lacking, file=sys.stderr)
        return 1
    bed = Bed(ROOT / "build/verbs/results")
    try:
        measure(bed, options.seconds, options.rounds)
    finally:
        bed.close()
    return 0


def measure(bed: Bed, seconds: float, rounds: int) -> None:
    """Both in turns; a ratio is the median of those of single rounds, for a guest's pace changes."""
    a, b = bed.guests
    here, there = (f"192.168.110.{guest.address}" for guest in (a, b))
    loop, node = (str(ROOT / f"benchmarks/verbs_{name}.py") for name in ("loop", "node"))
    last = [str(seconds), str(WINDOW)]
    rates: defaultdict[str, list[float]] = defaultdict(list)

    def keep(name: str, out: str) -> None:
        found = json.loads(out.splitlines()[-1])
        print(name, found, flush=True)
        rates[name].append(found["rate"])

    for _ in range(rounds):
        serving = serve(b, "/usr/bin/python3", loop, "serve", there, str(BULK))
        for kind in ("write", "read"):
            keep(kind, a.ok("/usr/bin/python3", loop, kind, there, str(BULK), *last, timeout=seconds + 120))
        b.kill(serving)
        for build in builds():
            words_of = python(build)
            serving = serve(b, *words_of, node, "serve", f"{there}@o2ib", str(BULK))
            for kind in ("put", "get"):
                words = (kind, f"{here}@o2ib", f"{there}@o2ib", str(BULK), *last)
                keep(f"{kind}, {build}", a.ok(*words_of, node, *words, timeout=seconds + 200))
            words = ("put", f"{here}@o2ib", f"{there}@o2ib", "64", *last)
            keep(f"small put, {build}", a.ok(*words_of, node, *words, timeout=seconds + 200))
            b.kill(serving)
    print(f"accelerator {bed.accelerator}")
    for build in builds():
        for ours, theirs in (("put", "write"), ("get", "read"), ("get", "write")):
            pairs = zip(rates[f"{ours}, {build}"], rates[theirs], strict=True)
            ratios = [own / other for own, other in pairs]
            least, most = min(ratios), max(ratios)
            print(f"{ours} / {theirs}, {build}: {median(ratios):.2f} ({least:.2f}–{most:.2f})")


if __name__ == "__main__":
    sys.exit(main())
