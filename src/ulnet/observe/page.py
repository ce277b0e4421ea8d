"""A summary as text and as one HTML page with plots, for a person."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib import import_module
from typing import Any

from ulnet.observe.history import Stored
from ulnet.observe.summary import Rail, Summary, moment

__all__ = ["as_html", "as_json", "as_text"]

_MOST_EVENTS = 200
_FLOODS = {"messages sent again", "NI failures", "peer NI failures"}  # may be in every reading
_STATES = {"NI status", "peer NI state", "route"}  # each change is told
_TOUCH = 0.01  # seconds between spans that are one
_FLOOD = 300.0  # seconds of one that are told as one
_COLUMNS = (
    "rail",
    "sent",
    "received",
    "MB",
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


def _head(summary: Summary) -> list[str]:
    gib = 1 << 30
    return [
        f"LNet of {summary.node or 'a node'}, {moment(summary.since)} to {moment(summary.until)}",
        f"{summary.readings} readings; {summary.sent_bytes / gib:.2f} GiB sent, "
        f"{summary.received_bytes / gib:.2f} GiB received, {summary.resent} messages sent again, "
        f"{summary.dropped} dropped",
    ]


def _row(rail: Rail) -> tuple[str, ...]:
    carried = rail.sent_bytes + rail.received_bytes  # kernel nodes count none of single NIs
    size = f"{carried / 1e6:.0f}" if carried else "-"
    counts = (rail.sent, rail.received, size, rail.resent, rail.failed, rail.dropped, rail.least_health)
    return (rail.nid, *map(str, counts), f"{rail.down:.0f}", f"{rail.unwell:.0f}")


def _events(events: Sequence[Stored]) -> list[str]:
    """A line each; equal ones that follow one another are told once, with their number."""
    lines: list[str] = []
    groups = _together(events)
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


def _together(events: Sequence[Stored]) -> list[tuple[Stored, int]]:
    """Equal ones that follow one another, and floods of one subject within minutes, are one; how many."""
    groups: list[tuple[Stored, int]] = []
    floods: dict[tuple[str, ...], int] = {}  # where in `groups`
    for stored in events:
        key = stored.event[: 3 if stored.event.kind in _STATES else 2]
        at = floods.get(key) if stored.event.kind in _FLOODS else len(groups) - 1 if groups else None
        if at is not None and groups[at][0].event[: len(key)] == key:
            first, count = groups[at]
            if stored.event.kind not in _FLOODS or stored.at - first.at < _FLOOD:
                groups[at] = first, count + 1
                continue
        floods[key] = len(groups)
        groups.append((stored, 1))
    return groups


def _bad(rail: Rail) -> list[tuple[float, float]]:
    """Spans of time in which it was down, or not at full health."""
    spans: list[tuple[float, float]] = []
    for point in rail.points:
        if point.well:
            continue
        start = point.at - point.seconds
        if spans and spans[-1][1] >= start - _TOUCH:
            start, _ = spans.pop()
        spans.append((start, point.at))
    return spans


def _label(name: str) -> str:
    """Without what matplotlib takes for a formula, or has no glyph for and says so."""
    return "".join(one if one.isprintable() else "?" for one in name).replace("$", r"\$")


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
            times = dates.date2num([datetime.fromtimestamp(point.at) for point in rail.points])
            traffic.plot(times, [point.rate for point in rail.points], label=_label(rail.nid))
            (line,) = health.plot(times, [point.health for point in rail.points])
            for start, end in _bad(rail):
                span = dates.date2num([datetime.fromtimestamp(start), datetime.fromtimestamp(end)])
                traffic.axvspan(*span, color=line.get_color(), alpha=0.15, linewidth=0)
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
