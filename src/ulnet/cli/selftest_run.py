"""`ulnet selftest run` and `compare`: a plan of tests, its live picture and its reports."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any, Final

import msgspec
import yaml
from rich.live import Live
from rich.table import Table

from ulnet.cli.console_socket import console_socket
from ulnet.cli.files import Unreadable, probe_writing, read_text, write_text
from ulnet.cli.screens import Screen
from ulnet.core.status import LNetError
from ulnet.dlc import documents_selftest as told
from ulnet.dlc import model_selftest as ask
from ulnet.dlc.aclient import AsyncClient
from ulnet.dlc.client import no_daemon
from ulnet.dlc.errors import DlcError
from ulnet.dlc.paths import default_socket
from ulnet.dlc.protocol import document_of
from ulnet.node import Node
from ulnet.selftest.addition import SelftestAddition
from ulnet.selftest.html import as_html
from ulnet.selftest.plan import Plan, PlanError, read_plan
from ulnet.selftest.report import Difference, Report, Sample, TestResult, compare, rails_unknown
from ulnet.selftest.runner import Ask, Progress, run_plan

__all__ = ["Picture", "compare_reports", "report_lines", "run"]

_DEADLINE: Final = 300.0
_BAR: Final = 20  # characters, at most
_DOCUMENTS: Final[dict[type[Any], Any]] = {
    ask.SessionNew: told.SessionDocument,
    ask.GroupAdd: told.GroupDocument,
    ask.TestAdd: told.GroupDocument,
    ask.Counters: told.CountersDocument,
    ask.BatchStop: told.ActiveDocument,
    ask.BatchQuery: told.ActiveDocument,
}

MakeNode = Callable[[], Awaitable[tuple[Node, SelftestAddition]]]


def run(options: argparse.Namespace, make_node: MakeNode, runner: asyncio.Runner) -> int:
    """Run a plan: exit status 0 where all was as expected, 1 where not, 2 for a plan that cannot be."""
    try:
        plan = read_plan(yaml.safe_load(read_text(options.files[0])))
    except (PlanError, Unreadable) as bad:
        print(f"ulnet selftest: {options.files[0]}: {bad}", file=sys.stderr)
        return 2
    except yaml.YAMLError as bad:
        print(f"ulnet selftest: {options.files[0]}: no YAML: {' '.join(str(bad).split())}", file=sys.stderr)
        return 2
    path = _who_answers() if options.socket is None else _answering(options.socket)
    reports = [path for path in (options.json, options.html) if path is not None]
    for file in reports:  # what cannot be written is told before an hour of tests
        with _writing(file):
            probe_writing(file)
    screen = Screen()
    picture = Picture(plan)
    with Live(picture.table(), console=screen, transient=True) if screen.is_terminal else _Still() as live:

        def progress(name: str, share: float, sample: Sample) -> None:
            picture.look(name, share, sample)
            live.update(picture.table())

        report = runner.run(_run(plan, options, make_node, path, progress))
    for line in report_lines(report):
        print(line)
    for file in reports:
        with _writing(file):
            write_text(file, as_html(report) if file == options.html else as_json(report))
    return 0 if report.good else 1


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """What is written there. Raises LNetError where that fails."""
    try:
        yield
    except OSError as error:
        number = error.errno or errno.EIO
        raise LNetError(number, f"{path} cannot be written: {os.strerror(number)}") from None


async def _run(
    plan: Plan, options: argparse.Namespace, make_node: MakeNode, path: str | None, progress: Progress
) -> Report:
    async with AsyncExitStack() as stack:
        do = await _asker(stack, make_node, path)
        return await run_plan(plan, do, progress, force=options.force)


def _who_answers() -> str | None:
    """The control socket of a node on this host: one that serves tests, else lnetd."""
    for path in (console_socket(), default_socket()):
        with suppress(OSError):
            _connect(path)
            return path
    return None


def _answering(path: str) -> str:
    """A control socket that was named. Raises LNetError: no other node may test in the place of that one."""
    try:
        _connect(path)
    except OSError as error:
        failed = no_daemon(ask.Lst(0, ask.SessionShow()), path, error)
        raise LNetError(failed.errno, failed.descr) from None
    return path


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5.0)
        probe.connect(path)


async def _asker(stack: AsyncExitStack, make_node: MakeNode, path: str | None) -> Ask:
    """Commands go to the node at that socket, or to a console of this process."""
    key = os.getpid()
    if path is not None:
        client = await stack.enter_async_context(AsyncClient(path))
        return lambda command: _ask_daemon(client, ask.Lst(key, command))
    node, addition = await make_node()
    stack.push_async_callback(node.close)
    stack.push_async_callback(addition.end)
    return lambda command: addition.console.do(ask.Lst(key, command))


async def _ask_daemon(client: AsyncClient, request: ask.Lst) -> Any:
    """The document that lnetd answers with. Raises LNetError."""
    try:
        reply = await client.request(request, _DEADLINE)
        if reply.errors:
            raise LNetError(abs(reply.errors[0].errno), reply.errors[0].descr)
        document = _DOCUMENTS.get(type(request.command))
        return None if document is None else document_of(reply.result, document)
    except DlcError as failed:
        raise LNetError(failed.errno, failed.descr) from None


# What is shown -----------------------------------------------------------------------------------------


class _Still:
    """In the place of a live picture, where nobody sees one."""

    def __enter__(self) -> _Still:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def update(self, table: Table) -> None:
        """Shows nothing."""


class Picture:
    """How fast each client is just now, and each rail of a node whose rails are known."""

    def __init__(self, plan: Plan) -> None:
        self._title = plan.name
        self._sample: Sample | None = None

    def look(self, name: str, share: float, sample: Sample) -> None:
        """There is news."""
        self._title = f"{name}: {share:.0%}, {sample.errors} errors"
        self._sample = sample

    def table(self) -> Table:
        """The picture."""
        table = Table("client, rails", title=self._title)
        for heading in ("MiB/s", ""):
            table.add_column(heading, no_wrap=True)
        spread = self._sample.bandwidth if self._sample is not None else {}
        top = max(spread.values(), default=0.0) or 1.0
        for node, bandwidth in list(spread.items())[:40]:
            table.add_row(node, f"{bandwidth:.1f}", "█" * round(_BAR * bandwidth / top))
        for node, rails in self._sample.rails.items() if self._sample is not None else ():
            for rail, bandwidth in rails.items():
                bar = "█" * min(round(_BAR * bandwidth / top), _BAR)
                table.add_row(f"  {node}, rail {rail}", f"{bandwidth:.1f}", bar)
        return table


def as_json(report: Report) -> str:
    """A report for `ulnet selftest compare`, and other programs."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"


