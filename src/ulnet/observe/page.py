"""A summary as text and as one HTML page with plots, for a person."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from importlib import import_module
from typing import Any

from ulnet.observe.history import Stored
from ulnet.observe.summary import Rail, Summary

__all__ = ["as_html", "as_json", "as_text", "moment"]

_MOST_EVENTS = 200
_COLUMNS = (
    "rail",
    "sent",
    "received",
    "sent again",
    "failed",
    "dropped",
    "least health",
    "down, s",
    "not well, s",
)


def as_text(summary: Summary) -> str:
    """For a terminal: no line is wider than 100 characters, but for those with long NIDs."""
    lines = [*_head(summary), ""]
    rows = [_COLUMNS, *(_row(rail) for rail in summary.rails)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells).rstrip())
    lines += ["", "What to look at", *(f"  - {text}" for text in summary.look_at or ["nothing"])]
    lines += ["", "What happened", *(f"  {text}" for text in _events(summary.events) or ["nothing"])]
    return "\n".join(lines) + "\n"


def as_json(summary: Summary) -> dict[str, object]:
    """For programs: times in seconds since 1970."""
    return {
        "node": summary.node,
        "since": summary.since,
        "until": summary.until,
        "readings": summary.readings,
        "silent": summary.silent,
        "unseen": summary.unseen,
        "sent_bytes": summary.sent_bytes,
        "received_bytes": summary.received_bytes,
        "rails": [
            {name: getattr(rail, name) for name in Rail.__slots__ if name != "points"}
            for rail in summary.rails
        ],
        "events": [{"at": stored.at, **stored.event._asdict()} for stored in summary.events],
        "look_at": summary.look_at,
    }


def as_html(summary: Summary) -> str:
    """One file without links to others. Plots where matplotlib is installed, and a word where not."""
    head, *facts = _head(summary)
    cells = "".join(f"<th>{escape(name)}</th>" for name in _COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _row(rail)) + "</tr>\n"
        for rail in summary.rails
    )
    look = "".join(f"<li>{escape(text)}</li>\n" for text in summary.look_at or ["nothing"])
    happened = "\n".join(escape(text) for text in _events(summary.events) or ["nothing"])
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{escape(head)}</title>
<style>
body {{ font: 15px sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: .2em .8em; text-align: right; border-bottom: 1px solid #ccc; }}
td:first-child, th:first-child {{ text-align: left; }} svg {{ max-width: 100%; height: auto; }}
pre {{ overflow-x: auto; }}
</style>
<h1>{escape(head)}</h1>
{"".join(f"<p>{escape(fact)}</p>" for fact in facts)}
<h2>What to look at</h2><ul>
{look}</ul>
<h2>Rails</h2><table><tr>{cells}</tr>
{rows}</table>
{_plots(summary.rails)}
<h2>What happened</h2><pre>{happened}</pre>
</html>
"""


def moment(at: float) -> str:
    """Local time, as people write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _head(summary: Summary) -> list[str]:
    gib = 1 << 30
    return [
        f"LNet of {summary.node or 'a node'}, {moment(summary.since)} to {moment(summary.until)}",
        f"{summary.readings} readings; {summary.sent_bytes / gib:.2f} GiB sent, "
        f"{summary.received_bytes / gib:.2f} GiB received, {summary.resent} messages sent again, "
        f"{summary.dropped} dropped",
    ]


def _row(rail: Rail) -> tuple[str, ...]:
    counts = (rail.sent, rail.received, rail.resent, rail.failed, rail.dropped, rail.least_health)
    return (rail.nid, *map(str, counts), f"{rail.down:.0f}", f"{rail.unwell:.0f}")


def _events(events: Sequence[Stored]) -> list[str]:
    """A line each; equal ones that follow one another are told once, with their number."""
    lines: list[str] = []
    groups = list(_together(events))
    for first, count in groups[-_MOST_EVENTS:]:
        event = first.event
        change = (
            f" {event.before} → {event.after}"
            if event.before and event.after
            else f" {event.before or event.after}"
        )
        why = f" ({event.why})" if event.why else ""
        times = f", {count} times" if count > 1 else ""
        lines.append(f"{moment(first.at)}  {event.subject}: {event.kind}{change.rstrip()}{why}{times}")
    if len(groups) > _MOST_EVENTS:
        lines.insert(0, f"({len(groups) - _MOST_EVENTS} earlier ones are left out)")
    return lines


def _together(events: Sequence[Stored]) -> Iterator[tuple[Stored, int]]:
    first: Stored | None = None
    count = 0
    for stored in events:
        if first is not None and stored.event[:2] == first.event[:2]:
            count += 1
            continue
        if first is not None:
            yield first, count
        first, count = stored, 1
    if first is not None:
        yield first, count


def _plots(rails: Sequence[Rail]) -> str:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "<p>There are no plots: matplotlib is missing (pip install 'ulnet[plot]').</p>"
    if not any(rail.points for rail in rails):
        return "<p>There is nothing to plot.</p>"
    dates: Any = import_module("matplotlib.dates")  # without types
    figure = Figure(figsize=(10, 6), layout="constrained")
    traffic, health = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for rail in rails:
        if rail.points:
            times = dates.date2num([datetime.fromtimestamp(at) for at, *_ in rail.points])
            traffic.plot(times, [sent + received for _, sent, received, _ in rail.points], label=rail.nid)
            health.plot(times, [value if value >= 0 else 1000 for *_, value in rail.points])
    traffic.set_ylabel("messages a second")
    traffic.set_ylim(bottom=0)
    traffic.legend(loc="upper left", fontsize="small")
    health.set_ylabel("health")
    health.set_ylim(-30, 1030)
    locator = dates.AutoDateLocator()
    health.xaxis.set_major_locator(locator)
    health.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    picture = text.getvalue()
    return picture[picture.index("<svg") :].replace(
        "<svg", '<svg role="img" aria-label="messages and health of rails"', 1
    )
