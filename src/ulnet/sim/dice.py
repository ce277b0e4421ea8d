"""What draws a plan: one stream of chance, and the events that were drawn so far."""

from __future__ import annotations

from random import Random
from typing import Any

import yaml

from ulnet.sim.plan import Event

__all__ = ["PORTAL", "Dice", "config_text"]

PORTAL = 30


class Dice:
    """The chance of one seed for one `use`, and the events of a plan in the order they were drawn."""

    def __init__(self, use: str, seed: int) -> None:
        self.seed = seed
        self.rng: Random = Random(f"{use}/{seed}")
        self.events: list[Event] = []

    def add(self, at: float, kind: str, /, **words: Any) -> None:
        """An event."""
        self.events.append(Event(at=at, kind=kind, words=words))

    def ask(self, at: float, node: str, op: str, /, **fields: Any) -> None:
        """A request of the control socket."""
        self.add(at, "lnetctl", node=node, request={"op": op, **fields})

    def in_order(self) -> list[Event]:
        """The events by their times."""
        return sorted(self.events, key=lambda event: event.at)


def config_text(sections: dict[str, Any]) -> str:
    """lnetctl YAML of these sections."""
    text: str = yaml.safe_dump(sections, sort_keys=False)
    return text
