"""An event loop for programs to which a microsecond matters: asyncio's, but for the connections' readers.

`asyncio.Runner(loop_factory=ulnet.new_event_loop)` runs a program on it. Nodes work on any other as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from selectors import BaseSelector
from typing import cast

from ulnet.lnd.express import Express

__all__ = ["Loop", "new_event_loop"]

_call_soon = asyncio.SelectorEventLoop.call_soon


class Loop(asyncio.SelectorEventLoop):
    """asyncio's loop over `Express`, which it tells of all that is to be done by it."""

    def __init__(self) -> None:
        self.express = Express(self._reader_failed)
        super().__init__(cast(BaseSelector, self.express))

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As ever."""
        self.express.news = True
        if len(args) == 1:  # a future wakes who waits for it: spelt out, that is a third of the cost
            return _call_soon(self, callback, args[0], context=context)
        return _call_soon(self, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As ever (`call_later` comes here as well)."""
        self.express.news = True
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        """As ever."""
        self.express.news = True
        super().stop()

    def _reader_failed(self, failure: BaseException) -> None:
        self.call_exception_handler(
            {"message": "Exception in the reader of a connection", "exception": failure}
        )


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop; whoever made it closes it."""
    return Loop()
