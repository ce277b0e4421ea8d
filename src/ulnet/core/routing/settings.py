"""How a node routes and watches its gateways (spec routing.md §2, §3, §5)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from ulnet.core.status import LNetError

__all__ = ["RoutingSettings"]

_MOST: Final = 86400
_RANGES: Final = {
    "alive_router_check_interval": (-1, _MOST),  # 0 and less: on use only
    "router_ping_timeout": (0, _MOST),
    "check_routers_before_use": (0, 1),
    "avoid_asym_router_failure": (0, 1),
    "peer_buffer_credits": (0, 2**31 - 1),
}


@dataclass(slots=True)
class RoutingSettings:
    """The kernel's module parameters, under their names."""

    alive_router_check_interval: int = 60  # seconds between checks of a gateway on one net
    router_ping_timeout: int = 50  # seconds for the answer to a check; more until a silent net is down
    check_routers_before_use: int = 0  # a gateway is down until it was checked
    avoid_asym_router_failure: int = 1  # the far side of a gateway counts too, where it is one hop away
    peer_buffer_credits: int = 0  # messages of one peer that may be passing through; 0: its peer_credits

    @property
    def settling_time(self) -> int:
        """Seconds in which all who check this node have noticed a change (spec routing.md §4)."""
        return max(self.alive_router_check_interval, 0) + self.router_ping_timeout

    def change(self, values: Mapping[str, int]) -> None:
        """Set all values or none. Raises LNetError(EINVAL)."""
        for name, value in values.items():
            if name not in _RANGES:
                known = ", ".join(_RANGES)
                raise LNetError(errno.EINVAL, f"{name!r} is no setting of routing: known are {known}")
            low, high = _RANGES[name]
            if not low <= value <= high:
                raise LNetError(errno.EINVAL, f"{name} {value} is out of range: use {low} to {high}")
        for name, value in values.items():
            setattr(self, name, value)

    def changed(self) -> dict[str, int]:
        """The settings that differ from their defaults."""
        now = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in now.items() if value != getattr(_DEFAULTS, name)}


_DEFAULTS: Final = RoutingSettings()
