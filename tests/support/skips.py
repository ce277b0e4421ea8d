"""A skipped test is named at the end of the run; with CI=true it is a failure."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

ALLOWED_IN_CI: frozenset[str] = frozenset()  # node IDs; each needs a reason here

_in_ci = os.environ.get("CI", "").lower() in ("1", "true", "yes")


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why it was skipped."""
    longrepr = report.longrepr
    text = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")


def _fail_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if _in_ci and report.skipped and not hasattr(report, "wasxfail") and report.nodeid not in ALLOWED_IN_CI:
        report.longrepr = f"{report.nodeid} was skipped, and in CI every test must run: {reason_of(report)}"
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
