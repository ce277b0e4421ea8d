"""What an administration holds beside its node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ulnet.bond import BondLnd
from ulnet.control.instance import LNet
from ulnet.dlc.caller import Role
from ulnet.dlc.config import Step
from ulnet.dlc.model import NetAdd, NetMatch
from ulnet.dlc.modprobe import Parameters, tune
from ulnet.host import Link, placed
from ulnet.node.admin.addition import Addition, Setting
from ulnet.node.admin.managed import ManagedNode
from ulnet.node.admin.sums import UseMeter

__all__ = ["AdminState"]


def _locks() -> dict[Role, asyncio.Lock]:
    """Held by who makes a long list in turns: one administrator at a time, and one who may only look."""
    return {role: asyncio.Lock() for role in Role}


@dataclass(slots=True)
class AdminState:
    """`host` lists the host's links; `startup` is what `lnet configure --all` does, in order.

    `parameters` are those of the modules; `additions` are parts above the node; `drain` is how many seconds
    what goes has to end its work; `large` prefers IPv6 NIDs. `listing` is held by who makes a long list.
    """

    node: ManagedNode
    host: Callable[[], Sequence[Link]]
    startup: Sequence[Step]
    parameters: Sequence[Parameters]
    drain: float
    additions: Sequence[Addition] = ()
    large: bool = False
    meter: UseMeter = field(default_factory=lambda: UseMeter(time.monotonic))
    listing: Mapping[Role, asyncio.Lock] = field(default_factory=_locks)

    @property
    def core(self) -> LNet:
        """Raises LNetError(ENETDOWN) while LNet is not configured."""
        return self.node.core

    @property
    def bonds(self) -> BondLnd:
        """The driver of bonding NIs."""
        return self.node.driver(BondLnd)

    @property
    def settings(self) -> dict[str, Setting]:
        """Those of the additions, by name."""
        return {name: setting for one in self.additions for name, setting in one.settings.items()}

    def links(self) -> list[Link]:
        """The host's links, each with its NUMA node."""
        return placed(self.host(), self.node.machine.topology)

    def tune(self, request: NetAdd | NetMatch) -> None:
        """What the drivers' module parameters say holds where the request says nothing."""
        for parameters in reversed(self.parameters):  # the last one counts
            tune([request], parameters.drivers)
