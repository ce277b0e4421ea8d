"""`lnetctl explain` as a table: one block a stage, one line a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["table"]

_NO_PRIORITY = 0xFFFFFFFF
_FINE = ("turn by rate", "weighted turn")  # of bonds: shares of the load that each has had


def table(document: dict[str, Any], width: int = 0) -> str:
    """The lines that people read, none longer than `width` (0: of any length) where columns can go below."""
    told = document["explain"]
    path = " -> ".join(told[key] for key in ("from", "via", "to") if key in told)
    over = f" over {told['over']}" if "over" in told else ""
    lines = [f"{path}{over}   ({told['case']})"]
    if 0 < width < len(lines[0]):
        lines = [f"{path}{over}", f"({told['case']})"]
    for stage in told["stages"]:
        lines += ["", *_stage(stage, width)]
    return "\n".join(lines) + "\n"


def _stage(stage: dict[str, Any], width: int) -> Iterator[str]:
    criteria = list(dict.fromkeys(name for one in stage["candidates"] for name in one["values"]))
    rows = [[stage["stage"], *criteria, "outcome"]]
    for one in stage["candidates"]:
        values = [_shown(name, one["values"].get(name)) for name in criteria]
        rows.append([one["name"], *values, one["outcome"]])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for some in _fitting(widths, width):
        for row in rows:
            cells = [row[0].ljust(widths[0])]
            cells += [row[at].rjust(widths[at]) if at < len(row) - 1 else row[at] for at in some]
            yield "  ".join(cells).rstrip()


def _fitting(widths: list[int], width: int) -> Iterator[list[int]]:
    """The columns behind the first one, as many at once as go into a line with it."""
    some: list[int] = []
    used = widths[0]
    for at in range(1, len(widths)):
        if some and width and used + 2 + widths[at] > width:
            yield some
            some, used = [], widths[0]
        some.append(at)
        used += 2 + widths[at]
    yield some


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
