"""`lnetctl explain` as a table: one block a stage, one line a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["table"]

_NO_PRIORITY = 0xFFFFFFFF
_FINE = ("turn by rate", "weighted turn")  # of bonds: shares of the load that each has had


def table(document: dict[str, Any]) -> str:
    """The lines that people read."""
    told = document["explain"]
    path = " -> ".join(told[key] for key in ("from", "via", "to") if key in told)
    over = f" over {told['over']}" if "over" in told else ""
    lines = [f"{path}{over}   ({told['case']})"]
    for stage in told["stages"]:
        lines += ["", *_stage(stage)]
    return "\n".join(lines) + "\n"


def _stage(stage: dict[str, Any]) -> Iterator[str]:
    criteria = list(dict.fromkeys(name for one in stage["candidates"] for name in one["values"]))
    rows = [[stage["stage"], *criteria, "outcome"]]
    for one in stage["candidates"]:
        values = [_shown(name, one["values"].get(name)) for name in criteria]
        rows.append([one["name"], *values, one["outcome"]])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        middle = [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *middle, row[-1]]).rstrip()


def _shown(criterion: str, value: float | None) -> str:
    if value is None:
        return "-"
    if criterion == "expected completion" and value:
        return f"{value * 1e3:.3f} ms" if value < 1000 else f"{value:.0f} B"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == _NO_PRIORITY:
        return "none"
    return f"{value:.10g}" if criterion in _FINE else str(int(value))
