"""A report as one HTML page: tables, plots of bandwidth, the matrix of pairs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from ulnet.selftest.report import Cell, Report, TestResult, rails_unknown

__all__ = ["as_html"]

_WIDTH: Final = 720
_HEIGHT: Final = 200
_EDGE: Final = 50
_COLOURS: Final = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")
_STYLE: Final = (
    "body{font-family:sans-serif;max-width:60em;margin:2em auto;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}"
    "th:first-child,td:first-child{text-align:left}.bad{color:#b00;font-weight:bold}.good{color:#070}"
)


def as_html(report: Report) -> str:
    """The page."""
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.began))
    style, words = ("good", "as expected") if report.good else ("bad", "not as expected")
    verdict = f'<span class="{style}">{words}</span>'
    parts = [
        f"<!DOCTYPE html><html><head><meta charset='utf-8'><title>{escape(report.plan)}</title>",
        f"<style>{_STYLE}</style></head><body><h1>{escape(report.plan)}</h1><p>{began}: {verdict}</p>",
    ]
    if report.error:
        parts.append(f'<p class="bad">{escape(report.error)}</p>')
    for test in report.tests:
        parts += _test(test)
    return "\n".join([*parts, "</body></html>\n"])


def _test(test: TestResult) -> Iterator[str]:
    yield f"<h2>{escape(test.name)}</h2><p>{escape(test.kind)}, {test.seconds:g} s: "
    mean = " in the mean of pairs" if test.cells else ""
    yield f"{test.bandwidth:.2f} MiB/s, {test.rate:.0f} requests/s{mean}, {test.errors} errors</p>"
    if test.samples:
        yield _plot(test)
    if test.nodes:
        rows = [
            (one.id, f"{one.bandwidth:.2f}", f"{one.rate:.0f}", f"{one.errors}", one.lost)
            for one in test.nodes
        ]
        yield _table(("client", "MiB/s", "requests/s", "errors", ""), rows)
    for node, why in test.lost.items():
        yield f'<p class="bad">{escape(node)}: {escape(why)}</p>'
    if test.rails:
        rows = [
            (one.node, one.rail, f"{one.bandwidth:.2f}", f"{one.rate:.0f}", f"{one.errors}")
            for one in test.rails
        ]
        yield _table(("node", "rail", "MiB/s", "requests/s", "errors"), rows)
    if test.no_rails:
        yield f"<p>{escape(rails_unknown(test))}</p>"
    if test.cells:
        yield _matrix(test)
    if test.expectations:
        found = [
            (one.what, f"{one.wanted:g}", f"{one.found:.4g}", "met" if one.met else "missed")
            for one in test.expectations
        ]
        yield _table(("expected", "wanted", "found", ""), found)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    for row in rows:
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _plot(test: TestResult) -> str:
    """MiB/s of each client over time."""
    end = max(sample.at for sample in test.samples) or 1.0
    top = max((max(sample.bandwidth.values(), default=0.0) for sample in test.samples), default=0.0) or 1.0
    lines = [
        f'<svg width="{_WIDTH}" height="{_HEIGHT + 40}" role="img">',
        f'<path d="M{_EDGE},10V{_HEIGHT}H{_WIDTH - 10}" fill="none" stroke="#444"/>',
        f'<text x="{_EDGE - 5}" y="15" text-anchor="end" font-size="11">{top:.0f} MiB/s</text>',
        f'<text x="{_WIDTH - 10}" y="{_HEIGHT + 15}" text-anchor="end" font-size="11">{end:.0f} s</text>',
    ]
    for index, node in enumerate(test.nodes):
        points = []
        for sample in test.samples:
            x = _EDGE + sample.at / end * (_WIDTH - _EDGE - 10)
            y = _HEIGHT - sample.bandwidth.get(node.id, 0.0) / top * (_HEIGHT - 10)
            points.append(f"{x:.1f},{y:.1f}")
        colour = _COLOURS[index % len(_COLOURS)]
        lines.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}">'
            f"<title>{escape(node.id)}</title></polyline>"
        )
    return "\n".join([*lines, "</svg>"])


def _matrix(test: TestResult) -> str:
    """Pairs as a table, a client a row; the slower, the redder."""
    ids = list(dict.fromkeys([cell.source for cell in test.cells] + [cell.sink for cell in test.cells]))
    cells = {(cell.source, cell.sink): cell for cell in test.cells}
    top = max(_value(test, cell) for cell in test.cells) or 1.0
    lines = ["<table><tr><th></th>" + "".join(f"<th>{escape(one)}</th>" for one in ids) + "</tr>"]
    for source in ids:
        row = [f"<th>{escape(source)}</th>"]
        for sink in ids:
            cell = cells.get((source, sink))
            if cell is None:
                row.append("<td></td>")
                continue
            share = _value(test, cell) / top
            colour = f"hsl({120 * share:.0f},70%,80%)"
            bad = f" ({cell.errors} errors)" if cell.errors else ""
            row.append(f'<td style="background:{colour}">{_value(test, cell):.1f}{bad}</td>')
        lines.append("<tr>" + "".join(row) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _value(test: TestResult, cell: Cell) -> float:
    return cell.rate if test.kind == "ping" else cell.bandwidth
