"""A skipped test is named at the end of the run; with CI=true it is a failure, but for the reasons below."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from support.shared import NO_HISTORY, NOT_BESIDE

# What a checkout alone cannot have: no package brings it, and the project may not hold copies of all of it.
ALLOWED_IN_CI = (NOT_BESIDE, NO_HISTORY)

_in_ci = os.environ.get("CI", "").lower() in ("1", "true", "yes")


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why it was skipped."""
    longrepr = report.longrepr
    text = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")


def _fail_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not _in_ci or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = reason_of(report)
    if not reason.startswith(ALLOWED_IN_CI):
        report.longrepr = f"{report.nodeid} was skipped, and in CI every test must run: {reason}"
        report.outcome = "failed"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_in_ci(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.write_sep("!", f"{len(skipped)} NOT RUN", yellow=True, bold=True)
    for report in skipped:
        terminalreporter.write_line(f"NOT RUN {report.nodeid}: {reason_of(report)}", yellow=True)
