"""What was aimed at, and what a run shows: ratios between players over loopback, figures of the sections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from report import LOOPBACK, Row
from work import Work

Rows = dict[tuple[str, str], Row]  # by names of work and player


@dataclass(frozen=True, slots=True)
class Aim:
    """A ratio of two players' figures on one work: `at_least` that of the reference, or at most."""

    work: str
    player: str
    reference: str
    factor: float
    figure: str = "rate"  # or cpu, p50_us, p99_us
    most: bool = False


BULK = ("bulk-stream", "bulk-ack", "bulk-get")
PURE, COMPILED, SPIN = "ulnet_node", "ulnet_compiled", "ulnet_spin"
AIMS = [
    *(Aim(work, COMPILED, "c", 0.9) for work in BULK),
    *(Aim(work, COMPILED, "c", 1.2, "cpu", most=True) for work in BULK),
    *(Aim(work, COMPILED, "zmq_dealer", 2.0) for work in BULK),
    *(Aim(work, COMPILED, "grpc", 8.0) for work in BULK),
    *(Aim(work, COMPILED, "mpi", 1.0) for work in BULK),
    *(Aim(work, COMPILED, "sockets", 0.8) for work in ("128k-stream", "16k-stream")),
    *(Aim(work, COMPILED, "zmq_push", 1.2) for work in ("128k-stream", "16k-stream")),
    Aim("small-stream", PURE, "zmq_push", 1.0),
    Aim("small-stream", PURE, "zmq_dealer", 2.0),
    Aim("small-stream", COMPILED, "zmq_push", 2.0),
    Aim("small-ack", PURE, "zmq_dealer", 4.0),
    Aim("small-ack", COMPILED, "zmq_dealer", 8.0),
    Aim("small-roundtrip", COMPILED, "c", 1.25, "p50_us", most=True),
    *(
        Aim("small-roundtrip", COMPILED, "zmq_push", 1.0, figure, most=True)
        for figure in ("p50_us", "p99_us")
    ),
]
HEADS = ["", "of", "against", "aim", "shown", ""]
_FIGURES = {"rate": "rate", "cpu": "CPU", "p50_us": "p50", "p99_us": "p99"}

Line = list[str]


def of_loopback(works: list[tuple[Work, list[Row]]]) -> list[Line]:
    """Those of ulnet beside its competitors; what was not measured in this run says so."""
    rows: Rows = {(work.name, row.competitor.name): row for work, found in works for row in found}
    titles = {work.name: work.title for work, _ in works}
    table = [_ratio(aim, rows, titles) for aim in AIMS]
    spin = rows.get(("small-roundtrip", SPIN))
    title = titles.get("small-roundtrip", "small-roundtrip")
    p50 = spin.p50_us if spin else None
    return [*table, _absolute(title, "p50, spinning", "≤ 12 µs", p50, _at_most(12), " µs")]


def of_section(name: str, figures: dict[str, Any]) -> list[Line]:
    """Those of a section, by what it measured; none where nothing was aimed at."""
    return _SECTIONS[name](figures) if name in _SECTIONS else []


def _ratio(aim: Aim, rows: Rows, titles: dict[str, str]) -> Line:
    ours, other = rows.get((aim.work, aim.player)), rows.get((aim.work, aim.reference))
    build = {PURE: "pure", COMPILED: "compiled"}[aim.player]
    words = [titles.get(aim.work, aim.work), f"{_FIGURES[aim.figure]}, {build}"]
    words += [
        other.competitor.title if other else aim.reference,
        f"{'≤' if aim.most else '≥'} {aim.factor:g}×",
    ]
    if ours is None or other is None:
        return [*words, "not measured", ""]
    found = getattr(ours, aim.figure) / getattr(other, aim.figure)
    good = found <= aim.factor if aim.most else found >= aim.factor
    bound = "" if good or aim.reference == "c" else _bound(aim, rows.get((aim.work, "c")), other)
    return [*words, f"{found:.2f}×", _verdict(good) + bound]


def _bound(aim: Aim, c: Row | None, other: Row) -> str:
    """What a C program has of the same reference in the same run."""
    if c is None:
        return ""
    return f"; C {getattr(c, aim.figure) / getattr(other, aim.figure):.2f}×"


def _of_crowd(crowd: dict[str, Any]) -> list[Line]:
    table = []
    for build in ("pure", "compiled", "plain sockets"):
        hub = crowd.get(build, {})
        for ratios, other in (("ratios", "one peer"), ("growth", "64 peers")):
            for shape, found in (hub.get(ratios) or {"64 B": None}).items():
                what = f"many peers, {shape}"
                table.append(_absolute(what, f"rate, {build}", "≥ 0.85×", found, _at_least(0.85), "×", other))
    for what, name, most in (("known", "bare", 12), ("with its connections", "connected", 40)):
        found = crowd.get("pure", {}).get(name)
        kib = found / 1024 if found is not None else None
        table.append(
            _absolute(
                f"an idle peer with two rails, {what}", "memory", f"≤ {most} KiB", kib, _at_most(most), " KiB"
            )
        )
    return table


