"""CPTs of NIDs, and the table of CPTs (spec lnetctl.md §1; Multi-Rail design, NUMA awareness)."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ulnet.control.view import View
from ulnet.core.cpt import share_of_nid
from ulnet.core.status import LNetError
from ulnet.dlc.documents import CptOfNid, CptView, NumaView
from ulnet.dlc.model import CptOfNids
from ulnet.host import number_text
from ulnet.nid import Nid
from ulnet.node.admin.names import reading_nids

__all__ = ["cpts_of_nids", "show_numa"]


def show_numa(core: View) -> NumaView:
    """`numa show`: the range, and each CPT with its distances to all."""
    table = core.cpts
    views = []
    for cpt in range(table.count):
        view = CptView(cpt)
        if table.partitions:
            partition = table.partitions[cpt]
            view.cpus, view.nodes = number_text(partition.cpus), number_text(partition.nodes)
        view.distances = " ".join(f"{other}:{table.distance(cpt, other)}" for other in range(table.count))
        views.append(view)
    return NumaView(core.settings.numa_range, views)


def cpts_of_nids(core: View, request: CptOfNids) -> Iterator[CptOfNid | None]:
    """Which CPT takes care of each NID, among those that the NIs of its net use. Raises LNetError(EINVAL)."""
    if not request.nids:
        raise LNetError(errno.EINVAL, "no NID is named: write one or more, such as 10.0.0.2@tcp")
    nids: dict[Nid, None] = {}
    yield from reading_nids(request.nids, nids)
    for nid in nids:
        local = core.nets.get(nid.net)
        used = sorted({cpt for ni in local.nis for cpt in ni.cpts}) if local is not None else []
        cpts = used or range(core.cpts.count)
        yield CptOfNid(str(nid), cpts[share_of_nid(nid, len(cpts))])
