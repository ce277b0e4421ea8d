"""The benchmark of selftest's bulk: each way moves something, and ratios are those of single rounds."""

from __future__ import annotations

import pytest

import brw
from brw import Run


@pytest.mark.requirement("LST")
def test_each_way_moves_bulk() -> None:
    told: list[str] = []
    measured = brw.measure(1, 0.1, told.append)
    assert [f"bulk of selftest, {build}" for build in measured] == told and "pure" in measured
    results = measured["pure"]
    assert all(runs[0].rate > 0 for runs in results.values())
    rows = brw.cells(results, "pure")
    assert [row[0] for row in rows] == list(brw.NAMES) and all(len(row) == len(brw.HEADS) for row in rows)


def test_ratios_are_of_rounds() -> None:
    results = {name: [Run(100.0, 0.1), Run(50.0, 0.1), Run(10.0, 0.1)] for name in brw.NAMES}
    results["brw read"] = [Run(90.0, 0.1), Run(40.0, 0.1), Run(1.0, 0.1)]
    assert brw.ratio(results, "brw read") == 0.8
    assert brw.ratio(results, "brw write") == 1.0