def _of_calls(figures: dict[str, Any]) -> list[Line]:
    table = []
    for kind, what, others in (
        ("echo", "calls of 64 B", _ECHO),
        ("fetch", "8 MiB fetched by a call", _FETCH),
    ):
        for name, found in figures.items():
            begin, _, rest = name.partition(", ")
            where, _, other = rest.partition(", ")
            if begin == kind:
                title, least = others[other]
                aim = f"≥ {least:g}×"
                table.append(
                    _absolute(f"{what}, {where}", "rate, compiled", aim, found, _at_least(least), "×", title)
                )
    many, memory = figures.get("crowd"), figures.get("memory")
    one = "one client, as many calls"
    table.append(_absolute("1,000 clients", "rate, compiled", "≥ 0.6×", many, _at_least(0.6), "×", one))
    table.append(
        _absolute("an idle client, at its server", "memory", "≤ 40 KiB", memory, _at_most(40), " KiB")
    )
    return table


def _of_choice(figures: dict[str, Any]) -> list[Line]:
    good, table = _at_least(0.8), []
    for way in ("in batches", "one by one"):
        found = figures.get(f"16×16, {way}")
        table.append(_absolute("16×16 NIs", f"rate of sends, {way}", "≥ 0.8×", found, good, "×", "1×1"))
    return table


def _of_dask(figures: dict[str, Any]) -> list[Line]:
    table = []
    for name, found in figures.items():
        least = 1.8 if name.endswith("two rails") else 1.0
        aim = f"≥ {least:g}×"
        table.append(
            _absolute(f"Dask, {name}", "rate", aim, found, _at_least(least), "×", "tcp://, one rail")
        )
    return table


def _of_secured(figures: dict[str, Any]) -> list[Line]:
    table = []
    for name, found in figures.items():
        other, _, build = name.partition(", ")
        size, title, least = _SECURED[other]
        table.append(
            _absolute(
                f"secured, {size}", f"rate, {build}", f"≥ {least:g}×", found, _at_least(least), "×", title
            )
        )
    return table


def _of_access(figures: dict[str, Any]) -> list[Line]:
    table = []
    for name, found in figures.items():
        work, _, build = name.rpartition(", ")
        what = f"access lists, {work}"
        table.append(
            _absolute(what, f"rate, {build}", "≥ 0.98×", found, _at_least(0.98), "×", "without rules")
        )
    return table


def _of_simulator(figures: dict[str, Any]) -> list[Line]:
    good, table = _at_least(4), []
    for nodes, found in figures.items():
        what = f"simulator, {nodes}"
        table.append(_absolute(what, "events/s, compiled", "≥ 4×", found, good, "×", "itself before"))
    return table


_ECHO = {
    "grpc": ("grpc.aio", 10),
    "zmq": ("zmq.asyncio DEALER/ROUTER", 3),
    "asyncio": ("asyncio protocol by hand", 0.7),
}
_SECURED = {
    "ssl": ("1 MiB", "Python `ssl` sockets", 0.9),
    "c": ("1 MiB", "C with OpenSSL", 0.8),
    "plain": ("64 B", "plain connections", 0.5),
}
_FETCH = {
    "gets": ("plain `get`s", 0.9),
    "zmq": ("zmq.asyncio DEALER/ROUTER", 2),
    "grpc": ("grpc.aio", 6),
}


def _of_selftest(figures: dict[str, Any]) -> list[Line]:
    good, table = _at_least(0.9), []
    for name, plain in (("brw write", "PUT"), ("brw read", "GET")):
        for build in ("pure", "compiled"):
            words = (f"selftest, {name} of 1 MiB", f"rate, {build}", "≥ 0.9×")
            table.append(_absolute(*words, figures.get(f"{name}, {build}"), good, "×", plain))
    return table


_SECTIONS = {
    "access": _of_access,
    "calls": _of_calls,
    "choice": _of_choice,
    "crowd": _of_crowd,
    "dask": _of_dask,
    "secured": _of_secured,
    "selftest": _of_selftest,
    "simulator": _of_simulator,
}
PARTS = (LOOPBACK, *_SECTIONS)  # of the page, for which something was aimed at


def _at_least(least: float) -> Callable[[float], bool]:
    return lambda found: found >= least


def _at_most(most: float) -> Callable[[float], bool]:
    return lambda found: found <= most


def _absolute(
    what: str,
    of: str,
    aim: str,
    found: float | None,
    good: Callable[[float], bool],
    unit: str,
    other: str = "–",
) -> Line:
    if found is None:
        return [what, of, other, aim, "not measured", ""]
    return [what, of, other, aim, f"{found:.3g}{unit}", _verdict(good(found))]


def _verdict(good: bool) -> str:
    return "reached" if good else "**missed**"


def markdown(title: str, origin: str, table: list[Line]) -> str:
    """A part's aims for the page, and what they are of; empty where there are none."""
    if not table:
        return ""
    text = [f"### {title}", "", f"{origin}.", ""]
    text += ["| " + " | ".join(HEADS) + " |", "| --- | --- | --- | ---: | ---: | --- |"]
    return "\n".join([*text, *("| " + " | ".join(line) + " |" for line in table)]) + "\n"
