"""CPTs of NIs and NIDs, and the table of CPTs (spec lnetctl.md §1; Multi-Rail design, NUMA awareness)."""

from __future__ import annotations

import errno

from ulnet.core.cpt import share_of_nid
from ulnet.core.instance import LNet
from ulnet.core.status import LNetError
from ulnet.dlc.documents import CptOfNid, CptView, NumaView
from ulnet.dlc.model import CptOfNids, NetSet
from ulnet.host import number_text
from ulnet.nid import LO_NID
from ulnet.node.admin.names import read_cpts, read_nids

__all__ = ["cpts_of_nids", "set_nis", "show_numa"]


def set_nis(core: LNet, request: NetSet) -> None:
    """Give NIs other CPTs: all of them or none. Raises LNetError: EINVAL, ENOENT, ERANGE."""
    if request.all == bool(request.nids):
        raise LNetError(errno.EINVAL, "say which NIs are meant: either --nid NID, or --all")
    if not request.cpts:
        raise LNetError(errno.EINVAL, "nothing is to be set: give --cpt, such as --cpt [0,1]")
    cpts = read_cpts(request.cpts, core.cpts.count)
    nids = [nid for nid in core.nis if nid != LO_NID] if request.all else read_nids(request.nids)
    for nid in nids:
        if nid not in core.nis:
            raise LNetError(errno.ENOENT, f"{nid} is not one of this node's NIDs: see 'lnetctl net show'")
        if nid == LO_NID:
            raise LNetError(errno.EINVAL, "0@lo has all CPTs: name another NI")
    for nid in nids:
        core.set_cpts(nid, cpts)


def show_numa(core: LNet) -> NumaView:
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


def cpts_of_nids(core: LNet, request: CptOfNids) -> list[CptOfNid]:
    """Which CPT takes care of each NID, among those that the NIs of its net use. Raises LNetError(EINVAL)."""
    if not request.nids:
        raise LNetError(errno.EINVAL, "no NID is named: write one or more, such as 10.0.0.2@tcp")
    views = []
    for nid in read_nids(request.nids):
        local = core.nets.get(nid.net)
        used = sorted({cpt for ni in local.nis for cpt in ni.cpts}) if local is not None else []
        cpts = used or range(core.cpts.count)
        views.append(CptOfNid(str(nid), cpts[share_of_nid(nid, len(cpts))]))
    return views
