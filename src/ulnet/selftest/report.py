"""What a plan's run has shown: as values, as JSON, and beside an earlier run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ulnet.selftest.plan import Expect

__all__ = [
    "Cell",
    "Difference",
    "Met",
    "NodeResult",
    "RailResult",
    "Report",
    "Sample",
    "TestResult",
    "compare",
    "judge",
    "rails_unknown",
]


class Sample(msgspec.Struct):
    """MiB/s of each client between two looks, `at` seconds after the test began; errors until then.

    `rails` has MiB/s of each rail of the nodes of which they are known.
    """

    at: float
    bandwidth: dict[str, float]
    errors: int
    rails: dict[str, dict[str, float]] = {}


class NodeResult(msgspec.Struct):
    """One client over the whole test: MiB/s, requests/s, and errors of its session; 1 where it was lost."""

    id: str
    bandwidth: float
    rate: float
    errors: int
    lost: str = ""  # why it could not be asked in the end, or what it told cannot be compared


class RailResult(msgspec.Struct):
    """One rail of a client or server over the whole test: MiB/s, requests/s, errors that LNet counted."""

    node: str
    rail: str
    bandwidth: float
    rate: float
    errors: int


class Met(msgspec.Struct):
    """One expectation, what was found, and whether that is enough."""

    what: str
    wanted: float
    found: float
    met: bool


class Cell(msgspec.Struct):
    """One pair of a matrix: MiB/s (of pings: requests/s), errors."""

    source: str
    sink: str
    bandwidth: float
    rate: float
    errors: int


class TestResult(msgspec.Struct):
    """One test, or a matrix, where `cells` are its pairs. `no_rails` are nodes whose rails are not known.

    `lost` are clients and servers that were lost, and why; each is one of the errors.
    """

    __test__ = False

    name: str
    kind: str
    seconds: float
    bandwidth: float
    rate: float
    errors: int
    nodes: list[NodeResult] = []
    rails: list[RailResult] = []
    no_rails: list[str] = []
    lost: dict[str, str] = {}
    samples: list[Sample] = []
    cells: list[Cell] = []
    expectations: list[Met] = []


class Report(msgspec.Struct):
    """A run: `began` in seconds of the epoch, `error` why it ended before its time."""

    plan: str
    began: float
    tests: list[TestResult] = []
    error: str = ""

    @property
    def good(self) -> bool:
        """Whether all that was expected was found."""
        return not self.error and all(one.met for test in self.tests for one in test.expectations)


def judge(result: TestResult, expect: Expect) -> None:
    """Note what was expected of a test, and whether it was found."""
    for what, wanted, found in (
        ("bandwidth", expect.bandwidth, result.bandwidth),
        ("rate", expect.rate, result.rate),
        ("slowest", expect.slowest, _slowest(result)),
    ):
        if wanted is not None:
            result.expectations.append(Met(what, wanted, found, found >= wanted))
    if expect.errors is not None:
        result.expectations.append(
            Met("errors", expect.errors, result.errors, result.errors <= expect.errors)
        )


def rails_unknown(result: TestResult) -> str:
    """Of how many nodes the rails are not known, and why."""
    count = len(result.no_rails)
    whom = result.no_rails[0] if count == 1 else f"{count} nodes"
    return f"rails of {whom} are not known: nodes that are not ulnet's do not tell them"


def _slowest(result: TestResult) -> float:
    """The share of the mean that the slowest client, or pair, has."""
    parts = result.cells or result.nodes
    values = [part.rate if result.kind == "ping" else part.bandwidth for part in parts]
    mean = sum(values) / len(values) if values else 0.0
    return min(values) / mean if mean else 0.0


class Difference(msgspec.Struct):
    """One value of two reports; `change` is in percent of the first."""

    test: str
    what: str
    before: float
    after: float
    change: float
    worse: bool


def compare(before: Report, after: Report, tolerance: float) -> Iterator[Difference]:
    """How tests of one name differ; worse is what fell by more than `tolerance` percent, or failed more."""
    known = {test.name: test for test in before.tests}
    for test in after.tests:
        old = known.get(test.name)
        if old is None:
            continue
        yield _difference(test.name, "errors", old.errors, test.errors, test.errors > old.errors)
        what = "rate" if test.kind == "ping" else "bandwidth"
        for name, one, other in _rows(old, test):
            first, second = getattr(one, what), getattr(other, what)
            yield _difference(name, what, first, second, second < first * (1 - tolerance / 100))


def _rows(old: TestResult, new: TestResult) -> Iterator[tuple[str, TestResult | Cell, TestResult | Cell]]:
    """A test by itself, and the pairs of a matrix that both have."""
    yield new.name, old, new
    cells = {(cell.source, cell.sink): cell for cell in old.cells}
    for cell in new.cells:
        before = cells.get((cell.source, cell.sink))
        if before is not None:
            yield f"{new.name}: {cell.source} to {cell.sink}", before, cell


def _difference(name: str, what: str, before: float, after: float, worse: bool) -> Difference:
    change = (after - before) / before * 100 if before else 0.0
    return Difference(name, what, before, after, change, worse)
