"""CPU time of `ulnet fleet`'s comparison: nodes of two rails that know one another, all or a bounded number.

`python benchmarks/fleet.py [NODES [PEERS]]` prints the least of three comparisons, in seconds.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from ulnet.observe.equals import compare
from ulnet.observe.fleet import Member
from ulnet.observe.snapshot import Snapshot

RAILS = 2


def main() -> int:
    """Print it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    known = min(int(sys.argv[2]) if len(sys.argv) > 2 else count, count - 1)
    members = [_node(number, count, known) for number in range(count)]
    times = []
    for _ in range(3):
        began = time.process_time()
        found = compare(members)
        times.append(time.process_time() - began)
        if found:
            raise SystemExit(f"nothing is wrong with them, yet it says: {found[0]}")
    least, entries = min(times), count * known
    print(f"{count} nodes that know {known} each: {least:.3f} s, {1e6 * least / entries:.1f} us a peer known")
    return 0


def _nids(number: int) -> list[str]:
    return [f"10.{rail}.{number >> 8}.{number & 255}@tcp{rail or ''}" for rail in range(RAILS)]


def _node(number: int, count: int, known: int) -> Member:
    nets = [
        {
            "net type": nid.partition("@")[2],
            "local NI(s)": [{"nid": nid, "status": "up", "tunables": {"credits": 8}}],
        }
        for nid in _nids(number)
    ]
    peers = [_peer((number + step) % count) for step in range(1, known + 1)]
    parts: dict[str, Any] = {
        "net": {"net": nets},
        "peer": {"peer": peers},
        "settings": {"global": {"discovery": 1}},
    }
    return Member(f"n{number}", Snapshot(f"n{number}", parts))


def _peer(number: int) -> dict[str, Any]:
    nids = _nids(number)
    nis = [{"nid": nid, "state": "NA", "health stats": {"health value": 1000}} for nid in nids]
    return {"primary nid": nids[0], "Multi-Rail": True, "peer state": 273, "peer ni": nis}


if __name__ == "__main__":
    raise SystemExit(main())
