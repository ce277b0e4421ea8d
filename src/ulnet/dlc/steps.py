"""What a configuration file comes to: requests with their places in it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import Request

__all__ = ["Config", "Step", "Verb", "step_error"]

Verb = Literal["add", "del", "show", "exec"]  # what is done with the items of a file


class Step(NamedTuple):
    """One request of a file, and where it stands there."""

    request: Request
    line: int
    seq_no: int | None = None


class Config(NamedTuple):
    """What a file asks for. An item with an error is no step; `lines` are those of the errors."""

    steps: list[Step]
    errors: list[ErrorItem]
    lines: list[int]


def step_error(step: Step, item: ErrorItem) -> ErrorItem:
    """An error of a step's request, with the line that asked for it."""
    where = f"line {step.line}: " if step.line else ""  # a module parameter has no line
    return ErrorItem(item.verb, item.entity, item.errno, where + item.descr, step.seq_no)
