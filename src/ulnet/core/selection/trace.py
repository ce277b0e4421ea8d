"""What a choice says of itself when asked: every stage, every comparison, the winner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.selection.criteria import Criterion, Step, narrow
from ulnet.core.selection.paths import Query

__all__ = ["Explanation", "Stage", "stage"]


@dataclass(slots=True)
class Stage:
    """One of net, local NI, peer NI: the candidates, what each criterion made of them, who was left."""

    name: str
    candidates: Sequence[Any]
    steps: list[Step]
    winner: Any
    decided_by: str  # the last criterion that eliminated a candidate; "" when there was one candidate only


@dataclass(slots=True)
class Explanation:
    """A choice with its reasons."""

    case: str = ""
    stages: list[Stage] = field(default_factory=list)
    ni: NI | None = None
    peer_ni: PeerNi | None = None
    final: PeerNi | None = None  # where a gateway passes it on to


def stage(
    name: str,
    candidates: Sequence[Any],
    criteria: Sequence[Criterion],
    query: Query,
    record: Explanation | None,
) -> tuple[Sequence[Any], str]:
    """Narrow candidates down, and tell by what; when record is wanted, with every comparison."""
    if record is None:
        return narrow(candidates, criteria, query)
    steps: list[Step] = []
    left, decided_by = narrow(candidates, criteria, query, steps)
    record.stages.append(Stage(name, list(candidates), steps, left[0], decided_by))
    return left, decided_by
