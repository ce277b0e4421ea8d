"""How a node routes and watches its gateways (spec routing.md §2, §3, §5)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RoutingSettings"]


@dataclass(slots=True)
class RoutingSettings:
    """The kernel's module parameters, under their names."""

    alive_router_check_interval: int = 60  # seconds between checks of a gateway on one net; 0: on use only
    router_ping_timeout: int = 50  # seconds more until a router takes a net without pings for down
    check_routers_before_use: bool = False  # a gateway is down until it was checked
    avoid_asym_router_failure: bool = True  # the far side of a gateway counts too, where it is one hop away
    peer_buffer_credits: int = 0  # messages of one peer that may be passing through; 0: its peer_credits

    @property
    def settling_time(self) -> int:
        """Seconds in which all who check this node have noticed a change (spec routing.md §4)."""
        return max(self.alive_router_check_interval, 0) + self.router_ping_timeout
