"""The counters that documents declare (`ulnet.dlc.documents_counters`), by their words there, as metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ulnet.dlc import documents_counters as counters
from ulnet.observe.snapshot import lines_of

__all__ = ["DIRECTIONS", "NI_LINES", "PEER_LINES", "counted", "flat", "metrics", "number"]

DIRECTIONS: Final = ("sent", "received", "dropped")
# What stands under which word of an NI or peer NI, and how it is declared.
NI_LINES: Final = {"statistics": counters.TrafficStats, "health stats": counters.NiHealth}
PEER_LINES: Final = {"statistics": counters.TrafficStats, "health stats": counters.PeerNiHealth}
_KNOWN: Final[dict[tuple[Any, str], dict[str, counters.Metric]]] = {}


def metrics(view: Any, prefix: str) -> dict[str, counters.Metric]:
    """The declared counters by their words in documents."""
    found = _KNOWN.get((view, prefix))
    if found is None:
        words = dict(zip(view.__struct_fields__, view.__struct_encode_fields__, strict=True))
        declared = counters.metrics_of(view, prefix)
        found = _KNOWN[view, prefix] = {words[name]: _renamed(one) for name, one in declared.items()}
    return found


def counted(view: Any) -> list[str]:
    """The words of what only grows."""
    return [word for word, metric in metrics(view, "lnet_peer_ni").items() if metric.kind == "counter"]


def _renamed(metric: counters.Metric) -> counters.Metric:
    """By Prometheus' conventions: base units stand in names."""
    name = re.sub(r"_length_total$", "_bytes_total", metric.name)
    name = re.sub(r"_next_ping$", "_next_ping_seconds", name)
    return metric._replace(name=name, help=metric.help[:1].upper() + metric.help[1:])


def flat(ni: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """All that a peer NI counts, by word and place."""
    found = {
        (word, name): number(lines[name])
        for word, view in PEER_LINES.items()
        if (lines := lines_of(ni, word))
        for name in counted(view)
        if name in lines
    }
    for way in DIRECTIONS:
        for kind, count in lines_of(ni, f"{way}_stats").items():
            found[f"{way}_stats", str(kind)] = number(count)
    return found


def number(value: Any) -> float:
    """What a tool printed as a number; NaN for what is none."""
    return float(value) if isinstance(value, int | float) else float("nan")
