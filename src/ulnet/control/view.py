"""An instance as documents read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ulnet.control.discovery import Discovery
    from ulnet.control.health import Health
    from ulnet.control.policy import Policies
    from ulnet.control.routing import Routing
    from ulnet.control.self_info import SelfInfo
    from ulnet.core.access import Access
    from ulnet.core.cpt import CptTable
    from ulnet.core.faults import FaultInjector
    from ulnet.core.ni import NI, LocalNet
    from ulnet.core.peer_table import PeerTable
    from ulnet.core.routing.gateways import Gateways
    from ulnet.core.routing.router import Router
    from ulnet.core.selection import Explanation
    from ulnet.core.stats import GlobalStats
    from ulnet.core.tunables import GlobalSettings
    from ulnet.nid import Net, Nid

__all__ = ["View"]


class View(Protocol):
    """What functions that show something get of `LNet`: no call of it that changes anything."""

    # fmt: off
    @property
    def nets(self) -> Mapping[Net, LocalNet]: ...
    @property
    def nis(self) -> Mapping[Nid, NI]: ...
    @property
    def peers(self) -> PeerTable: ...
    @property
    def stats(self) -> GlobalStats: ...
    @property
    def cpts(self) -> CptTable: ...
    @property
    def settings(self) -> GlobalSettings: ...
    @property
    def access(self) -> Access: ...
    @property
    def info(self) -> SelfInfo: ...
    @property
    def discovery(self) -> Discovery: ...
    @property
    def health(self) -> Health: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def faults(self) -> FaultInjector: ...
    @property
    def gateways(self) -> Gateways: ...
    @property
    def routing(self) -> Routing: ...
    @property
    def router(self) -> Router: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    # fmt: on

    def explain(
        self, target: Nid, *, source: Nid | None = None, size: int = 0, cpt: int | None = None
    ) -> Explanation:
        """Which path a request would take, and why. Raises LNetError."""
