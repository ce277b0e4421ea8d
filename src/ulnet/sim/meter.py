"""How many bytes arrived when, on each rail; and which faults there were."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ulnet.sim.cables import Port
    from ulnet.sim.run import Run

__all__ = ["Meter", "marks"]

_BINS: Final = 200
_FINEST: Final = 1e-4  # seconds
_PIECES: Final = 64  # most parts of a message that are counted apart
_MARKS: Final = frozenset({"down", "up", "link", "partition", "heal", "kill", "restart", "add_ni", "del_ni"})


@dataclass(slots=True)
class Meter:
    """Bytes that arrived, by rail (the name of the interface) and by ten-thousandth of a second."""

    bytes: dict[str, Counter[int]] = field(default_factory=dict)  # in pieces: several to a long message

    def attach(self, run: Run) -> None:
        """Count from now on."""
        run.sim.fabric.meter = self.count

    def count(self, port: Port, begins: float, ends: float, size: int) -> None:
        """A message arrives at a port, all the time from its first to its last byte."""
        rail = self.bytes.get(port.name)
        if rail is None:
            rail = self.bytes[port.name] = Counter()
        pieces = min(int((ends - begins) / _FINEST) + 1, _PIECES)
        for piece in range(pieces):
            at = begins + (ends - begins) * (piece + 0.5) / pieces
            rail[int(at / _FINEST)] += size // pieces

    def curves(self, until: float) -> tuple[list[float], dict[str, list[float]]]:
        """Goodput in bytes per second: the times, and for each rail its values."""
        width = max(until / _BINS, _FINEST)
        count = int(until / width) + 1
        rails = {}
        for name in sorted(self.bytes):
            values = [0.0] * count
            for tick, size in self.bytes[name].items():
                values[min(int(tick * _FINEST / width), count - 1)] += size / width
            rails[name] = values
        return [bin_number * width for bin_number in range(count)], rails


def marks(run: Run) -> list[tuple[float, str]]:
    """The faults of a run's plan: when, and what."""
    found = []
    for event in run.plan.events:
        if event.kind in _MARKS:
            words = event.words
            if isinstance(words, dict):
                words = " ".join(
                    str(words[key]) for key in ("port", "node", "nid", "between") if key in words
                )
            found.append((event.at, f"{event.kind} {words or ''}".strip()))
    return found
