"""`ulnet demo --bond`: a file between bonding NIs in standby mode, whose default slave fails meanwhile."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ulnet.demo.network import DemoError, DemoNetwork, Namespaces
from ulnet.demo.runner import Result, move
from ulnet.demo.transfer import PACED_PIECES, SMALLEST_CHUNK

__all__ = ["Phases", "bond_act", "digests_of", "judge", "want_room"]

_SECONDS = 12.0
_SETTLED = 1.0  # after a change, until what was under way has arrived
_NAMES = ("before", "default slave cut", "after the repair")


class Phases:
    """What each slave carried, and the longest time without progress after the cut."""

    def __init__(self, rails: list[str]) -> None:
        self.rails = rails
        self.carried: dict[str, list[int]] = {rail: [0] * len(_NAMES) for rail in rails}
        self.late: int = 0  # over the cut rail when it could carry nothing any more
        self.longest: float = 0.0
        self._last = dict.fromkeys(rails, 0)
        self._phase = 0
        self._began = self._moved = time.monotonic()

    def observe(self, told: dict[str, Any], now: float) -> None:
        """Take what a node or the runner tells."""
        if told["state"] in ("cut", "repaired"):
            self._phase += 1
            self._began = now
        for rail, count in told.get("rails", {}).items():
            step = count - self._last[rail]
            if not step:
                continue
            self._last[rail] = count
            if self._phase == 1:
                self.longest = max(self.longest, now - max(self._moved, self._began))
            self._moved = now
            self.carried[rail][self._phase] += step
            if self._phase == 1 and rail == self.rails[-1] and now - self._began > _SETTLED:
                self.late += step

    def table(self) -> Table:
        """What came to each rail, by phase."""
        table = Table(title="MiB to each slave; the last one is the default")
        table.add_column("slave")
        for name in _NAMES:
            table.add_column(name, justify="right")
        for rail in self.rails:
            table.add_row(rail, *(f"{count / (1 << 20):,.0f}" for count in self.carried[rail]))
        return table

    def faults(self) -> list[str]:
        """What did not go as standby promises."""
        default, backups = self.rails[-1], self.rails[:-1]
        found = []
        if any(self.carried[rail][0] for rail in backups) or not self.carried[default][0]:
            found.append("Before the cut not everything went over the default slave.")
        if not any(self.carried[rail][1] for rail in backups) or self.late:
            found.append("After the cut the traffic did not leave the default slave.")
        if not self.carried[default][2]:
            found.append("After the repair the traffic did not return to the default slave.")
        return found


def want_room(rails: int, size: int) -> None:
    """Raises DemoError where a slave cannot be cut while a file of `size` bytes is on its way."""
    if rails < 2 or size < PACED_PIECES * SMALLEST_CHUNK:
        why = "one rail" if rails < 2 else "so small a file"
        raise DemoError(f"--bond cuts the default slave on the way, and {why} leaves no room for that")


def bond_act(console: Console, source: Path, target: Path, network: DemoNetwork) -> int:
    """Move the file, have the default slave fail and recover; 0 if all went as promised. Raises DemoError."""
    rails, size = len(network.senders), source.stat().st_size
    ends = [nids[-1].partition("@")[0] + "@bond0" for nids in (network.senders, network.receivers)]
    how = network.how if isinstance(network, Namespaces) else "both nodes are told that its device has failed"
    console.print(
        f"[bold]{source.name}[/], {size / (1 << 20):,.0f} MiB, from {ends[0]} to {ends[1]}, in standby over "
        f"{rails} slaves, slowed down to {size / _SECONDS / 1e6:,.0f} MB/s.\n"
        f"The default slave {network.receivers[-1]} is cut: {how}.",
        highlight=False,
    )
    phases = Phases(network.receivers)
    began = time.monotonic()

    def show(told: dict[str, Any]) -> None:
        now = time.monotonic()
        phases.observe(told, now)
        if "line" in told:
            console.print(f"{told['node']}: {told['line']}", style="dim", markup=False, highlight=False)
        elif told["state"] in ("cut", "repaired"):
            console.print(f"[bold]{now - began:.1f} s: {network.receivers[-1]} {told['state']}[/]")
        live.update(phases.table())

    with Live(phases.table(), console=console, refresh_per_second=8) as live:
        result = asyncio.run(move(source, size, target, network, show, seconds=_SECONDS, bond=True))
    seen = (
        f"longest time without progress after the cut: {phases.longest:.1f} s (looked at 10 times a second)"
    )
    praise = "Failed over and returned to the default slave: every byte arrived, at one NID."
    console.print()
    return judge(console, result, seen, phases.faults(), praise)


def digests_of(result: Result) -> str:
    """What was sent, and what came: lines of 80 columns."""
    return f"sha256 sent     {result.sent_digest}\nsha256 received {result.received_digest}"


def judge(console: Console, result: Result, more: str, faults: list[str], praise: str) -> int:
    """Print the end of an act, with what else was seen; the exit status."""
    console.print(f"{digests_of(result)}\n{more}", soft_wrap=True, highlight=False)
    if not result.intact:
        faults.insert(0, "The copy differs from the source.")
    for fault in faults:
        console.print(f"[bold red]{fault}[/]", highlight=False)
    if not faults:
        console.print(f"[bold green]{praise}[/]")
    return 1 if faults else 0
