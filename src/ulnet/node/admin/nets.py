"""`net add` and `net del` (spec lnetctl.md §1 net)."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from typing import NamedTuple

from ulnet.control.instance import LNet
from ulnet.core.ni import NI, LocalNet, Place
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model import NetAdd, NetDel, Tunables
from ulnet.dlc.tunables import TUNABLES
from ulnet.host import HostError, Link, first_address, link_named, link_with_address
from ulnet.lnd.tcp.params import conns_for_speed
from ulnet.nid import LO_NID, Net, Nid, NidError
from ulnet.node.admin.bonded_nets import is_to_be_bonded, must_name_all
from ulnet.node.admin.names import (
    NO_MATCH,
    must_be_few,
    one_nid,
    read_cpts,
    read_interface,
    read_net,
    read_nids,
)
from ulnet.node.admin.state import AdminState
from ulnet.node.admin.tunables import lnd_tunables, net_tunables

__all__ = ["add_nets", "add_nis", "delete_nis", "nis_to_delete", "without_labels"]


_log = logging.getLogger("ulnet")


class _NoInterface(LNetError):
    """This host has no interface of that name."""


# What the core refuses by its rules; other failures are a driver's that could not start: ENETDOWN.
_RULES = frozenset(
    {errno.EINVAL, errno.EEXIST, errno.EPERM, errno.ENOSPC, errno.ESHUTDOWN, errno.EUSERS, errno.EAFNOSUPPORT}
)


class _NewNi(NamedTuple):
    nid: Nid
    link: Link
    cpts: tuple[int, ...] | None
    also: tuple[Place, ...] | None = None  # further devices, where the net is a bonded one

    @property
    def interface(self) -> str | None:
        """The device; None on loopback, whose every address can be an NI of its own."""
        return None if self.link.loopback else self.link.name


def add_nets(state: AdminState, request: NetAdd) -> None:
    """`net add`, and the NIs of files. Raises LNetError, DlcError."""
    state.tune(request)
    try:
        add_nis(state.core, request, state.links(), state.large)
    except _NoInterface as missing:
        if not request.in_file:
            raise
        raise DlcError(NO_MATCH, missing.text, verb="add", entity="import") from None


def add_nis(core: LNet, request: NetAdd, host: Sequence[Link], large: bool) -> None:
    """Add all NIs of the request or none. Raises LNetError."""
    count = core.cpts.count
    if request.nids:
        wanted = _wanted_by_nid(request, host, count)
    else:
        wanted = _wanted_by_interface(request, host, large, count)
    tunables = net_tunables(request.tunables)
    drivers = {
        new.nid: lnd_tunables(request.tunables, conns_for_speed(new.link.speed_mbps), new.nid.net.type)
        for new in wanted
    }
    _check_new(core, wanted, by_interface=not request.nids)
    added: list[Nid] = []
    try:
        for new in _bonded(core, request, wanted):
            core.add_ni(
                new.nid.net,
                new.nid,
                interface=new.interface,
                tunables=tunables,
                lnd_tunables=drivers[new.nid],
                cpts=new.cpts,
                device_node=new.link.numa_node,
                also=new.also,
            )
            added.append(new.nid)
            _warn_of_tunables(core.nis[new.nid], request.tunables, tunables)
    except LNetError as refused:
        for nid in reversed(added):
            core.del_ni(nid)
        number = refused.errno if refused.errno in _RULES else errno.ENETDOWN
        none = f" (none of {len(wanted)} NIs was added)" if len(wanted) > 1 else ""
        raise LNetError(number, refused.text + none) from refused


def _warn_of_tunables(ni: NI, given: Tunables, meant: NetTunables) -> None:
    """A net's tunables are those of its first NI: what a later one asks for is told, and not done."""
    differ = [
        f"{name} {getattr(meant, name)} (the net has {getattr(ni.net.tunables, name)})"
        for name in given
        if not TUNABLES[name].driver and getattr(meant, name) != getattr(ni.net.tunables, name)
    ]
    if differ:
        _log.warning(
            "%s asks for %s: the first NI of a net sets it for all, delete the net to change it",
            *(ni.nid, ", ".join(differ)),
        )


