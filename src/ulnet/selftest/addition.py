"""Selftest as a part of a daemon: the node's side, the console, and the setting that switches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ulnet.dlc.model_selftest import Lst
from ulnet.dlc.protocol import Answer
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.node.admin.addition import ADDED_SETTINGS, Setting
from ulnet.selftest.console import Console
from ulnet.selftest.service import Selftest

__all__ = ["SelftestAddition"]


class SelftestAddition:
    """What `Admin` takes as an addition. `reach` and `ended` are as with `Console`."""

    def __init__(
        self,
        node: Node,
        *,
        on: bool,
        reach: Callable[[Nid], None] | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self._began = int(on)
        self.selftest: Selftest = Selftest(node, on=on)
        self.console: Console = Console(self.selftest.exchange, reach=reach, ended=ended)

    @property
    def handlers(self) -> Mapping[type[Any], Callable[[Any], Awaitable[Answer]]]:
        """Commands to the console."""
        return {Lst: self._lst}

    @property
    def settings(self) -> Mapping[str, Setting]:
        """`selftest`: whether tests are taken."""
        most = ADDED_SETTINGS["selftest"]
        return {"selftest": Setting(lambda: int(self.selftest.on), self._switch, most, self._began)}

    def _switch(self, value: int) -> None:
        self.selftest.switch(bool(value))

    async def _lst(self, request: Lst) -> Answer:
        return Answer(await self.console.do(request))

    def begin(self) -> None:
        """LNet is up: answer requests. Raises LNetError."""
        self.selftest.start()

    async def end(self) -> None:
        """LNet is about to shut down: end sessions."""
        await self.console.close()
        await self.selftest.close()
