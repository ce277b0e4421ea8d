"""A choice of path with its reasons, as `explain` prints it."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

__all__ = ["CandidateView", "ExplainDocument", "ExplainView", "StageView"]


class CandidateView(Struct):
    """One net, local NI or peer NI of a stage: what each criterion saw of it, and what became of it."""

    name: str
    values: dict[str, bool | float]
    outcome: str  # "chosen", "kept", "link down", "out by CRITERION"; if left out "drained", "about to go"


class StageView(Struct, rename={"decided_by": "decided by"}):
    """One stage of a choice; one behind them, "left out", has the NIs that take nothing new."""

    stage: str
    candidates: list[CandidateView]
    decided_by: str


class ExplainView(Struct, rename={"source": "from", "target": "to"}):
    """A choice with its reasons."""

    case: str
    source: str
    target: str
    stages: list[StageView]
    via: str | UnsetType = UNSET  # the gateway's NID, where there is one
    over: str | UnsetType = UNSET  # the slaves of bonding NIs, "OURS -> THEIRS"


class ExplainDocument(Struct):
    """`explain`."""

    explain: ExplainView
