"""An event loop for programs to which a microsecond matters: asyncio's, but for its selector.

`asyncio.Runner(loop_factory=ulnet.new_event_loop)` runs a program on it. Nodes work on any other as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from selectors import BaseSelector
from typing import cast

from ulnet.lnd.selector import Selector

__all__ = ["Loop", "new_event_loop", "tell_failure"]

_call_soon = asyncio.SelectorEventLoop.call_soon


class Loop(asyncio.SelectorEventLoop):
    """asyncio's loop over our `Selector`, which is told of all that the loop has to do."""

    def __init__(self) -> None:
        self.selector: Selector = Selector(self._reader_failed)
        self.selector.open()
        self.selector.is_loops = True
        super().__init__(cast(BaseSelector, self.selector))

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call soon, as any loop does."""
        self.selector.news = True
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
        """Call later, as any loop does (`call_later` comes here as well)."""
        self.selector.news = True
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        """Stop, as any loop does."""
        self.selector.news = True
        super().stop()

    def _reader_failed(self, failure: BaseException) -> None:
        tell_failure(self, failure)


def tell_failure(loop: asyncio.AbstractEventLoop, failure: BaseException) -> None:
    """Give an exception of a reader or writer to a loop's handler."""
    loop.call_exception_handler({"message": "Exception in the reader of a connection", "exception": failure})


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop; whoever made it closes it."""
    return Loop()
