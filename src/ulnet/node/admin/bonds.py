"""Bonding NIs: added, changed, switched, failed over, shown (bonding design §2.2.3, §10)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from ulnet.bond import BondLnd, bond_config
from ulnet.bond.bondni import BondNi
from ulnet.bond.config import MODES, POLICIES, BondConfig
from ulnet.bond.paths import Path
from ulnet.control.instance import LNet
from ulnet.control.view import View
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.status import LNetError
from ulnet.dlc.documents_bond import BondPathView, BondPeerView, BondView
from ulnet.dlc.model_bond import BondAdd, BondFailover, BondOptions, BondSet, BondSwitch
from ulnet.nid import Nid
from ulnet.node.admin.names import one_nid, read_net
from ulnet.wire.bond import Mode, Policy, SlaveStatus

__all__ = ["add_bond", "bond_of", "bond_of_peer", "fail_over", "set_bond", "slaves_of", "switch_slave"]

_FAILBACK = {"return": True, "stay": False}
_MODE_NAMES = {mode: name for name, mode in MODES.items()}
_POLICY_NAMES = {policy: name for name, policy in POLICIES.items()}
_MOST_PATHS = 128


def add_bond(core: LNet, bonds: BondLnd, request: BondAdd) -> None:
    """Add a bonding NI. Raises LNetError."""
    net = read_net(request.net, errno.ENOENT)
    bonds.add(bond_config(net, request.slaves, core.nis, **_given(request.options)))


def _given(options: BondOptions) -> dict[str, Any]:
    """What an option list says, as `bond_config` takes it."""
    given: dict[str, Any] = {
        "mode": options.mode,
        "policy": options.policy,
        "weights": options.weights,
        "servers": options.servers,
        "keepalive": options.keepalive,
    }
    found = {name: value for name, value in given.items() if value is not None}
    if options.failback is not None:
        if options.failback not in _FAILBACK:
            raise LNetError(
                errno.EINVAL, f"failback {options.failback!r} does not exist: write {' or '.join(_FAILBACK)}"
            )
        found["failback"] = _FAILBACK[options.failback]
    return found


def set_bond(core: LNet, bonds: BondLnd, request: BondSet) -> None:
    """Change a bonding NI. Raises LNetError."""
    nid = one_nid(request.nid)
    old = bonds.bond(nid).config
    changed = {**_kept(old), **_given(request.options)}
    if request.options.mode is not None and "policy" not in _given(request.options):
        changed.pop("policy", None)
        if request.options.mode == "loadbalance" and old.mode is Mode.LOADBALANCE:
            changed["policy"] = _POLICY_NAMES[old.policy]
    slaves: Sequence[str | Nid] = old.slaves if request.slaves is None else request.slaves
    if request.slaves is not None and request.options.weights is None:
        changed.pop("weights", None)
    bonds.change(nid, bond_config(old.net, slaves, core.nis, **changed))


def _kept(old: BondConfig) -> dict[str, Any]:
    return {
        "mode": _MODE_NAMES[old.mode],
        "policy": None if old.policy is Policy.NONE else _POLICY_NAMES[old.policy],
        "failback": old.failback,
        "weights": list(old.weights) if any(weight != 1 for weight in old.weights) else None,
        "servers": list(old.servers),
        "keepalive": old.keepalive,
    }


def switch_slave(bonds: BondLnd, request: BondSwitch) -> None:
    """Switch a slave on or off. Raises LNetError."""
    bonds.switch(one_nid(request.nid), one_nid(request.slave), request.on)


def fail_over(bonds: BondLnd, request: BondFailover) -> None:
    """Make another slave the active one. Raises LNetError."""
    slave = None if request.slave is None else one_nid(request.slave)
    bonds.fail_over(one_nid(request.nid), slave)


# Shown ---------------------------------------------------------------------------------------------------


def slaves_of(ni: NI) -> dict[int, str] | None:
    """`slaves:` of a bonding NI, None for another one."""
    bond = ni.lnd_data
    if not isinstance(bond, BondNi):
        return None
    return {index: str(nid) for index, nid in enumerate(bond.config.slaves)}


def bond_of(ni: NI, *, state: bool) -> BondView | None:
    """`bond:` of a bonding NI, with `state` also how it is; None for another one."""
    bond = ni.lnd_data
    if not isinstance(bond, BondNi):
        return None
    config = bond.config
    standby = config.mode is Mode.STANDBY
    view = BondView(_MODE_NAMES[config.mode], keepalive=config.keepalive)
    if standby:
        view.failback = "return" if config.failback else "stay"
    else:
        view.policy = _POLICY_NAMES[config.policy]
    if any(weight != 1 for weight in config.weights):
        view.weights = ",".join(map(str, config.weights))
    if config.servers:
        view.bds = {index: str(nid) for index, nid in enumerate(config.servers)}
    if state:
        _add_state(view, bond, standby)
    return view


def _add_state(view: BondView, bond: BondNi, standby: bool) -> None:
    if standby:
        view.active = str(bond.slaves.active.nid)
        view.failovers = bond.failovers
    view.slave_status = {str(one.nid): _status(one.status) for one in bond.slaves.own.slaves}
    if bond.servers.all:
        view.server_status = {str(one.nid): one.state.value for one in bond.servers.all.values()}
        view.lookups = sum(server.lookups for server in bond.servers.all.values())
    view.incarnation = bond.incarnation
    view.keepalives = bond.monitor.keepalives
    if bond.data.serves:
        view.registered = len(bond.data.registry)
        view.lookups_served = bond.data.registry.lookups


def _status(status: int) -> str:
    return SlaveStatus(status).name.lower() if status in tuple(SlaveStatus) else str(status)


def bond_of_peer(core: View, pni: PeerNi) -> BondPeerView | None:
    """`bond:` of a peer's bonding NID, None for another one."""
    for ni in core.nets[pni.nid.net].nis if pni.nid.net in core.nets else ():
        bond = ni.lnd_data
        peer = bond.peers.get(pni.nid) if isinstance(bond, BondNi) else None
        if peer is not None:
            view = BondPeerView(peer.state.value, peer.incarnation, peer.version)
            found = peer.configuration
            if found is not None:
                view.mode = _MODE_NAMES[found.mode]
                if found.mode is Mode.STANDBY:
                    view.active = str(found.slaves[found.active].nid)
                view.paths = [_path(path) for path in peer.paths[:_MOST_PATHS]]
            return view
    return None


def _path(path: Path) -> BondPathView:
    status = "up" if path.works else "down"
    if status == "down" and not path.down and path.ni.up:
        status = "stalled"
    weight = int(path.weight) if path.weight.is_integer() else round(path.weight, 2)
    return BondPathView(str(path.ni.nid), str(path.nid), status, weight, int(path.rate))