def report_lines(report: Report) -> list[str]:
    """A report as text."""
    lines = []
    for test in report.tests:
        lines.append(
            f"{test.name}: {test.kind}, {test.bandwidth:.2f} MiB/s, {test.rate:.0f} requests/s, "
            f"{test.errors} errors"
        )
        lines += [f"  {node}: {why}" for node, why in test.lost.items()]
        lines += [
            f"  {one.node}, rail {one.rail}: {one.bandwidth:.2f} MiB/s, {one.rate:.0f} requests/s, "
            f"{one.errors} errors"
            for one in test.rails
        ]
        if test.no_rails:
            lines.append(f"  {rails_unknown(test)}")
        lines += _matrix(test)
        for one in test.expectations:
            verdict = "met" if one.met else "MISSED"
            lines.append(f"  {one.what}: {one.found:.4g}, wanted {one.wanted:g}: {verdict}")
    if report.error:
        lines.append(f"ended early: {report.error}")
    return lines


def _matrix(test: TestResult) -> list[str]:
    """The pairs, the slowest first."""
    what = "rate" if test.kind == "ping" else "bandwidth"
    unit = "requests/s" if test.kind == "ping" else "MiB/s"
    cells = sorted(test.cells, key=lambda cell: float(getattr(cell, what)))
    return [
        f"  {cell.source} to {cell.sink}: {getattr(cell, what):.2f} {unit}"
        + (f", {cell.errors} errors" if cell.errors else "")
        for cell in cells
    ]


def compare_reports(options: argparse.Namespace) -> int:
    """Compare two reports: exit status 1 where the second one is worse."""
    try:
        before, after = map(_report_in, options.files)
    except (Unreadable, msgspec.DecodeError) as bad:
        print(f"ulnet selftest: no report: {bad}", file=sys.stderr)
        return 2
    found = list(compare(before, after, options.tolerance))
    for one in found:
        print(_line(one))
    if not found:
        print("ulnet selftest: the reports have no test in common", file=sys.stderr)
        return 2
    return 1 if any(one.worse for one in found) else 0


def _report_in(path: str) -> Report:
    """Raises Unreadable, and msgspec.DecodeError with the file's name."""
    text = read_text(path)
    if not text.strip():
        raise msgspec.DecodeError(f"{path} is empty")
    try:
        return msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError as bad:
        raise msgspec.DecodeError(f"{path}: {bad}") from None


def _line(one: Difference) -> str:
    worse = "  WORSE" if one.worse else ""
    return f"{one.test}: {one.what} {one.before:.4g} -> {one.after:.4g} ({one.change:+.1f} %){worse}"
