"""Memory for messages that does not fill up for good, for a thread that reads them."""

from __future__ import annotations

import asyncio
import errno
from typing import Any, Self

from ulnet.core.md import checked_timeout
from ulnet.core.status import LNetError
from ulnet.node import Message
from ulnet.sync.node import Node, Part

__all__ = ["Inbox"]


class Inbox(Part):
    """Messages as an endless iterator: `for message in Inbox(node, 30, 7):`.

    Options are those of `ulnet.Node.inbox`.
    """

    def __init__(self, node: Node, portal: int, match_bits: int, **options: Any) -> None:
        super().__init__(node)
        self._inbox = node.do(node.node.inbox, portal, match_bits, **options)
        node.parts[self] = None

    @property
    def dropped(self) -> int:
        """How many messages found no room."""
        return self._inbox.dropped

    def receive(self, timeout: float | None = None) -> Message:
        """The next message. Raises TimeoutError, and LNetError(ESHUTDOWN) when it or its node was closed."""
        if timeout is not None:
            timeout = checked_timeout(max(timeout, 0))  # what is left of a time may be negative

        async def receive() -> Message | None:
            async with asyncio.timeout(timeout):
                try:
                    return await self._inbox.receive()
                except StopAsyncIteration:
                    return None

        message = self._thread.run(receive)
        if message is None:
            raise LNetError(errno.ESHUTDOWN, "the inbox was closed")
        return message

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        self._thread.check()
        try:
            return self.receive()
        except LNetError:
            raise StopIteration from None

    def __len__(self) -> int:
        return len(self._inbox)

    async def _end(self) -> None:
        self._inbox.close()
