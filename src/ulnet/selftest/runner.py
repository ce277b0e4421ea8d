"""Runs a plan: commands to a console, counters in between, and a report."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from ulnet.core.status import LNetError
from ulnet.dlc import model_selftest as ask
from ulnet.dlc.documents_selftest import (
    ActiveDocument,
    CountersDocument,
    GroupDocument,
    NodeCounters,
    NodeView,
)
from ulnet.selftest.members import read_ids
from ulnet.selftest.plan import Matrix, Plan, TestPlan
from ulnet.selftest.report import Cell, NodeResult, RailResult, Report, Sample, TestResult, judge

__all__ = ["Ask", "Progress", "run_plan"]

_MIB: Final = float(1 << 20)
_PATIENCE: Final = 80.0  # seconds for tests to end that were stopped

Ask = Callable[[ask.Command], Awaitable[Any]]
Progress = Callable[[str, float, Sample], None]
_Counters = dict[str, NodeCounters]


async def run_plan(
    plan: Plan, do: Ask, progress: Progress = lambda name, share, sample: None, *, force: bool = False
) -> Report:
    """Run all of a plan in a session of its own, and end that. `do` raises LNetError, which ends the run."""
    report = Report(plan.name, time.time())
    try:
        await do(ask.SessionNew(plan.name, 0, force, plan.features))
    except LNetError as refused:
        report.error = refused.text
        return report
    try:
        await _run(plan, do, progress, report)
    except LNetError as failed:
        report.error = failed.text
    finally:
        with suppress(LNetError):
            await do(ask.SessionEnd())
    return report


async def _run(plan: Plan, do: Ask, progress: Progress, report: Report) -> None:
    for name, ids in plan.groups.items():
        _must_be_active(await do(ask.GroupAdd(name, ids)))
    for number, test in enumerate(plan.tests):
        report.tests.append(await _Run(plan, do, progress).test(f"test-{number}", test))
    if plan.matrix is not None:
        report.tests.append(await _Run(plan, do, progress).matrix(plan.matrix))


def _must_be_active(document: GroupDocument) -> None:
    for node in document.groups[0].nodes:
        if node.state != "active":
            raise LNetError(errno.ENODEV, f"{node.id} is {node.state}: {node.error}")


class _Run:
    """One test, or one matrix."""

    def __init__(self, plan: Plan, do: Ask, progress: Progress) -> None:
        self._plan = plan
        self._do = do
        self._progress = progress

    async def test(self, batch: str, test: TestPlan) -> TestResult:
        """Run a test between two groups."""
        distribute, span = test.ratio()
        # fmt: off
        added = ask.TestAdd(
            test.source, test.sink, batch, -1, test.concurrency, distribute, span, test.load(),
            test.stop_on_error,
        )
        # fmt: on
        await self._do(ask.BatchAdd(batch))
        lacks = await self._do(added)
        everybody = [test.source] if test.source == test.sink else [test.source, test.sink]
        before = await self._counters(everybody)
        before.update((one.id, NodeCounters(one.id, error=_not_in(one))) for one in _nodes(lacks))
        clients = list(await self._counters([test.source]))
        began = _now()
        await self._do(ask.BatchRun(batch))
        samples, last = [], before
        while _now() < began + test.seconds:
            await asyncio.sleep(min(self._plan.interval, max(began + test.seconds - _now(), 0.01)))
            now = await self._counters(everybody)
            samples.append(_sample(clients, before, last, now, _now() - began))
            self._progress(test.name, min((_now() - began) / test.seconds, 1.0), samples[-1])
            last = now
        await self._stop([batch])
        result = TestResult(test.name, _kind(test.brw), test.seconds, 0.0, 0.0, 0)
        result.samples = samples
        result.nodes = [_node(name, before.get(name), last.get(name)) for name in clients]
        result.rails = [rail for name in last for rail in _rails(name, before.get(name), last[name])]
        known = {rail.node for rail in result.rails}
        result.no_rails = [name for name in last if name not in known]
        result.bandwidth = sum(node.bandwidth for node in result.nodes)
        result.rate = sum(node.rate for node in result.nodes)
        # What was under way when the batch was stopped may fail, and does not count.
        everyone = _each(before, last)
        result.errors = sum(node.errors for node in everyone)
        result.lost = {node.id: node.lost for node in everyone if node.lost}
        judge(result, test.expect)
        return result

    async def matrix(self, matrix: Matrix) -> TestResult:
        """Run every pair of a group's nodes, in rounds."""
        nodes = [str(nid) for nid in read_ids(self._plan.groups[matrix.group])]
        names = {node: f"node-{number}" for number, node in enumerate(nodes)}
        for node, name in names.items():
            _must_be_active(await self._do(ask.GroupAdd(name, [node])))
        result = TestResult("matrix", _kind(matrix.brw), matrix.seconds, 0.0, 0.0, 0)
        rounds = pairs_in_rounds(nodes, matrix.flows)
        for number, pairs in enumerate(rounds):
            await self._round(matrix, names, number, pairs, result)
            spread = {f"{cell.source} to {cell.sink}": cell.bandwidth for cell in result.cells[-len(pairs) :]}
            errors = sum(cell.errors for cell in result.cells)
            self._progress("matrix", (number + 1) / len(rounds), Sample(float(number), spread, errors))
        result.bandwidth = sum(cell.bandwidth for cell in result.cells) / max(len(result.cells), 1)
        result.rate = sum(cell.rate for cell in result.cells) / max(len(result.cells), 1)
        result.errors = sum(cell.errors for cell in result.cells)
        judge(result, matrix.expect)
        return result

    async def _round(
        self,
        matrix: Matrix,
        names: dict[str, str],
        number: int,
        pairs: Sequence[tuple[str, str]],
        result: TestResult,
    ) -> None:
        batches = [f"pair-{number}-{index}" for index in range(len(pairs))]
        for batch, (source, sink) in zip(batches, pairs, strict=True):
            await self._do(ask.BatchAdd(batch))
            # fmt: off
            await self._do(ask.TestAdd(
                names[source], names[sink], batch, -1, matrix.concurrency, 1, 1, matrix.load(),
                matrix.stop_on_error,
            ))
            # fmt: on
        of = [names[node] for pair in pairs for node in pair]
        await asyncio.gather(*(self._do(ask.BatchRun(batch)) for batch in batches))
        before = await self._counters(of)
        await asyncio.sleep(matrix.seconds)
        after = await self._counters(of)
        await self._stop(batches)
        nodes = {node.id: node for node in _each(before, after)}
        for source, sink in pairs:
            node, errors = nodes[source], nodes[source].errors + nodes[sink].errors
            result.cells.append(Cell(source, sink, node.bandwidth, node.rate, errors))
        result.lost.update((node.id, node.lost) for node in nodes.values() if node.lost)

    async def _counters(self, groups: Sequence[str]) -> _Counters:
        document = await self._do(ask.Counters(list(groups), rails=True))
        assert isinstance(document, CountersDocument)
        return {node.id: node for view in document.of for node in view.nodes}

    async def _stop(self, batches: Sequence[str]) -> None:
        """Stop, and wait until nothing runs, for a while."""
        await asyncio.gather(*(self._do(ask.BatchStop(batch)) for batch in batches))
        give_up = _now() + _PATIENCE
        for batch in batches:
            while _now() < give_up:
                told = await self._do(ask.BatchQuery(batch))
                assert isinstance(told, ActiveDocument)
                if not any(node.active for node in told.nodes):
                    break
                await asyncio.sleep(0.2)
            else:
                await self._do(ask.BatchStop(batch, force=True))


