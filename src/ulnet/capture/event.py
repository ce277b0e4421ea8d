"""What a capture shows: events, in words and as facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ulnet.capture.packet import Endpoint

__all__ = ["Event", "FrameWords", "Say", "Saying"]


@dataclass(frozen=True, slots=True)
class Saying:
    """One thing that was said: its kind, one line of text, and the same as JSON-ready facts.

    Numbers of 64 bits are strings in hexadecimal, since readers of JSON may round them.
    """

    kind: str
    text: str
    facts: dict[str, object] = field(default_factory=dict)


class FrameWords(NamedTuple):
    """What a message of LNet carries for a protocol above it: its name in a few words, and the rest."""

    name: str
    rest: str


@dataclass(frozen=True, slots=True)
class Event:
    """A saying with its time and ends."""

    time_ns: int
    src: Endpoint
    dst: Endpoint
    saying: Saying


Say = Callable[[Endpoint, Endpoint, Saying], None]
