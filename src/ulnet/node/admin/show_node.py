"""Node-wide counters and settings as documents (spec lnetctl.md §5)."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from ulnet.control.instance import LNet
from ulnet.core.stats import GlobalStats
from ulnet.core.tunables import GlobalSettings
from ulnet.dlc.documents import Globals, Statistics
from ulnet.dlc.documents_counters import read_counters
from ulnet.dlc.model import StatsReset
from ulnet.node.admin.state import AdminState
from ulnet.node.admin.sums import reset_nis

__all__ = ["reset_statistics", "show_globals", "show_statistics"]

_USUAL = GlobalSettings().degraded_below
_VERIFY: Final = 2  # of `discovery`


def show_statistics(core: LNet) -> Statistics:
    """`stats show`."""
    shown = read_counters(Statistics, core)
    seen = core.discovery.merging.differences
    if seen or core.settings.discovery == _VERIFY:  # the real tool knows no such counter
        shown.differences = seen
    if core.stats.drops:  # nor these
        shown.drops = dict(sorted(core.stats.drops.items()))
    return shown


def reset_statistics(state: AdminState, request: StatsReset) -> None:
    """Zero them; how many messages live and answers are awaited now is a state, not a count, and stays."""
    core = state.core
    fresh = GlobalStats()
    fresh.msgs_alloc = fresh.msgs_max = core.stats.msgs_alloc
    core.state.stats = fresh
    core.discovery.merging.differences = 0
    reset_nis([*core.nis.values(), *core.peers.nis()])
    if request.all:
        state.meter.forget()


def show_globals(core: LNet) -> Globals:
    """`global show`."""
    settings = core.settings
    return Globals(
        numa_range=settings.numa_range,
        max_interfaces=settings.max_interfaces,
        discovery=settings.discovery,
        drop_asym_route=settings.drop_asym_route,
        retry_count=settings.retry_count,
        transaction_timeout=settings.transaction_timeout,
        health_sensitivity=settings.health_sensitivity,
        recovery_interval=settings.recovery_interval,
        router_sensitivity=settings.router_sensitivity,
        lnd_timeout=settings.lnd_timeout,
        response_tracking=settings.response_tracking,
        recovery_limit=settings.recovery_limit,
        max_recovery_ping_interval=settings.max_recovery_ping_interval,
        use_tcp_bonding=settings.use_tcp_bonding or UNSET,
        degraded_below=UNSET if settings.degraded_below == _USUAL else settings.degraded_below,
    )
