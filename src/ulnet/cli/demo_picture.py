"""The picture of a cut in `ulnet demo`: what each rail carries, how well it is, and what that came to."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from ulnet.core.ni import MAX_HEALTH

__all__ = ["PHASES", "Picture"]

PHASES = ("before the cut", "rail cut", "after the repair")
_BARS = " ▁▂▃▄▅▆▇█"
_COLUMN = 0.4  # seconds that one character of a line stands for
_WIDTH = 60
_FRAME = 6  # lines of the picture beside those of the rails
_BORDER = 3  # characters of a table beside each column
_SETTLED = 2.0  # seconds after a cut until nothing that was under way can count for the cut rail


@dataclass
class _Rail:
    """What is known of one rail."""

    name: str
    carried: int = 0
    near: int = MAX_HEALTH
    far: int = MAX_HEALTH
    state: str = ""
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=_WIDTH))
    healths: deque[int] = field(default_factory=lambda: deque(maxlen=_WIDTH))
    by_phase: list[int] = field(default_factory=lambda: [0] * len(PHASES))
    lowest: int = MAX_HEALTH
    failed: bool = False

    @property
    def health(self) -> int:
        """As low as that of its worse end; 0 while its device is down."""
        return 0 if self.state == "FAILED" else min(self.near, self.far)


class Picture:
    """Follows a transfer during which the last rail is cut."""

    def __init__(self, rails: list[str]) -> None:
        self._rails = {there: _Rail(there) for there in rails}
        self._phase = 0
        self._began = self._column_at = time.monotonic()
        self._phase_began = self._began
        self._spent = [0.0] * len(PHASES)
        self._column_bytes = [0] * len(rails)
        self._late = 0  # bytes over the cut rail when it could carry nothing any more
        self._last: list[int] = [0] * len(rails)  # carried when health was whole again
        self.well_again: bool = False

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def observe(self, told: dict[str, Any]) -> None:
        """A line of the runner or of a node."""
        now = time.monotonic()
        if told["state"] in ("cut", "repaired"):
            self._spent[self._phase] = now - self._phase_began
            self._phase += 1
            self._phase_began = now
        self._count(told.get("rails", {}), now)
        for rail, (near, far, state) in zip(self._rails.values(), told.get("health", ()), strict=False):
            rail.near, rail.far, rail.state = near, far, state
            rail.lowest = min(rail.lowest, rail.health)
            rail.failed |= state == "FAILED"
        if self._phase == len(PHASES) - 1 and not self.well_again:
            self.well_again = all(rail.health == MAX_HEALTH for rail in self._rails.values())
            self._last = [rail.carried for rail in self._rails.values()]
        if now - self._column_at >= _COLUMN:
            self._add_column(now)
        self._spent[self._phase] = now - self._phase_began

    def _count(self, counts: dict[str, int], now: float) -> None:
        *_, cut = self._rails
        for nid, count in counts.items():
            rail = self._rails[nid]
            more, rail.carried = count - rail.carried, count
            rail.by_phase[self._phase] += more
            if self._phase == 1 and nid == cut and now - self._phase_began > _SETTLED:
                self._late += more

    def _add_column(self, now: float) -> None:
        took, self._column_at = now - self._column_at, now
        for number, rail in enumerate(self._rails.values()):
            rail.rates.append((rail.carried - self._column_bytes[number]) / took)
            rail.healths.append(rail.health)
            self._column_bytes[number] = rail.carried

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lines of rates and of health, a character each 0.4 s: the last ones that there is room for.

        Where the screen is too low for both, rates alone: the last rail, which is cut, must be seen.
        """
        both = len(self._rails) * 2 + _FRAME <= console.height
        rates = [f"{rail.rates[-1] / 1e6 if rail.rates else 0.0:,.0f}" for rail in self._rails.values()]
        healths = ["down" if rail.state == "FAILED" else str(rail.health) for rail in self._rails.values()]
        table = Table(title=f"{self.seconds:.1f} s, {PHASES[self._phase]}", title_justify="left")
        table.add_column("rail to", no_wrap=True)
        table.add_column("MB/s", justify="right", no_wrap=True)
        table.add_column("health", justify="right", no_wrap=True)
        taken = sum(
            max(map(len, column)) + _BORDER
            for column in (
                ["rail to", *(rail.name for rail in self._rails.values())],
                ["MB/s", *rates],
                ["health"],
            )
        )
        room = max(1, options.max_width - taken - _BORDER - 1)
        table.add_column("MB/s above,\nhealth below" if both else "over time", no_wrap=True)
        most = max((rate for rail in self._rails.values() for rate in rail.rates), default=0.0)
        for rail, rate, health in zip(self._rails.values(), rates, healths, strict=True):
            lines = _line(rail.rates, most, room)
            if both:
                lines += "\n" + _line(rail.healths, MAX_HEALTH, room)
            table.add_row(rail.name, rate, health, lines)
        yield table

    def phases(self) -> Table:
        """What each rail carried in each phase."""
        table = Table(title="what each rail carried", title_justify="left")
        table.add_column("rail to", no_wrap=True)
        for phase, seconds in zip(PHASES, self._spent, strict=True):
            table.add_column(f"{phase}\n{seconds:.1f} s", justify="right")
        table.add_column("lowest\nhealth", justify="right")
        for rail in self._rails.values():
            cells = [
                f"{count / (1 << 20):,.0f} MiB, {count / max(sum(whole), 1):.0%}"
                for count, whole in zip(rail.by_phase, self._columns(), strict=True)
            ]
            table.add_row(
                rail.name, *cells, f"{rail.lowest} (link down)" if rail.failed else str(rail.lowest)
            )
        return table

    def _columns(self) -> list[list[int]]:
        return [[rail.by_phase[number] for rail in self._rails.values()] for number in range(len(PHASES))]

    def faults(self) -> list[str]:
        """What did not happen as it should have, in sentences."""
        *others, cut = self._rails.values()
        found = []
        if cut.lowest == MAX_HEALTH:
            found.append("The cut was not noticed: the rail's health did not fall.")
        if self._late:
            found.append(f"{self._late:,} bytes came over the rail that was cut.")
        if not all(rail.by_phase[1] for rail in others):
            found.append("Not every other rail carried something while that one was cut.")
        if not self.well_again:
            found.append("Health did not return before the end.")
        after = [rail.carried - last for rail, last in zip(self._rails.values(), self._last, strict=True)]
        # On a busy machine the rail gets less than half for a while: a fourth of an even share shows its use.
        if self.well_again and after[-1] < 0.25 * sum(after) / len(after):
            found.append(
                f"The repaired rail carried {after[-1]:,} of {sum(after):,} bytes after it was well."
            )
        return found


def _line(values: deque[float] | deque[int], most: float, room: int) -> str:
    top = len(_BARS) - 1
    last = list(values)[-room:]
    return "".join(_BARS[min(top, round(value / most * top)) if most else 0] for value in last)
