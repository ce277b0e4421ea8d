"""What a service counts of its methods, and its server of itself, as lines of YAML."""

from __future__ import annotations

from typing import Final

import msgspec
import yaml

__all__ = ["Counted", "as_text"]

_COUNTERS: Final = ("calls", "errors", "overdue", "given_up", "resent", "repeated")
_QUANTILES: Final = (50, 99)


class Method(msgspec.Struct):
    """What is counted of a method. Servers of other versions count other things."""

    name: str
    kind: str
    calls: int = 0
    errors: int = 0
    overdue: int = 0
    given_up: int = 0
    resent: int = 0
    repeated: int = 0
    latency_us: list[int] = []


class Counted(msgspec.Struct):
    """What `ulnet.methods` answers."""

    service: str
    methods: list[Method]
    server: dict[str, int] = {}


def as_text(counted: Counted, *, everything: bool) -> list[str]:
    """Its lines; with `everything` also what the server counts, and service times."""
    lines = [f"service: {_text(counted.service)}"]
    if everything and counted.server:
        lines += ["server:", *(f"  {_text(name)}: {value}" for name, value in counted.server.items())]
    lines.append("methods:")
    for method in counted.methods:
        lines += [f"- name: {_text(method.name)}", f"  kind: {_text(method.kind)}"]
        lines += [f"  {name}: {getattr(method, name)}" for name in _COUNTERS]
        if everything:
            lines += _times(method.latency_us)
    return lines


def _times(histogram: list[int]) -> list[str]:
    """Bucket i has service times below 2**i µs that are in none before; the last has all others."""
    total = sum(histogram)
    if not total:
        return []
    lines = ["  service_time_us:"]
    for percent in _QUANTILES:
        left = -(-total * percent // 100)
        for bucket, count in enumerate(histogram):
            left -= count
            if left <= 0:
                lines.append(f"    p{percent}: {_below(bucket, histogram)}")
                break
    lines.append("    histogram:")
    lines += [
        f"      {_below(bucket, histogram)}: {count}" for bucket, count in enumerate(histogram) if count
    ]
    return lines


def _below(bucket: int, histogram: list[int]) -> str:
    if bucket == len(histogram) - 1:
        return f"'>= {2 ** (bucket - 1) if bucket else 0}'"
    return f"'< {2**bucket}'"


def _text(text: str) -> str:
    """As YAML has it, on one line."""
    return yaml.safe_dump(text, width=1 << 20, allow_unicode=True).splitlines()[0]
