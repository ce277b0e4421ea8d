"""A choice of path as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ulnet.bond.bondni import BondNi
from ulnet.bond.paths import Path
from ulnet.bond.reasons import ASKED, reasons
from ulnet.control.view import View
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNet
from ulnet.core.selection import HIGHER_IS_BETTER, YES_OR_NO, Explanation, NetPair, Stage
from ulnet.dlc.documents_explain import CandidateView, ExplainView, StageView
from ulnet.dlc.model import Explain
from ulnet.nid import Nid
from ulnet.node.admin.names import one_nid
from ulnet.wire.lnet import HEADER_SIZE

__all__ = ["as_view", "explain"]

_OUT = {"usable": "link down"}  # of the device of an NI, or of all of a net


def explain(core: View, request: Explain) -> ExplainView:
    """Run the choice that a message would get. Raises LNetError."""
    source = one_nid(request.source) if request.source is not None else None
    record = core.explain(one_nid(request.target), source=source, size=request.size, cpt=request.numa)
    view = as_view(record)
    closed = [ni for ni in core.nis.values() if not ni.open]
    if closed:
        view.stages.append(_left_out(closed))
    assert record.ni is not None
    assert record.peer_ni is not None
    bond = record.ni.lnd_data
    if isinstance(bond, BondNi) and record.peer_ni.nid != record.ni.nid:
        _add_path(view, bond, record.peer_ni.nid, request.size)
    return view


def _add_path(view: ExplainView, bond: BondNi, nid: Nid, size: int) -> None:
    """Which slaves of two bonding NIs the message takes."""
    stage = reasons(bond, nid, HEADER_SIZE + size)
    if stage is None:
        view.case += f"; {nid} says HELLO first, and which paths there are is not known before"
        return
    view.stages.append(_stage(stage))
    if stage.winner is None:
        view.case += f"; no slave of {bond.ni.nid} may reach one of {nid}: such a message fails"
    else:
        view.over = _name(stage.winner)


def as_view(record: Explanation) -> ExplainView:
    """The explanation with names and values in place of objects and costs."""
    assert record.ni is not None
    assert record.peer_ni is not None
    stages = [_stage(stage) for stage in record.stages]
    view = ExplainView(record.case, str(record.ni.nid), str(record.peer_ni.nid), stages)
    if record.final is not None:
        view.target, view.via = str(record.final.nid), str(record.peer_ni.nid)
    return view


def _stage(stage: Stage) -> StageView:
    out: dict[int, str] = {}
    values: dict[int, dict[str, float]] = {id(one): {} for one in stage.candidates}
    for step in stage.steps:
        for candidate, cost in step.costs:
            values[id(candidate)][step.criterion] = _value(step.criterion, cost)
            if cost != step.least:
                out[id(candidate)] = _OUT.get(step.criterion) or f"out by {step.criterion}"
    candidates = [
        CandidateView(_name(one), values[id(one)], out.get(id(one)) or _left(one, stage))
        for one in stage.candidates
    ]
    return StageView(stage.name, candidates, stage.decided_by)


def _left_out(nis: Sequence[NI]) -> StageView:
    """NIs that take nothing new, which no stage sees."""
    found = [CandidateView(str(ni.nid), {}, "drained" if ni.drained else "about to go") for ni in nis]
    return StageView("left out", found, "")


def _left(candidate: Any, stage: Stage) -> str:
    return "chosen" if candidate is stage.winner else "kept"


def _value(criterion: str, cost: float) -> float:
    if criterion in YES_OR_NO or criterion in ASKED:
        return not cost
    return -cost if criterion in HIGHER_IS_BETTER else cost


def _name(candidate: Any) -> str:
    if isinstance(candidate, Path):
        return f"{candidate.ni.nid} -> {candidate.nid}"
    if isinstance(candidate, NetPair):
        return str(candidate.local.net)
    return str(candidate.net if isinstance(candidate, PeerNet) else candidate.nid)