def _bonded(core: LNet, request: NetAdd, wanted: Sequence[_NewNi]) -> list[_NewNi]:
    """The NIs to add: one NI for all devices of a net where use_tcp_bonding wants that."""
    by_net: dict[Net, list[_NewNi]] = {}
    for new in wanted:
        by_net.setdefault(new.nid.net, []).append(new)
    found = []
    for net, nis in by_net.items():
        if is_to_be_bonded(core, request, net, len(nis)):
            cpts = {cpt for one in nis for cpt in one.cpts or range(core.cpts.count)}
            also = tuple(Place(one.nid, one.link.name) for one in nis[1:])
            found.append(nis[0]._replace(cpts=tuple(sorted(cpts)), also=also))
        else:
            found += nis
    return found


def _wanted_by_nid(request: NetAdd, host: Sequence[Link], cpt_count: int) -> list[_NewNi]:
    if request.net is not None or request.interfaces:
        raise LNetError(
            errno.EINVAL, "a NID names its net and interface: give either --nid, or --net with --if"
        )
    cpts = _cpts(request, cpt_count)
    nids = read_nids(request.nids)
    for nid in nids:
        read_net(str(nid.net), errno.ENOENT)
    return [_NewNi(nid, _link_of(nid, host), cpts) for nid in nids]


def _link_of(nid: Nid, host: Sequence[Link]) -> Link:
    try:
        link = link_with_address(nid.ip, host)
    except NidError as bad:
        raise LNetError(errno.EINVAL, str(bad)) from None
    except HostError as missing:
        raise LNetError(errno.ENETDOWN, f"{nid}: {missing.text}") from None
    _check_up(link)
    return link


def _wanted_by_interface(request: NetAdd, host: Sequence[Link], large: bool, cpt_count: int) -> list[_NewNi]:
    if request.net is None:
        raise LNetError(
            errno.EINVAL,
            "no net is named: give --net NET with --if INTERFACE, or --nid NID; such as --net tcp",
        )
    net = read_net(request.net, errno.ENOENT)
    if not request.interfaces:
        raise LNetError(
            errno.EINVAL, f"net {net} needs at least one interface: name it with --if, or the NID with --nid"
        )
    must_be_few(len(request.interfaces), "interfaces")
    common = _cpts(request, cpt_count)
    wanted = []
    for text in request.interfaces:
        name, cpts = read_interface(text, cpt_count)
        link = _usable(name, host)
        wanted.append(_NewNi(_nid_on(link, net, request.prefer, large), link, cpts or common))
    return wanted


def _cpts(request: NetAdd, count: int) -> tuple[int, ...] | None:
    return read_cpts(request.cpts, count) if request.cpts else None


def _usable(name: str, host: Sequence[Link]) -> Link:
    try:
        link = link_named(name, host)
    except HostError as missing:
        raise _NoInterface(errno.ENETDOWN, missing.text) from None
    if link.loopback:
        raise LNetError(
            errno.ENETDOWN,
            f"{name} is the loopback interface, which reaches no other host: name another, "
            "or the address with --nid, such as 127.0.0.1@tcp, to try things out",
        )
    _check_up(link)
    return link


def _check_up(link: Link) -> None:
    if not link.up:
        raise LNetError(
            errno.ENETDOWN, f"interface {link.name} is down: switch it on with `ip link set {link.name} up`"
        )


def _nid_on(link: Link, net: Net, prefer: str | None, large: bool) -> Nid:
    """The NID that an interface gets on a net: the preferred one if it has that address."""
    if not net.is_ip:
        raise LNetError(
            errno.EINVAL,
            f"net {net}: its NIDs are numbers, which no interface has; name a tcp net",
        )
    if prefer is not None:
        nid = one_nid(prefer)
        if nid.net == net and any(Nid.of(net, address.ip) == nid for address in link.addresses):
            return nid
    try:
        return Nid.of(net, first_address(link, large).ip)
    except HostError as missing:
        raise LNetError(errno.ENETDOWN, missing.text) from None