def pairs_in_rounds(nodes: Sequence[str], flows: int) -> list[list[tuple[str, str]]]:
    """All ordered pairs of different nodes; in each round at most `flows`, and no node twice."""
    left = [(one, other) for step in range(1, len(nodes)) for one, other in _shifted(nodes, step)]
    rounds: list[list[tuple[str, str]]] = []
    while left:
        used: set[str] = set()
        taken: list[tuple[str, str]] = []
        rest: list[tuple[str, str]] = []
        for pair in left:
            if len(taken) < flows and used.isdisjoint(pair):
                taken.append(pair)
                used.update(pair)
            else:
                rest.append(pair)
        rounds.append(taken)
        left = rest
    return rounds


def _shifted(nodes: Sequence[str], step: int) -> Iterable[tuple[str, str]]:
    return ((node, nodes[(index + step) % len(nodes)]) for index, node in enumerate(nodes))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _kind(brw: str | None) -> str:
    return f"brw {brw}" if brw else "ping"


def _bulk(node: NodeCounters) -> int:
    return node.rpc.get("bulk_get", 0) + node.rpc.get("bulk_put", 0)


def _nodes(document: GroupDocument) -> Iterable[NodeView]:
    return (node for group in document.groups for node in group.nodes)


def _not_in(node: NodeView) -> str:
    return f"it is {node.state}, and not in the test: {node.error}"


