"""Long work for one request, in turns with everything else that a node does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

__all__ = ["Listing", "others"]

_AT_ONCE: Final = 16  # things that one turn of the loop looks at

_json = msgspec.json.Encoder()


async def others(at: int) -> None:
    """Let others have their turn, now and then."""
    if at % _AT_ONCE == _AT_ONCE - 1:
        await asyncio.sleep(0)


class Listing:
    """A document with lists that others can make very long: their items are made a few in a turn of the loop.

    `lists` has what makes the items, by the document's fields. It goes on after others changed what it looks
    at, and gives None where a part of an item was made.
    """

    def __init__(
        self, document: msgspec.Struct, lists: Mapping[str, Iterator[msgspec.Struct | None]]
    ) -> None:
        self._document = document
        self._lists = lists

    async def read(self, alone: asyncio.Lock, encoded: bool) -> msgspec.Struct:
        """The document. Items that are to be `encoded` are JSON already: a tenth of the memory.

        Who needs several turns takes them `alone`: the others of this kind wait.
        """
        steps, held = 0, False
        try:
            for name, items in self._lists.items():
                made: list[Any] = []
                for item in items:
                    if item is not None:
                        made.append(msgspec.Raw(_json.encode(item)) if encoded else item)
                    steps += 1
                    if steps == _AT_ONCE:
                        held = await alone.acquire()
                    await others(steps - 1)
                setattr(self._document, name, made)
        finally:
            if held:
                alone.release()
        return self._document
