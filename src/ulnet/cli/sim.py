"""`ulnet sim`: run a scenario file, or random clusters from seeds, in the simulator."""

from __future__ import annotations

import argparse
import re
import sys
import time
from importlib import import_module
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ulnet.cli.extras import how_to_add
from ulnet.cli.files import write_text
from ulnet.cli.parsers import command_parser
from ulnet.cli.screens import Screen
from ulnet.cli.sim_cluster import LOCAL, reports
from ulnet.cli.sim_report import Report, Sweep, print_report, report_of
from ulnet.cli.sim_work import Work, recipe_named
from ulnet.sim.errors import PlanError
from ulnet.sim.meter import Meter
from ulnet.sim.random_run import RECIPES
from ulnet.sim.run import Outcome
from ulnet.sim.scenario import read_scenario, scenario_text
from ulnet.sim.shrink import fails_alike, shrink

__all__ = ["main"]

_EXAMPLES = """\
examples:
  ulnet sim run scenarios/two-rails.yaml
  ulnet sim run scenarios/two-rails.yaml --seeds 1..100
  ulnet sim run scenarios/two-rails.yaml --plot rails.png
  ulnet sim --seeds 1..1000                random worlds, traffic and faults
  ulnet sim --recipe routed --seeds 1..100 only such with routers
  ulnet sim --seeds 1..100000 --on local   spread over processes, by Dask (needs ulnet[dask])
  ulnet sim --seed 4711 --trace            the same run again, with all that happened
  ulnet sim --seed 4711 --save small.yaml  if it fails: cut it down to a scenario file

recipes:
{recipes}
Exit status: 0 all did well, 1 something failed, 2 the words or the file are wrong.
"""
_USAGE = "ulnet sim run FILE [options]\n       ulnet sim --seed N | --seeds A..B [options]"
_SEEDS = re.compile(r"(\d+)\.\.(\d+)\Z")
_SHRINK_RUNS = 500


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet sim --help`."""
    words = list(argv)
    if words[:1] == ["run"]:
        words = words[1:]
        parser = _parser(with_file=True)
    else:
        parser = _parser(with_file=False)
    options = parser.parse_args(words)
    if not getattr(options, "file", None) and options.seed is None and options.seeds is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        return _Command(options).run()
    except PlanError as bad:
        print(f"ulnet sim: {bad}", file=sys.stderr)
        return 2


def _parser(with_file: bool) -> argparse.ArgumentParser:
    parser = command_parser(
        "ulnet sim run" if with_file else "ulnet sim",
        "Real nodes on a virtual network: a scenario from a file, or random ones from seeds.",
        _EXAMPLES.format(recipes=_recipes()),
        None if with_file else _USAGE,
    )
    if with_file:
        parser.add_argument("file", metavar="FILE", help="the scenario (YAML)")
        parser.add_argument("--plot", metavar="FILE", help="draw goodput per rail over time: .png or .svg")
    what = "whose invariants must hold, too" if with_file else "what random runs are made of"
    parser.add_argument(
        "--recipe",
        default="mixed",
        metavar="NAME",
        help=f"{what}: one of the recipes below, or MODULE:NAME (mixed)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="the seed of all chance")
    parser.add_argument("--seeds", type=_seeds, metavar="A..B", help="one run for each seed of a range")
    parser.add_argument(
        "--on",
        metavar="SCHEDULER",
        help=f"a Dask cluster that plays the seeds: its address, or `{LOCAL}`: a process for each CPU",
    )
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--json", action="store_true", help="one JSON object a run")
    parser.add_argument("--save", metavar="FILE", help="if a run fails: its plan, cut down, as a file")
    return parser


def _recipes() -> str:
    return "".join(f"  {name:<15} {recipe.about}\n" for name, recipe in sorted(RECIPES.items()))


def _seeds(text: str) -> range:
    found = _SEEDS.match(text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds: write it as 1..100")
    return range(int(found[1]), int(found[2]) + 1)


class _Command:
    """One call of `ulnet sim`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.file: str | None = getattr(options, "file", None)
        self.work = Work(read_scenario(self.file) if self.file is not None else None, options.recipe)
        recipe_named(options.recipe)  # raises for one that there is not
        self.plot: str | None = getattr(options, "plot", None)
        if self.plot is not None:
            _check_plot(self.plot)
        if options.on is not None and (options.trace or self.plot is not None):
            raise PlanError("--on plays seeds elsewhere: leave --trace and --plot to a run of one seed here")

    def run(self) -> int:
        """All runs that were asked for; 1 if one failed."""
        seeds = self._seeds()
        sweep = Sweep()
        if self.options.on is not None:
            self._elsewhere(seeds, sweep)
        else:
            for seed in seeds:
                sweep.add(self._one(seed, quiet=len(seeds) > 1))
        if len(seeds) > 1 and not self.options.json:
            print(sweep.summary())
        return 1 if sweep.failed else 0

    def _elsewhere(self, seeds: range, sweep: Sweep) -> None:
        """Have a cluster play all; the first that fails is played again here, to be cut down."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Screen(stderr=True)) as progress:
            task = progress.add_task(f"seeds on {self.options.on}", total=len(seeds))
            for report in reports(self.options.on, self.work, seeds):
                sweep.add(report)
                progress.update(task, advance=1)
                if report.failure:
                    progress.print(f"seed {report.seed}: FAILED: {report.failure}", highlight=False)
        if self.options.json:
            for report in sweep.in_order():
                print(report.as_json())
        if sweep.failed:
            seed = min(sweep.failed)
            self._after_failure(seed, self.work.play(seed))

    def _seeds(self) -> range:
        options = self.options
        if options.seeds is not None:
            return options.seeds  # type: ignore[no-any-return]  # argparse made it with _seeds
        seed = options.seed
        if seed is None:
            seed = self.work.plan.seed if self.work.plan is not None else 0
        return range(seed, seed + 1)

    def _one(self, seed: int, quiet: bool) -> Report:
        meter = Meter()
        began = time.perf_counter()
        outcome = self.work.play(seed, meter=meter, trace=self.options.trace)
        report = report_of(outcome, seed, time.perf_counter() - began)
        if self.options.trace:
            print("\n".join(outcome.run.sim.trace))
        if self.options.json:
            print(report.as_json())
        elif report.failure or not quiet:
            print_report(report)
        if report.failure:
            self._after_failure(seed, outcome)
        if self.plot is not None:
            from ulnet.cli.sim_plot import plot

            try:
                plot(outcome.run, meter, self.plot)
            except OSError as error:
                raise PlanError(f"{self.plot} cannot be written: {error.strerror}") from None
        return report

    def _after_failure(self, seed: int, outcome: Outcome) -> None:
        recipe = f"--recipe {self.options.recipe}"
        again = f"run {self.file} {recipe}" if self.file is not None else recipe
        print(f"the same again: ulnet sim {again} --seed {seed}", file=sys.stderr)
        if self.options.save is None:
            return
        fails = fails_alike(outcome, lambda plan: self.work.play(seed, plan=plan))
        smallest = shrink(outcome.run.plan, fails, _SHRINK_RUNS)
        try:
            write_text(self.options.save, scenario_text(smallest))
        except OSError as error:
            raise PlanError(f"{self.options.save} cannot be written: {error.strerror}") from None
        again = f"ulnet sim run {self.options.save} {recipe} --seed {seed}"
        print(f"cut down to {len(smallest.events)} events: {again}", file=sys.stderr)


def _check_plot(path: str) -> None:
    if Path(path).suffix not in (".png", ".svg"):
        raise PlanError(f"{path}: a plot is .png or .svg")
    try:
        import_module("matplotlib")
    except ImportError:
        raise PlanError(f"--plot needs matplotlib: {how_to_add('plot')}, or leave --plot out") from None
