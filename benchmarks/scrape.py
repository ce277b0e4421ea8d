"""CPU time of ours in one scrape of a kernel node with a thousand peers: reading, sums, exposition.

`python benchmarks/scrape.py [NIs of each peer]` prints the least of five scrapes, in seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ulnet.dlc import documents_counters as counters
from ulnet.observe.exposition import Exposition
from ulnet.observe.families import Families
from ulnet.observe.reading import read_text
from ulnet.observe.snapshot import Snapshot

T = TypeVar("T")
PEERS = 1000
NET = "net:\n-     net type: tcp\n      local NI(s):\n      -     nid: 10.0.0.1@tcp\n            status: up\n"

ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"  # as Prometheus asks


def main() -> int:
    """Print it."""
    rails = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    families, exposition = Families(), Exposition()
    rows = []
    for number in range(6):
        text = "".join(_lines(number, rails)).encode()
        read, document = _timed(read_text, text)
        parts = {"net": read_text(NET.encode()), "peer": document}
        made, found = _timed(
            lambda parts=parts, at=number * 10.0: list(families.of(Snapshot("n", parts), at))
        )
        told, _ = _timed(exposition.text, found, ACCEPT)
        rows.append((read + made + told, read, made, told))
    total, read, made, told = min(rows[1:])  # the first one knows no counts before
    print(f"{PEERS} peers of {rails} NIs, {text.count(10)} lines: {total:.3f} s of CPU time")
    print(f"reading {read:.3f}, families {made:.3f}, exposition {told:.3f}")
    return 0


def _timed(work: Callable[..., T], *words: Any) -> tuple[float, T]:
    began = time.process_time()
    result = work(*words)
    return time.process_time() - began, result


def _lines(step: int, rails: int) -> list[str]:
    """What `peer show -v 4` prints; each peer has carried something since the step before."""
    blocks = {
        "statistics": counters.TrafficStats,
        "sent_stats": counters.MsgCounts,
        "received_stats": counters.MsgCounts,
        "dropped_stats": counters.MsgCounts,
        "health stats": counters.PeerNiHealth,
    }
    lines = ["peer:\n"]
    for peer in range(PEERS):
        nids = [f"10.{rail}.{peer >> 8}.{peer & 255}@tcp" for rail in range(rails)]
        lines.append(
            f"-     primary nid: {nids[0]}\n      Multi-Rail: true\n      peer state: 273\n      peer ni:\n"
        )
        for nid in nids:
            lines.append(f"      -     nid: {nid}\n            state: NA\n            refcount: 1\n")
            for name in ("max_ni_tx_credits", "available_tx_credits", "min_tx_credits", "tx_q_num_of_buf"):
                lines.append(f"            {name}: 8\n")
            for block, view in blocks.items():
                lines.append(f"            {block}:\n")
                for at, word in enumerate(view.__struct_encode_fields__):
                    count = peer + step * 7 if at < 2 else 0
                    lines.append(f"                  {word}: {count}\n")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
