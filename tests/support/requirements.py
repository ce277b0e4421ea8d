"""`@pytest.mark.requirement("snd-045")`: a mark that names no requirement ends the run."""

from __future__ import annotations

import pytest

from requirements_page import check_ids, read_promises


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    promises = read_promises()
    if problem := check_ids(promises):
        raise pytest.UsageError(problem)
    known = {promise.id for promise in promises}
    for item in items:
        for mark in item.iter_markers("requirement"):
            unknown = [name for name in mark.args if name not in known]
            if unknown or not mark.args:
                names = ", ".join(map(repr, unknown)) or "nothing"
                raise pytest.UsageError(
                    f"{item.nodeid}: the requirement mark names {names}, "
                    "which is no requirement; the IDs are in tests/data/requirement_ids.txt."
                )
