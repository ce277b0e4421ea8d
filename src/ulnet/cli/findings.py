"""What commands that examine things say: findings as lines or as JSON, and the exit status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["Finding", "Level", "print_findings", "status_of"]

Level = Literal["error", "warning", "note"]


class Finding(NamedTuple):
    """One sentence about one place; `line` 0 is the whole of it."""

    level: Level
    where: str
    line: int
    text: str

    def __str__(self) -> str:
        place = f"{self.where}:{self.line}" if self.line else self.where
        return f"{place}: {self.level}: {self.text}"


def print_findings(findings: Sequence[Finding], as_json: bool) -> None:
    """One line each, or a JSON list."""
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
        return
    for finding in findings:
        print(finding)


def status_of(findings: Sequence[Finding], strict: bool) -> int:
    """1 if there is an error (with `strict` also a warning), else 0."""
    bad = {"error", "warning"} if strict else {"error"}
    return int(any(finding.level in bad for finding in findings))
