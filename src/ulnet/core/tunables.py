"""Settings and their defaults (spec lnetctl.md §2, wire-socklnd.md §7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_TIMEOUT", "SECURED", "UNSET_TIMEOUT", "GlobalSettings", "LndTunables", "NetTunables"]


SECURED: Final = 2  # `security` of a net: secured connections alone
DEFAULT_TIMEOUT: Final = 50
UNSET_TIMEOUT: Final = -1


@dataclass(slots=True)
class NetTunables:
    """Per-net tunables; the first NI of a net fixes them for later ones."""

    peer_timeout: int = 180  # seconds for which a router believes that a next hop is down; 0: never
    peer_credits: int = 8  # sends in flight per peer NI
    peer_buffer_credits: int = 0  # 0: the global value, else peer_credits
    credits: int = 256  # sends in flight per NI


@dataclass(slots=True)
class LndTunables:
    """What `lnd tunables` shows for a net of each type.

    `timeout` 0 is what the settings leave for an attempt; not set, it is 50 s, or that where it is less.
    """

    peercredits_hiw: int = 0  # o2ib: credits that are returned by a NOOP, where nothing else returns them
    concurrent_sends: int = 0  # o2ib: messages posted on a connection and not completed; 0: peer_credits
    map_on_demand: int = 1  # o2ib: memory is registered for each transfer; there is no other way here
    fmr_pool_size: int = 512  # o2ib: of kernel nodes, as the next two; nothing follows from them here
    fmr_flush_trigger: int = 384
    fmr_cache: int = 1
    ntx: int = 512  # o2ib: messages on connections that are no answers, at most
    conns_per_peer: int = 1
    timeout: int = UNSET_TIMEOUT  # seconds
    tos: int = -1
    security: int = 0  # of connections: 0 plain, 1 secured with who can, 2 secured alone


@dataclass(slots=True)
class GlobalSettings:
    """The `global:` block, in its printing order."""

    numa_range: int = 0
    max_interfaces: int = 4096
    discovery: int = 1
    drop_asym_route: int = 0
    retry_count: int = 2
    transaction_timeout: int = 150
    health_sensitivity: int = 100
    recovery_interval: int = 1
    router_sensitivity: int = 100
    response_tracking: int = 3
    recovery_limit: int = 0
    max_recovery_ping_interval: int = 900
    use_tcp_bonding: int = 0  # 1: tcp nets configured from now on are one NI over all their interfaces
    degraded_below: int = 25  # percent of an NI's usual rate; 0: rates are not judged

    @property
    def lnd_timeout(self) -> int:
        """Seconds an LND may take when it has no timeout of its own (spec health.md §2)."""
        return max((self.transaction_timeout - 1) // (self.retry_count + 1), 1)

    def timeout_of(self, given: LndTunables | None) -> int:
        """Seconds that a driver with these tunables may take for an attempt.

        Kernel nodes leave 50 s alone whatever the settings; the defaults of these make it 49.
        """
        wanted = given.timeout if given is not None else UNSET_TIMEOUT
        if wanted > 0:
            return wanted
        derived = self.lnd_timeout
        return DEFAULT_TIMEOUT if wanted == UNSET_TIMEOUT and derived >= DEFAULT_TIMEOUT - 1 else derived
