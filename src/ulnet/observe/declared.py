"""The counters that documents declare (`ulnet.dlc.documents_counters`), by their words there, as metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from ulnet.dlc import documents_counters as counters
from ulnet.observe.snapshot import lines_of

__all__ = ["COUNTED", "DIRECTIONS", "NI_LINES", "PEER_LINES", "counts_of", "metrics", "number"]

DIRECTIONS: Final = ("sent", "received", "dropped")
# What stands under which word of an NI or peer NI, and how it is declared.
_LINES: Final[dict[str, Any]] = {"statistics": counters.TrafficStats, "load": counters.ByteCounts}
NI_LINES: Final[dict[str, Any]] = {**_LINES, "health stats": counters.NiHealth}
PEER_LINES: Final[dict[str, Any]] = {**_LINES, "health stats": counters.PeerNiHealth}
_KNOWN: Final[dict[tuple[Any, str], dict[str, counters.Metric]]] = {}


def metrics(view: Any, prefix: str) -> dict[str, counters.Metric]:
    """The declared counters by their words in documents."""
    found = _KNOWN.get((view, prefix))
    if found is None:
        words = dict(zip(view.__struct_fields__, view.__struct_encode_fields__, strict=True))
        declared = counters.metrics_of(view, prefix)
        found = _KNOWN[view, prefix] = {words[name]: _renamed(one) for name, one in declared.items()}
    return found


def _renamed(metric: counters.Metric) -> counters.Metric:
    """By Prometheus' conventions: base units stand in names."""
    name = re.sub(r"_length_total$", "_bytes_total", metric.name)
    name = re.sub(r"_next_ping$", "_next_ping_seconds", name)
    return metric._replace(name=name, help=metric.help[:1].upper() + metric.help[1:])


def _counted(view: Any) -> list[str]:
    """The words of what only grows."""
    return [word for word, metric in metrics(view, "lnet_peer_ni").items() if metric.kind == "counter"]


# All that a peer NI counts: where it stands in documents.
_BLOCKS: Final = {
    **{word: tuple(_counted(view)) for word, view in PEER_LINES.items()},
    **{f"{way}_stats": tuple(_counted(counters.MsgCounts)) for way in DIRECTIONS},
}
COUNTED: Final = [(word, name) for word, names in _BLOCKS.items() for name in names]
_TOGETHER: Final = [(word, names, itemgetter(*names)) for word, names in _BLOCKS.items()]


def counts_of(ni: Mapping[str, Any]) -> list[float]:
    """What a peer NI has counted, in the order of COUNTED; 0 for what is not there."""
    found: list[float] = []
    for word, names, values in _TOGETHER:
        lines = lines_of(ni, word)
        try:
            found += values(lines)
        except KeyError:
            found += [lines.get(name, 0) for name in names]
    if {int, float}.issuperset(map(type, found)):
        return found
    return [one if type(one) in (int, float) else 0 for one in found]


def number(value: Any) -> float:
    """What a tool printed as a number; NaN for what is none."""
    return float(value) if isinstance(value, int | float) else float("nan")
