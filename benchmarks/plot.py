"""The benchmark's runs as a picture: a panel for each work, a bar for each player, every run a dot."""

from __future__ import annotations

from pathlib import Path

from report import Row, is_bulk
from work import Work

COLOURS = {"ulnet": "#1f6feb", "C program": "#57606a", "plain": "#8c959f"}
OTHER = "#d4a72c"
_COLUMNS = 2


def draw(works: list[tuple[Work, list[Row]]], path: Path, caption: str) -> None:
    """Write an SVG (or what the path's suffix says)."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ulnet"  # the same figures, the same file
    from matplotlib import pyplot

    works = [(work, rows) for work, rows in works if rows]
    lines = -(-len(works) // _COLUMNS) or 1
    figure, panels = pyplot.subplots(lines, _COLUMNS, figsize=(12, 2.9 * lines), squeeze=False)
    for panel in panels.flat[len(works) :]:
        panel.set_axis_off()
    for panel, (work, rows) in zip(panels.flat, works, strict=False):
        names = [row.competitor.title for row in rows]
        latency = work.kind == "roundtrip"
        values = [row.p50_us if latency else row.rate for row in rows]
        panel.barh(names, values, color=[_colour(name) for name in names])
        for place, row in enumerate(rows):
            found = row.latencies if latency else row.rates
            panel.plot(found, [place] * len(found), "k.", markersize=3)
        unit = "p50, µs (less is better)" if latency else ("GiB/s" if is_bulk(work) else "thousand/s")
        panel.set_title(f"{work.title}: {unit}", fontsize=9, loc="left")
        panel.invert_yaxis()
        panel.tick_params(labelsize=7)
    figure.suptitle(caption, fontsize=7, x=0.01, ha="left", wrap=True)
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _colour(name: str) -> str:
    return next((colour for prefix, colour in COLOURS.items() if name.startswith(prefix)), OTHER)
