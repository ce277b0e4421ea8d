"""A recipe whose runs fail wherever there is a PUT; other processes find it by its name."""

from __future__ import annotations

from ulnet.sim.random_run import Recipe, random_plan
from ulnet.sim.run import Run

__all__ = ["RECIPE"]


def never_well(run: Run) -> None:
    """Judge it so."""
    run.judges.append(lambda run: "planted" if any(one.kind == "put" for one in run.operations) else "")


RECIPE = Recipe(plan=random_plan, prepare=(never_well,), about="fails wherever there is a PUT")
