"""Nets of one NI over several devices: `use_tcp_bonding` (Multi-Rail design, "TCP Bonding vs Multi-Rail").

What the setting is when a net is configured decides for the whole life of that net.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence

from msgspec import UNSET, UnsetType

from ulnet.control.instance import LNet
from ulnet.core.ni import NI, LocalNet
from ulnet.core.status import LNetError
from ulnet.dlc.model import NetAdd
from ulnet.nid import Net, NetType

__all__ = ["bonding_of", "interfaces_of", "is_to_be_bonded", "must_name_all"]


def is_to_be_bonded(core: LNet, request: NetAdd, net: Net, count: int) -> bool:
    """Whether what is to be added to net, `count` addresses, makes a bonded net. Raises LNetError."""
    local = core.nets.get(net)
    if local is not None and not local.bonded:
        if request.bonding:
            raise LNetError(
                errno.EPERM,
                f"net {net} exists, with NIs of their own: to have one over all interfaces, delete it first",
            )
        return False
    wanted = core.settings.use_tcp_bonding if request.bonding is None else request.bonding
    if not wanted or net.type != NetType.TCP:
        if request.bonding:
            raise LNetError(errno.EINVAL, f"net {net}: only tcp nets can be one NI over several interfaces")
        return False
    if request.nids and count > 1:
        raise LNetError(
            errno.EINVAL,
            f"net {net} is to be one NI over several interfaces, for use_tcp_bonding is 1: name these with "
            "--net and --if, or set use_tcp_bonding to 0",
        )
    return True


def interfaces_of(ni: NI) -> dict[int, str] | UnsetType:
    """`interfaces:`."""
    if ni.interface is None:
        return UNSET
    return dict(enumerate([ni.interface, *(place.interface for place in ni.also)]))


def bonding_of(ni: NI, setting: int) -> int | UnsetType:
    """`tcp bonding:`, where it is not what everybody expects."""
    if ni.net.bonded:
        return 1
    return 0 if setting and ni.nid.net.type == NetType.TCP else UNSET


def must_name_all(local: LocalNet, names: Iterable[str]) -> None:
    """Of a bonded net all interfaces go together. Raises LNetError: ENODEV, EPERM."""
    (ni,) = local.nis
    has: Sequence[str] = [ni.interface or str(ni.nid), *(place.interface for place in ni.also)]
    given = list(names)
    for name in given:
        if name not in has:
            raise LNetError(
                errno.ENODEV, f"interface {name} is not in net {local.net}: it has {', '.join(has)}"
            )
    if set(has) - set(given):
        raise LNetError(
            errno.EPERM,
            f"net {local.net} was configured with use_tcp_bonding: it is one NI over {', '.join(has)}; name "
            f"all of them, or none, to delete it",
        )
