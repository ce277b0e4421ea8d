"""The parts of the page that are measured by themselves: rails, a failing rail, the choice of a path, …"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import access
import brw
import calls
import choice
import crowd
import secured
import sessions
import simulator
import small_rails
import start
from players import builds
from report import machine, origin

NAMES = (
    "choice",
    "calls",
    "crowd",
    "start",
    "rails",
    "failover",
    "routed",
    "selftest",
    "dask",
    "secured",
    "access",
    "simulator",
)
CHOICE_ROUNDS, CHOICES = 15, 5000
SMALL_ROUNDS, SMALL = 3, 20_000
START_ROUNDS = 5
CALL_ROUNDS, CALL_SECONDS = 3, 1.0
# What gives steady figures is measured but once or twice, so that all of it takes a quarter of an hour.
RAIL_ROUNDS, RAIL_SECONDS = 1, 3.0
FAILOVER_ROUNDS = 1
ROUTED_ROUNDS, ROUTED_SECONDS = 2, 4.0
DASK_ROUNDS = 2
SECURED_ROUNDS = 9  # C is at one of two speeds, a third apart, for seconds at a time
ACCESS_ROUNDS = 31
SIMULATOR_ROUNDS = 2

Tell = Callable[[str], None]
Table = tuple[str, list[str], list[list[str]]]  # what it shows, headings, rows


@dataclass(slots=True)
class Section:
    """What was measured, ready to be shown."""

    name: str
    title: str
    how: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    runs: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)  # for its aims
    origin: str = ""  # of which code, day and machine


def measure(name: str, quick: bool, rounds: int | None, tell: Tell) -> Section | None:
    """Measure one section; None where this machine cannot, after telling why."""
    load = os.getloadavg()[0]
    where = origin(machine())
    makers = {
        "choice": _choice,
        "calls": _calls,
        "crowd": _crowd,
        "start": _start,
        "rails": _rails,
        "failover": _failover,
        "routed": _routed,
        "selftest": _selftest,
        "dask": _dask,
        "secured": _secured,
        "access": _access,
        "simulator": _simulator,
    }
    section = makers[name](quick, rounds, tell)
    if section is not None:
        section.origin = where
        section.how.append(f"{where}; load average before: {load:.2f}.")
    return section


def _choice(quick: bool, rounds: int | None, tell: Tell) -> Section:
    tell("the choice of a path")
    costs = choice.measure(rounds or (3 if quick else CHOICE_ROUNDS), CHOICES // (10 if quick else 1))
    small = small_rails.measure(rounds or (1 if quick else SMALL_ROUNDS), SMALL // (10 if quick else 1))
    section = Section("choice", "Choice of a path", [choice.HOW])
    section.runs = {**choice.to_dict(costs), **small_rails.to_dict(small)}
    section.tables.append(("", choice.HEADS, choice.cells(costs)))
    section.tables.append((small_rails.HOW, small_rails.HEADS, small_rails.cells(small)))
    section.figures = {
        "16×16, in batches": 1 / choice.ratio(costs, "16×16 on one net, batches"),
        "16×16, one by one": 1 / choice.ratio(costs, "16×16 on one net"),
    }
    return section


def _calls(quick: bool, rounds: int | None, tell: Tell) -> Section:
    seconds = CALL_SECONDS / (2 if quick else 1)
    clients = crowd.peers_possible(calls.CLIENTS // (5 if quick else 1))
    results = calls.measure(rounds or (1 if quick else CALL_ROUNDS), seconds, clients, tell)
    section = Section("calls", "Calls", [calls.HOW], runs=calls.to_dict(results))
    for where, runs in results.small.items():
        section.tables.append((f"64 tasks, {where}", calls.SMALL_HEADS, calls.small_cells(runs)))
    for where, runs in results.bulk.items():
        section.tables.append((f"Bulk, {where}", calls.BULK_HEADS, calls.bulk_cells(runs)))
    section.tables.append(("Many clients of one server", calls.CROWD_HEADS, calls.crowd_cells(results.crowd)))
    section.tables.append(("Memory", calls.MEMORY_HEADS, calls.memory_cells(results.memory)))
    section.figures = calls.figures(results)
    return section


def _crowd(quick: bool, rounds: int | None, tell: Tell) -> Section:
    peers = crowd.peers_possible(crowd.PEERS // (5 if quick else 1))
    hubs = crowd.measure(peers, crowd.SECONDS / (3 if quick else 1), tell)
    section = Section("crowd", "Many peers", [crowd.how(hubs)], runs=dict(hubs))
    section.tables.append(("Messages", crowd.RATE_HEADS, crowd.rate_cells(hubs)))
    section.tables.append(("Beside plain sockets", crowd.BESIDE_HEADS, crowd.beside_cells(hubs)))
    section.tables.append(("Their cost", crowd.CPU_HEADS, crowd.cpu_cells(hubs)))
    section.tables.append(("Where it is", crowd.SHARE_HEADS, crowd.share_cells(hubs)))
    section.tables.append(("Memory", crowd.MEMORY_HEADS, crowd.memory_cells(hubs)))
    section.figures = {
        build: {
            **hub,
            "ratios": {shape: crowd.ratio(hub, shape) for shape in hub["all"]},
            "growth": {shape: crowd.ratio(hub, shape, against="few") for shape in hub["all"]},
        }
        for build, hub in hubs.items()
    }
    return section


def _start(quick: bool, rounds: int | None, tell: Tell) -> Section:
    starts = start.measure(rounds or (1 if quick else START_ROUNDS), tell)
    section = Section("start", "Starting", [start.HOW], runs=asdict(starts))
    section.tables.append(("", start.HEADS, start.cells(starts)))
    return section


def _rails(quick: bool, rounds: int | None, tell: Tell) -> Section | None:
    import rails  # needs pytest, which the tests' namespaces are fixtures of

    if lacking := rails.lacking():
        tell(f"rails: left out, {lacking}; this part needs root and network namespaces")
        return None
    rounds, seconds = rounds or (1 if quick else RAIL_ROUNDS), 1.0 if quick else RAIL_SECONDS
    results = rails.measure(rounds, seconds, tell)
    section = Section("rails", "Several rails", runs=rails.to_dict(results))
    section.how = [rails.how(rounds, seconds), rails.subflows(results)]
    section.tables.append(("Steady stream, share of the rails' capacity", *rails.stream_cells(results)))
    section.tables.append(
        (
            f"Short batches, share of the ideal. {rails.how_batches()}",
            *rails.batch_cells(results),
        )
    )
    return section


def _failover(quick: bool, rounds: int | None, tell: Tell) -> Section | None:
    import failover  # needs pytest, as rails do
    import rails

    if lacking := rails.lacking():
        tell(f"failover: left out, {lacking}; this part needs root and network namespaces")
        return None
    rounds = rounds or (1 if quick else FAILOVER_ROUNDS)
    results = failover.measure(rounds, tell, 0.5 if quick else 1.0)
    section = Section("failover", "A rail fails", runs=failover.to_dict(results))
    section.how = [failover.how(rounds), failover.meaning()]
    section.tables.append(("", failover.HEADS, failover.cells(results)))
    return section


def _routed(quick: bool, rounds: int | None, tell: Tell) -> Section | None:
    import routed  # needs pytest, as rails do

    if lacking := routed.lacking():
        tell(f"a router: left out, {lacking}; this part needs root and network namespaces")
        return None
    rounds, seconds = rounds or (1 if quick else ROUTED_ROUNDS), 2.0 if quick else ROUTED_SECONDS
    results, killed = routed.measure(rounds, seconds, tell)
    section = Section("routed", "Over a router", [routed.how(rounds, seconds)])
    section.runs = routed.to_dict(results, killed)
    section.tables.append(("", *routed.cells(results)))
    section.tables.append(("", *routed.killed_cells(killed)))
    return section


def _selftest(quick: bool, rounds: int | None, tell: Tell) -> Section:
    measured = brw.measure(rounds or (1 if quick else brw.ROUNDS), 0.5 if quick else brw.SECONDS, tell)
    section = Section("selftest", "Bulk of selftest", [brw.HOW])
    section.runs = {build: brw.to_dict(results) for build, results in measured.items()}
    rows = [row for build, results in measured.items() for row in brw.cells(results, build)]
    section.tables.append(("", brw.HEADS, rows))
    simulated = sessions.measure_simulated(sessions.NODES[:1] if quick else sessions.NODES, tell)
    section.runs["sessions"] = {name: asdict(one) for name, one in simulated.items()}
    section.tables.append(
        (sessions.SIMULATED_HOW, sessions.SIMULATED_HEADS, sessions.simulated_cells(simulated))
    )
    report = sessions.measure_processes(
        4 if quick else sessions.PROCESSES, 0.5 if quick else sessions.SECONDS, tell
    )
    section.runs["processes"] = report
    section.tables.append((sessions.PROCESSES_HOW, sessions.PROCESSES_HEADS, sessions.process_cells(report)))
    section.figures = {
        f"{name}, {build}": brw.ratio(results, name)
        for build, results in measured.items()
        for name in ("brw write", "brw read")
    }
    return section


def _dask(quick: bool, rounds: int | None, tell: Tell) -> Section | None:
    import dask_rails  # needs pytest, as rails do

    if lacking := dask_rails.lacking():
        tell(f"dask: left out, {lacking}; this part needs root and network namespaces")
        return None
    rounds, side = rounds or (1 if quick else DASK_ROUNDS), dask_rails.SIDE // (4 if quick else 1)
    times = dask_rails.measure(rounds, side, tell)
    section = Section("dask", "Dask", [dask_rails.how(rounds, side)], runs=dask_rails.to_dict(times))
    section.tables.append(("", dask_rails.HEADS, dask_rails.cells(times)))
    section.figures = dask_rails.figures(times)
    return section


def _secured(quick: bool, rounds: int | None, tell: Tell) -> Section:
    times = secured.measure(rounds or (1 if quick else SECURED_ROUNDS), quick, tell)
    section = Section("secured", "Secured connections", [secured.HOW], runs=secured.to_dict(times))
    section.tables.append(("", secured.HEADS, secured.cells(times)))
    section.figures = secured.figures(times)
    return section


def _access(quick: bool, rounds: int | None, tell: Tell) -> Section:
    times = access.measure(rounds or (2 if quick else ACCESS_ROUNDS), quick, tell)
    section = Section("access", "Access lists", [access.HOW], runs=access.to_dict(times))
    section.tables.append(("", access.HEADS, access.cells(times)))
    section.figures = access.figures(times)
    return section


def _simulator(quick: bool, rounds: int | None, tell: Tell) -> Section:
    speeds: simulator.Speeds = {}
    messages = simulator.MESSAGES // (10 if quick else 1)
    for nodes in simulator.NODES[:2] if quick else simulator.NODES:
        for _ in range(rounds or (1 if quick else SIMULATOR_ROUNDS)):
            for build in (*(["before"] if simulator.former() else []), *builds()):
                tell(f"the simulator with {nodes} nodes, {build}")
                speed = simulator.measure_in(build, nodes, messages)
                speeds.setdefault((build, nodes), []).append(speed)
    section = Section("simulator", "The simulator", [simulator.HOW], runs=simulator.to_dict(speeds))
    section.tables.append(("", simulator.HEADS, simulator.cells(speeds)))
    ratios = simulator.ratios(speeds, "compiled")
    section.figures = {f"{nodes:,} nodes": found for nodes, found in ratios.items()}
    return section


def markdown(section: Section) -> str:
    """The section's part of the page."""
    lines = [f"## {section.title}"]
    for text in section.how:
        lines += ["", text]
    for what, heads, rows in section.tables:
        if what:
            lines += ["", what]
        lines += ["", _row(heads), "| --- |" + " ---: |" * (len(heads) - 1), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