def _check_new(core: LNet, wanted: Sequence[_NewNi], *, by_interface: bool) -> None:
    """Nothing twice: neither in the request nor with what is there. What is told is what was named."""
    nids: set[Nid] = set()
    named: set[tuple[Net, str | None]] = set()
    tied = any(new.interface is not None for new in wanted)
    devices = {(ni.net.net, ni.interface) for ni in core.nis.values()} if tied else set()
    for new in wanted:
        place = (new.nid.net, new.interface)
        is_tied = new.interface is not None and (place in devices or place in named)
        if not (is_tied and by_interface) and (new.nid in nids or new.nid in core.nis):
            there = new.nid in core.nis
            how = "configured already: see 'lnetctl net show'" if there else "named twice: name it once"
            raise LNetError(errno.EEXIST, f"{new.nid} is {how}")
        if is_tied:
            how = "in net {} already" if place in devices else "named twice for net {}"
            what = f"interface {new.interface} is {how.format(new.nid.net)}"
            text = f"{what}: one device carries one NI of a net, name it once"
            raise LNetError(errno.EEXIST, text)
        nids.add(new.nid)
        named.add(place)


def without_labels(core: LNet, request: NetDel, host: Sequence[Link]) -> NetDel:
    """The request with devices in place of the labels of their addresses. Raises LNetError."""
    if request.net is None or not any(":" in text for text in request.interfaces):
        return request
    net = read_net(request.net, errno.EINVAL)
    must_be_few(len(request.interfaces), "interfaces")
    interfaces = list(request.interfaces)
    for at, text in enumerate(interfaces):
        name, _ = read_interface(text, core.cpts.count)
        if ":" in name:
            link = _usable(name, host)
            if not any(Nid.of(net, address.ip) in core.nis for address in link.addresses):
                has = ", ".join(address.ip for address in link.addresses)
                text = f"interface {name} has {has}, which is no NI of net {net}: see 'lnetctl net show'"
                raise LNetError(errno.ENODEV, text)
            interfaces[at] = link.name
    return NetDel(request.net, interfaces, force=request.force)


def delete_nis(core: LNet, request: NetDel) -> None:
    """Delete all NIs of the request or none, at once. Raises LNetError."""
    for ni in nis_to_delete(core, request):
        core.del_ni(ni.nid)


def nis_to_delete(core: LNet, request: NetDel) -> list[NI]:
    """The NIs of a request, each of which can go. Raises LNetError."""
    nids = _nids_by_nid(core, request) if request.nids else _nids_by_net(core, request)
    masters = [nid for nid in nids if nid in core.masters]
    slaves = [core.nis[nid] for nid in nids if nid not in masters]
    if masters and any(core.masters[nid].owns(ni) for nid in masters for ni in slaves):
        text = f"{masters[0]} and slaves of it in one request: delete {masters[0]} by itself, then the slaves"
        raise LNetError(errno.EBUSY, text)
    if LO_NID in nids:
        raise LNetError(errno.EINVAL, "0@lo cannot be deleted: it belongs to every node")
    for ni in slaves:
        core.must_be_free(ni)
    return [core.nis[nid] for nid in nids]


def _nids_by_nid(core: LNet, request: NetDel) -> list[Nid]:
    if request.net is not None or request.interfaces:
        raise LNetError(
            errno.EINVAL, "a NID names its net and interface: give either --nid, or --net with --if"
        )
    nids = read_nids(request.nids)
    for nid in nids:
        read_net(str(nid.net), errno.ENOENT)
        if nid not in core.nis:
            raise LNetError(errno.ENOENT, f"{nid} is not one of this node's NIDs: see 'lnetctl net show'")
    return nids


def _nids_by_net(core: LNet, request: NetDel) -> list[Nid]:
    if request.net is None:
        raise LNetError(
            errno.EINVAL, "no net is named: give --net NET, with --if for some of its NIs, or --nid NID"
        )
    net = read_net(request.net, errno.EINVAL)
    local = core.nets.get(net)
    if local is None:
        raise LNetError(errno.EINVAL, f"net {net} is not configured on this node: see 'lnetctl net show'")
    if not request.interfaces:
        return [ni.nid for ni in local.nis]
    must_be_few(len(request.interfaces), "interfaces")
    count = core.cpts.count
    if local.bonded:
        must_name_all(local, (read_interface(text, count)[0] for text in request.interfaces))
        return [ni.nid for ni in local.nis]
    return [_ni_on(local, read_interface(text, count)[0]).nid for text in dict.fromkeys(request.interfaces)]


def _ni_on(local: LocalNet, interface: str) -> NI:
    for ni in local.nis:
        if ni.interface == interface:
            return ni
    names = ", ".join(ni.interface or str(ni.nid) for ni in local.nis)
    raise LNetError(errno.ENODEV, f"interface {interface} is not in net {local.net}: it has {names}")
