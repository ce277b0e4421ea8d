"""Values of a file that a node takes, and that do not what they seem to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ulnet.cli.findings import Finding
from ulnet.control.instance import LNet
from ulnet.control.policy import Descriptor
from ulnet.core.tunables import NetTunables
from ulnet.dlc.model import NetAdd, PeerAdd, PeerRefresh, UdspAdd
from ulnet.dlc.steps import Step
from ulnet.nid import LO_NID, Nid, NidError, NidList
from ulnet.node.dry_run import INVENTED

__all__ = ["nids_named", "values_of_one"]

_MANY = 4096


def values_of_one(name: str, core: LNet, steps: Sequence[Step]) -> Iterator[Finding]:
    """What the node of the dry run makes of credits, lists of NIDs and policies."""
    for step in steps:
        if isinstance(step.request, NetAdd):
            yield from _credits(name, step, step.request)
        elif isinstance(step.request, PeerAdd | PeerRefresh):
            yield from _twice(name, step, step.request)
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


def nids_named(texts: Sequence[str]) -> list[Nid]:
    """All NIDs of a list, those of ranges as well; what is none is left out, the node tells it."""
    found: list[Nid] = []
    for text in texts:
        try:
            found += NidList.parse(text).expand(_MANY)
        except NidError:
            continue
    return found


def _twice(name: str, step: Step, request: PeerAdd | PeerRefresh) -> Iterator[Finding]:
    """NIDs that a list has again: perhaps another one was meant."""
    count = Counter(nids_named(request.nids))
    again = [str(nid) for nid, times in count.items() if times > 1]
    if again:
        peer = f"peer {request.primary}" if request.primary else "this peer"
        way_out = "write the NID that was meant, or leave it out"
        text = f"{peer} lists {', '.join(again)} twice: once counts; {way_out}"
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
