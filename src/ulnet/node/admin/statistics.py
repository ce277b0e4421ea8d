"""The requests about statistics, as handlers of Admin."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ulnet.dlc import model
from ulnet.dlc.documents import StatsDocument
from ulnet.dlc.documents_stats import SumsDocument, UseDocument
from ulnet.dlc.protocol import Answer
from ulnet.node.admin.show_node import reset_statistics, show_statistics
from ulnet.node.admin.sums import UseMeter, reset_nis, sums
from ulnet.node.node import Node

__all__ = ["Statistician"]

_VERIFY: Final = 2  # of `discovery`


class Statistician:
    """What a node counts, added up and over time."""

    def __init__(self, node: Node, clock: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._meter = UseMeter(clock)
        self.handlers: dict[type[Any], Callable[[Any], Awaitable[Answer]]] = {
            model.StatsShow: self._show,
            model.StatsReset: self._reset,
            model.SumsShow: self._sums,
            model.UseShow: self._use,
        }

    async def _show(self, request: model.StatsShow) -> Answer:
        core = self._node.core
        shown = show_statistics(core)
        seen = core.discovery.merging.differences
        if seen or core.settings.discovery == _VERIFY:  # the real tool knows no such counter
            shown.differences = seen
        if core.stats.drops:  # nor these
            shown.drops = dict(sorted(core.stats.drops.items()))
        return Answer(StatsDocument(shown))

    async def _reset(self, request: model.StatsReset) -> Answer:
        core = self._node.core
        reset_statistics(core)
        core.discovery.merging.differences = 0
        reset_nis([*core.nis.values(), *core.peers.nis()])
        if request.all:
            self._meter.forget()
        return Answer()

    async def _sums(self, request: model.SumsShow) -> Answer:
        return Answer(SumsDocument(sums(self._node.core, request)))

    async def _use(self, request: model.UseShow) -> Answer:
        return Answer(UseDocument(self._meter.read(self._node.core, request)))
