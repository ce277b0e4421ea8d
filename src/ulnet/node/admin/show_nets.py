"""Local nets and NIs as documents (spec lnetctl.md §5 net show, §4 export)."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from ulnet.control.view import View
from ulnet.core.ni import NI, NO_PRIORITY
from ulnet.core.peer import PeerNi
from ulnet.core.stats import MsgStats
from ulnet.core.status import LNetError
from ulnet.core.tunables import UNSET_TIMEOUT, LndTunables
from ulnet.dlc.documents import (
    LocalNetView,
    LocalNiView,
    MsgCounts,
    NiHealth,
    TrafficStats,
    UdspInfo,
)
from ulnet.dlc.documents_counters import read_counters
from ulnet.dlc.model import NetShow
from ulnet.dlc.tunables import TUNABLES
from ulnet.host import HostError, Link, first_address, link_named
from ulnet.nid import LO_NET, LO_NID, Net, NetType, NidError
from ulnet.node.admin.bonded_nets import bonding_of, interfaces_of
from ulnet.node.admin.bonds import bond_of, slaves_of
from ulnet.node.admin.names import must_be_few
from ulnet.node.admin.show_load import load_of_ni

__all__ = ["backup_nets", "local_net", "message_counts", "policy_of", "show_nets"]


def show_nets(core: View, request: NetShow) -> list[LocalNetView]:
    """All nets, or those of a list with commas; of each all NIs, or the one at `index`.

    Raises LNetError: ENOENT (no such name), ESRCH (not configured).
    """
    chosen = list(core.nets.values())
    if request.net is not None:
        names = request.net.split(",")
        must_be_few(len(names), "nets")
        chosen = [core.nets[net] for net in dict.fromkeys(local_net(core, text) for text in names)]
    some = slice(None) if request.index is None else slice(request.index, request.index + 1)
    return [
        LocalNetView(str(local.net), [_ni(core, ni, request) for ni in local.nis[some]]) for local in chosen
    ]


def local_net(core: View, text: str) -> Net:
    """A net of this node. Raises LNetError: ENOENT (no such name), ESRCH (not configured)."""
    try:
        net = Net.parse(text)
    except NidError as bad:
        raise LNetError(errno.ENOENT, str(bad)) from None
    if net not in core.nets:
        names = ", ".join(map(str, core.nets))
        raise LNetError(errno.ESRCH, f"net {net} is not configured on this node: it has {names}")
    return net


def _ni(core: View, ni: NI, request: NetShow) -> LocalNiView:
    verbosity = request.verbosity
    up = ni.up and ni.nid not in core.info.silent_nids  # as ping info says
    view = LocalNiView(nid=str(ni.nid), status="up" if up else "down", interfaces=interfaces_of(ni))
    if ni.drained:
        view.drained = 1
    view.tcp_bonding = bonding_of(ni, core.settings.use_tcp_bonding if verbosity else 0)
    view.slaves = slaves_of(ni) or UNSET
    if verbosity >= 1:
        view.bond = bond_of(ni, state=True) or UNSET
        view.statistics = read_counters(TrafficStats, ni)
        view.tunables = _tunables(ni)
        if ni.lnd_tunables is not None:
            view.lnd_tunables = {
                **_lnd_values(ni, ni.lnd_tunables),
                "timeout": ni.timeout,
            }  # what is in force
        if ni.secured_until:
            view.secured_until = datetime.fromtimestamp(ni.secured_until, UTC).isoformat()
        view.dev_cpt = ni.dev_cpt
        view.cpt = _cpts(ni.cpts)
    if verbosity >= 2:
        view.sent_stats, view.received_stats, view.dropped_stats = message_counts(ni.stats)
        view.health_stats = read_counters(NiHealth, ni)
        if ni.nid == LO_NID:
            view.health_stats.health_value = 0  # as the real tool shows it
    if verbosity >= 4:
        view.udsp_info = policy_of(ni)
    if request.load:
        view.load = load_of_ni(ni)
    return view


def backup_nets(core: View, host: Iterable[Link]) -> list[LocalNetView]:
    """What a restore needs: no `lo`, no counters, and the NID only where the interface does not give it."""
    known = list(host)
    views = []
    for local in core.nets.values():
        if local.net != LO_NET:
            nis = [_backup_ni(ni, known) for ni in local.nis]
            for view, ni in zip(nis, local.nis, strict=True):
                view.tcp_bonding = bonding_of(ni, core.settings.use_tcp_bonding)
            views.append(LocalNetView(str(local.net), nis))
    return views


def _backup_ni(ni: NI, host: Sequence[Link]) -> LocalNiView:
    slaves = slaves_of(ni)
    if slaves is not None:
        return LocalNiView(nid=str(ni.nid), slaves=slaves, bond=bond_of(ni, state=False) or UNSET)
    view = LocalNiView(interfaces=interfaces_of(ni), tunables=_tunables(ni), cpt=_cpts(ni.cpts))
    if ni.interface is None or not _is_first_address(ni, ni.interface, host):
        view.nid = str(ni.nid)
    if ni.lnd_tunables is not None:
        view.lnd_tunables = _lnd_values(ni, ni.lnd_tunables)
        if ni.lnd_tunables.timeout == UNSET_TIMEOUT:  # today's tool always leaves it out, and loses it
            del view.lnd_tunables["timeout"]
    return view


def _is_first_address(ni: NI, interface: str, host: Sequence[Link]) -> bool:
    try:
        return first_address(link_named(interface, host)).ip == ni.nid.ip
    except HostError:
        return False


def shown_priority(priority: int) -> int:
    """A priority as it is printed: -1 where no rule gave one."""
    return -1 if priority == NO_PRIORITY else priority


def policy_of(one: NI | PeerNi) -> UdspInfo:
    """What rules say of an NI or peer NI, and of its net."""
    info = UdspInfo(shown_priority(one.net.priority), shown_priority(one.priority))
    if one.net.weight:
        info.net_weight = one.net.weight
    if one.weight:
        info.nid_weight = one.weight
    return info


def message_counts(stats: MsgStats) -> tuple[MsgCounts, MsgCounts, MsgCounts]:
    """`sent_stats:`, `received_stats:`, `dropped_stats:`."""
    sent, received, dropped = (
        read_counters(MsgCounts, one) for one in (stats.sent, stats.received, stats.dropped)
    )
    return sent, received, dropped


def _tunables(ni: NI) -> dict[str, int]:
    values = {name: getattr(ni.tunables, name) for name, one in TUNABLES.items() if not one.driver}
    return dict.fromkeys(values, 0) if ni.nid.net.type == NetType.BOND else values  # its slaves have credits


def _lnd_values(ni: NI, tunables: LndTunables) -> dict[str, int | bool | str]:
    """Of its driver, those that nets of that type have; ours alone only where they are not the default."""
    kind = ni.nid.net.type
    found: dict[str, int | bool | str] = {}
    for name, one in TUNABLES.items():
        if one.driver and one.is_of(kind):
            value = getattr(tunables, name)
            if not one.own or value != one.default:
                found[name] = one.shown(value)
    return found


def _cpts(cpts: Iterable[int]) -> str:
    return f"[{','.join(map(str, cpts))}]"
