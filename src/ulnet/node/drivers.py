"""The drivers of a node: its own and those of other packages; and what its user calls of single ones."""

from __future__ import annotations

import asyncio
import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from ulnet.bond import BondLnd, bond_config
from ulnet.core.status import LNetError
from ulnet.lnd.lo import LoLnd
from ulnet.lnd.o2ib import O2ibLnd, O2ibParams
from ulnet.lnd.o2ib.rdma import RdmaVerbs
from ulnet.lnd.registry import installed_drivers
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.nid import Nid
from ulnet.node.devices import Devices
from ulnet.node.peers import as_net

if TYPE_CHECKING:
    from ulnet.control.instance import LNet
    from ulnet.core.lnd import Lnd
    from ulnet.core.ni import NI

__all__ = ["DriverCalls", "carriers", "everywhere", "parameters_of"]

D = TypeVar("D")
_TCP = "tcp"  # as TcpLnd.name has it, which the compiled build has of instances alone
_O2IB = "o2ib"
_PARAMETERS = {_TCP: TcpParams, _O2IB: O2ibParams}  # of drivers that have some


def parameters_of(given: Mapping[str, object]) -> Mapping[str, object]:
    """Parameters of drivers by name, checked. Raises LNetError(EINVAL)."""
    for name, one in given.items():
        kind = _PARAMETERS.get(name)
        if kind is None:
            known = ", ".join(_PARAMETERS)
            raise LNetError(errno.EINVAL, f"{name!r} is no driver with parameters: those are {known}")
        if one is not None and not isinstance(one, kind):
            raise LNetError(errno.EINVAL, f"{name}={one!r}: give it as {kind.__name__}")
    return given


def everywhere(core: LNet) -> list[Lnd]:
    """The drivers that need no device."""
    return [LoLnd(core, core.defer), BondLnd(core)]


def carriers(
    core: LNet,
    loop: asyncio.AbstractEventLoop,
    parameters: Mapping[str, object],
    report: Callable[[str], None],
) -> list[Lnd]:
    """The drivers of devices; one of another package that is broken is told and left out."""
    params = cast(TcpParams | None, parameters.get(_TCP))
    rdma = cast(O2ibParams | None, parameters.get(_O2IB)) or O2ibParams()
    verbs = RdmaVerbs(loop, rdma, report)
    found: list[Lnd] = [
        TcpLnd(core, loop, params, report=report, watch=Devices(loop, report)),
        O2ibLnd(core, loop, verbs, rdma, report=report),
    ]
    for name, load in installed_drivers().items():
        try:
            found.append(load()(core, loop))
        except Exception as broken:
            report(f"driver {name} cannot be used: {type(broken).__name__}: {broken}")
    return found


class DriverCalls(ABC):
    """The calls of `Node` that are about single drivers."""

    _drivers: list[Lnd]

    @property
    @abstractmethod
    def core(self) -> LNet:
        """The LNet instance. Raises LNetError(ENETDOWN) before `start` and after `close`."""

    def driver(self, kind: type[D]) -> D:
        """The driver of that class. Raises LNetError(EINVAL) where the node has none."""
        for one in self._drivers:
            if isinstance(one, kind):
                return one
        names = ", ".join(one.name for one in self._drivers) or "none before it is started"
        raise LNetError(errno.EINVAL, f"no driver is a {kind.__name__}: this node has {names}")

    def add_bond(
        self,
        net: str,
        slaves: Sequence[Nid | str],
        *,
        mode: str = "standby",
        policy: str | None = None,
        failback: bool = True,
        weights: Mapping[str, int] | Sequence[int] | None = None,
        servers: Sequence[Nid | str] = (),
        keepalive: float = 2.0,
    ) -> NI:
        """Add a bonding NI over NIs of this node: `add_bond("bond0", ["*@tcp0", "*@tcp1"])`.

        Its address is that of the first slave, the default one in standby mode. Mode "loadbalance" has the
        policies "roundrobin", "weights", "dynamic" and "congestion". `servers` are bonding data servers.
        Raises LNetError.
        """
        config = bond_config(
            as_net(net),
            slaves,
            self.core.nis,
            mode=mode,
            policy=policy,
            failback=failback,
            weights=weights,
            servers=servers,
            keepalive=keepalive,
        )
        return self.driver(BondLnd).add(config)
