"""The picture of `ulnet sim --plot`: goodput per rail over virtual time, with the faults."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ulnet.cli.files import write_bytes
from ulnet.sim.meter import Meter, marks

if TYPE_CHECKING:
    from ulnet.sim.run import Run

__all__ = ["plot"]

_MOST_MARKS = 40


def plot(run: Run, meter: Meter, path: str) -> None:
    """Write it to a .png or .svg file, whole or not at all. Raises OSError."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.add_subplot()
    faults = marks(run)[:_MOST_MARKS]
    busy = max((max(ticks) for ticks in meter.bytes.values()), default=0) * 1e-4
    until = max([busy * 1.02, *(at * 1.02 for at, _ in faults)], default=1.0) or 1.0
    times, rails = meter.curves(until)
    for name, values in rails.items():
        axes.step(times, [value / 1e6 for value in values], where="post", label=f"rail {name}")
    top = axes.get_ylim()[1]
    for at, what in faults:
        axes.axvline(at, color="grey", linestyle=":", linewidth=0.8)
        axes.text(at, top, what, rotation=90, fontsize=7, ha="right", va="top", color="dimgrey")
    axes.set_xlim(0, until)
    axes.set_ylim(0, top)
    axes.set_xlabel("virtual seconds")
    axes.set_ylabel("MB/s that arrived")
    axes.set_title(run.plan.name or "simulation")
    if rails:
        axes.legend(loc="lower right")
    drawn = BytesIO()
    figure.savefig(drawn, format=Path(path).suffix[1:])
    write_bytes(path, drawn.getvalue())
