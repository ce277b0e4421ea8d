"""Values of a file that a node takes, and that do not what they seem to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ulnet.cli.findings import Finding
from ulnet.control.instance import LNet
from ulnet.control.policy import Descriptor
from ulnet.core.tunables import NetTunables
from ulnet.dlc.model import NetAdd, UdspAdd
from ulnet.dlc.steps import Step
from ulnet.nid import LO_NID, NidError
from ulnet.node.dry_run import INVENTED

__all__ = ["values_of_one"]


def values_of_one(name: str, core: LNet, steps: Sequence[Step]) -> Iterator[Finding]:
    """What the node of the dry run makes of credits and policies."""
    for step in steps:
        if isinstance(step.request, NetAdd):
            yield from _credits(name, step, step.request)
    yield from _policies(name, core, steps)


def _credits(name: str, step: Step, request: NetAdd) -> Iterator[Finding]:
    given = request.tunables.get("credits", 0)
    credits = given if given > 0 else NetTunables().credits
    of_peer = request.tunables.get("peer_credits", 0)
    if of_peer > credits:
        text = (
            f"peer_credits {of_peer} are more than the NI's credits, {credits}: that many count, "
            "as on kernel nodes; raise credits or lower peer_credits"
        )
        yield Finding("warning", name, step.line, text)


def _policies(name: str, core: LNet, steps: Sequence[Step]) -> Iterator[Finding]:
    """Rules for this node's own NIs that none of them is under: a typo, or meant for another node."""
    nids = [nid for nid in core.nis if nid != LO_NID]
    known = not any(nid.ip.startswith(INVENTED) for nid in nids)
    for step in steps:
        if not isinstance(step.request, UdspAdd) or step.request.src is None:
            continue
        try:
            own = Descriptor.parse(step.request.src)
        except NidError:
            continue  # told by the node
        unsure = not known and not own.is_net
        if not unsure and not any(map(own.match_nid, nids)) and not any(map(own.match_net, core.nets)):
            text = f"src {own} of this policy matches no NI of this node: it has no effect here"
            yield Finding("note", name, step.line, text)
