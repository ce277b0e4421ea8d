"""What `ulnet sim` tells of a run: a table for people, JSON for programs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

from rich.table import Table

from ulnet.cli.screens import Screen
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.nid import LO_NID
from ulnet.sim.node import SimNode
from ulnet.sim.run import Outcome

__all__ = ["Report", "Row", "Sweep", "print_report", "report_of"]

_MOST_ROWS = 60
_WIDTH = 140  # at most, of a table: a terminal wraps long lines, and nothing is cut


@dataclass(slots=True)
class Row:
    """An NI of a node, or one of its peers' NIs."""

    node: str
    kind: str
    nid: str
    sent: int
    received: int
    dropped: int
    failed: int
    bytes_sent: int | None = None
    bytes_received: int | None = None


@dataclass(slots=True)
class Report:
    """The facts of one run, or of several together."""

    scenario: str = ""
    seed: int = 0
    failure: str = ""
    virtual_seconds: float = 0.0
    events: int = 0
    checks: int = 0
    seconds: float = 0.0
    messages: int = 0
    messages_ok: int = 0
    resends: int = 0
    faults: dict[str, int] = field(default_factory=dict)  # that were played, by kind
    response_timeouts: int = 0
    refusals: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Count another run in."""
        for name in ("virtual_seconds", "events", "checks", "seconds", "messages", "messages_ok", "resends"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, count in other.faults.items():
            self.faults[kind] = self.faults.get(kind, 0) + count

    def summary(self) -> str:
        """The numbers in a sentence."""
        rate = self.events / self.seconds if self.seconds else 0.0
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        faults = f"{sum(self.faults.values())} fault events" + (f" ({kinds})" if kinds else "")
        return (
            f"{self.messages_ok} of {self.messages} messages ended well, {self.resends} resends; {faults}; "
            f"{self.virtual_seconds:.6g} virtual seconds, {self.events} events ({rate:,.0f} a second), "
            f"invariants checked {self.checks} times"
        )

    def as_json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self))

    def facts(self) -> str:
        """All that is the same each time that the seed is played."""
        return json.dumps({**asdict(self), "seconds": 0}, sort_keys=True)


class Sweep:
    """The reports of many seeds, in whatever order they come."""

    def __init__(self) -> None:
        self.total: Report = Report()
        self.failed: list[int] = []  # seeds
        self._reports: dict[int, Report] = {}

    def add(self, report: Report) -> None:
        """One more."""
        self.total.add(report)
        self._reports[report.seed] = report
        if report.failure:
            self.failed.append(report.seed)

    def in_order(self) -> list[Report]:
        """By seed."""
        return [report for _, report in sorted(self._reports.items())]

    def digest(self) -> str:
        """The same for the same seeds, wherever they are played."""
        digest = hashlib.sha256()
        for report in self.in_order():
            digest.update(report.facts().encode())
        return digest.hexdigest()

    def summary(self) -> str:
        """Two sentences, and the digest."""
        counts = f"{len(self._reports)} runs, {len(self.failed)} failed."
        return f"{counts} {self.total.summary()}. Digest {self.digest()[:16]}"


def report_of(outcome: Outcome, seed: int, seconds: float) -> Report:
    """The facts of a run."""
    run, sim = outcome.run, outcome.run.sim
    nodes = [node for node in sim.nodes.values() if node.alive]
    return Report(
        scenario=run.plan.name,
        seed=seed,
        failure=outcome.failure,
        virtual_seconds=sim.now,
        events=sim.scheduler.events,
        checks=sim.checks,
        seconds=seconds,
        messages=len(run.operations),
        messages_ok=sum(operation.ok for operation in run.operations),
        resends=sum(node.core.stats.resend_count for node in nodes),
        response_timeouts=sum(node.core.stats.response_timeout_count for node in nodes),
        faults=dict(sim.fabric.faults),
        refusals=[f"{refusal.at:.6f} s: {refusal.why}" for refusal in run.refusals],
        rows=[row for node in nodes for row in _rows(node)],
    )


def _rows(node: SimNode) -> list[Row]:
    rows = []
    for ni in node.core.nis.values():
        if ni.nid != LO_NID:
            port = node.host.port_of(ni.nid)
            row = _row(node, "NI", ni)
            if port is not None:
                row.bytes_sent, row.bytes_received = port.sent, port.received
            rows.append(row)
    rows += [_row(node, "peer", pni) for peer in node.core.peers for pni in peer.nis()]
    return rows


def _row(node: SimNode, kind: str, what: NI | PeerNi) -> Row:
    stats = what.stats
    failed = sum(what.health_stats.by_status[1:])
    return Row(
        node.name, kind, str(what.nid), sum(stats.sent), sum(stats.received), sum(stats.dropped), failed
    )


def print_report(report: Report) -> None:
    """For people."""
    console = Screen(highlight=False, width=_WIDTH)
    title = report.scenario or f"seed {report.seed}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("node", "", "NID"):
        table.add_column(name, no_wrap=True)
    for name in ("sent", "received", "dropped", "failed", "bytes\nsent", "bytes\nreceived"):
        table.add_column(name, justify="right", no_wrap=True)
    last = ""
    for row in report.rows[:_MOST_ROWS]:
        figures = (row.sent, row.received, row.dropped, row.failed, row.bytes_sent, row.bytes_received)
        shown = ["" if figure is None else f"{figure:,}" for figure in figures]
        table.add_row(row.node if row.node != last else "", row.kind, row.nid, *shown)
        last = row.node
    console.print(table)
    if len(report.rows) > _MOST_ROWS:
        print(f"… and {len(report.rows) - _MOST_ROWS} rows more (--json has all)")
    for refusal in report.refusals[:10]:
        print(f"refused at {refusal}")
    print(report.summary())
    print(f"seed {report.seed}: {'FAILED: ' + report.failure if report.failure else 'all well'}")
