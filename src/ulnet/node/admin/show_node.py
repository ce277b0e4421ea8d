"""Node-wide counters as documents (spec lnetctl.md §5)."""

from __future__ import annotations

from typing import Final

from ulnet.control.view import View
from ulnet.dlc.documents import Statistics
from ulnet.dlc.documents_counters import read_counters
from ulnet.dlc.model import StatsReset
from ulnet.node.admin.state import AdminState
from ulnet.node.admin.sums import reset_nis

__all__ = ["reset_statistics", "show_statistics"]

_VERIFY: Final = 2  # of `discovery`


def show_statistics(core: View) -> Statistics:
    """`stats show`."""
    shown = read_counters(Statistics, core)
    seen = core.discovery.merging.differences
    if seen or core.settings.discovery == _VERIFY:  # the real tool knows no such counter
        shown.differences = seen
    if core.stats.drops:  # nor these
        shown.drops = dict(sorted(core.stats.drops.items()))
    return shown


async def reset_statistics(state: AdminState, request: StatsReset) -> None:
    """Zero them."""
    core = state.core
    core.reset_stats()
    core.discovery.merging.differences = 0
    await reset_nis([*core.nis.values(), *core.peers.nis()])
    if request.all:
        state.meter.forget()