def _errors(node: NodeCounters) -> int:
    """What its session counted."""
    return node.framework.get("brw_errors", 0) + node.framework.get("ping_errors", 0)


def _each(before: _Counters, after: _Counters) -> list[NodeResult]:
    """What all nodes did between two looks."""
    return [_node(name, before.get(name), after.get(name)) for name in {**before, **after}]


def _node(name: str, before: NodeCounters | None, after: NodeCounters | None) -> NodeResult:
    """What a node did between two looks; one that was lost counts as an error."""
    lost = next((one.error for one in (before, after) if one is not None and one.error), "")
    if lost or before is None or after is None or after.at <= before.at:
        return NodeResult(name, 0.0, 0.0, 1, lost or "it was not asked")
    if _began_anew(before, after):
        return NodeResult(name, 0.0, 0.0, 1, "its counters fell: its session there began anew")
    elapsed = after.at - before.at
    bandwidth = (_bulk(after) - _bulk(before)) / elapsed / _MIB
    rate = max(after.rpc.get("rpcs_sent", 0) - before.rpc.get("rpcs_sent", 0), 0) / elapsed
    return NodeResult(name, bandwidth, rate, _errors(after) - _errors(before))


def _began_anew(before: NodeCounters, after: NodeCounters) -> bool:
    """Whether something fell that only grows; 32 bits of requests may run over."""
    grow = [(_bulk(one), _errors(one), one.framework.get("running_ms", 0)) for one in (before, after)]
    return any(late < early for early, late in zip(*grow, strict=True))


def _rails(name: str, before: NodeCounters | None, after: NodeCounters) -> list[RailResult]:
    """What each rail of a node did, where that is known."""
    if before is None or after.at <= before.at:
        return []
    elapsed = after.at - before.at
    found = []
    for rail, late in after.rails.items():
        early = before.rails.get(rail, {})
        more = {key: max(count - early.get(key, 0), 0) for key, count in late.items()}
        bandwidth = (more["bulk_get"] + more["bulk_put"]) / elapsed / _MIB
        found.append(RailResult(name, rail, bandwidth, more["answered"] / elapsed, more["errors"]))
    return found


def _sample(clients: Sequence[str], first: _Counters, last: _Counters, now: _Counters, at: float) -> Sample:
    spread = {name: _node(name, last.get(name), now.get(name)).bandwidth for name in clients}
    rails = {
        name: {one.rail: one.bandwidth for one in _rails(name, last.get(name), node)}
        for name, node in now.items()
        if node.rails
    }
    return Sample(at, spread, sum(node.errors for node in _each(first, now)), rails)
