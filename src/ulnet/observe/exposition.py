"""Text for Prometheus: its library writes the names and labels of each series once, here they are kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString as value_text

__all__ = ["Exposition"]

_Key = tuple[str, ...]
_NOTHING: Final[tuple[Metric, ...]] = ()


class Exposition:
    """Series of the last scrape are kept: of thousands nearly all are the same in the next one.

    The text of each format is kept, too, while families are the same list. Several threads may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: Sequence[Metric] = _NOTHING
        self._texts: dict[bool, bytes] = {}  # by whether it is OpenMetrics
        self._known: dict[_Key, str] = {}  # what stands before the value

    def text(self, families: Sequence[Metric], accept: str) -> tuple[bytes, str]:
        """What a scraper gets, and its media type, by what the scraper says that it accepts.

        Samples have values alone: no timestamps, no exemplars. Names have letters, digits, and underscores
        alone: all formats write series with such names alike.
        """
        try:
            encode, kind = choose_encoder(accept)
        except TypeError:  # of a version that is no number
            encode, kind = choose_encoder("")
        with self._lock:
            if self._families is not families:
                self._families, self._texts = families, {}
            open_metrics = kind.startswith("application/openmetrics-text")
            if open_metrics not in self._texts:
                self._texts[open_metrics] = self._write(families, encode)
            return self._texts[open_metrics], kind

    def _write(self, families: Iterable[Metric], encode: Callable[[Any], bytes]) -> bytes:
        end = encode(_Once(_NOTHING))
        before = self._known
        known: dict[_Key, str] = {}
        parts: list[str] = []
        for family in families:
            bare = Metric(family.name, family.documentation, family.type)
            head = encode(_Once((bare,))).removesuffix(end)
            parts.append(head.decode())
            keys = [(one.name, *one.labels, *one.labels.values()) for one in family.samples]
            new = {key: one for key, one in zip(keys, family.samples, strict=True) if key not in before}
            if new:
                bare.samples = list(new.values())
                lines = encode(_Once((bare,)))[len(head) :].decode().split("\n")
                known.update(zip(new, (line.rpartition(" ")[0] for line in lines), strict=False))
            for key, one in zip(keys, family.samples, strict=True):
                series = known[key] = known.get(key) or before[key]
                parts.append(f"{series} {value_text(one.value)}\n")  # type: ignore[no-untyped-call]
        self._known = known
        return "".join(parts).encode() + end


class _Once:
    """What an encoder of prometheus_client takes for a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
