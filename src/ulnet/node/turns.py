"""A bound on the steps that go on in one turn of the loop, for clients that wait for theirs in turn."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["Turns"]

_MOST: Final = 64  # steps in a turn, unless told otherwise: each may send a message

Step = Callable[[], object]


class Turns:
    """So many steps go on in a turn of the loop; the others wait, and clients have theirs one by one.

    Without this thousands of streams that one client of rpc has would all go on in the turn in which it
    gives them credit, or in which something is published, and so would all units of a test.
    """

    __slots__ = ("_counts", "_left", "_loop", "_most", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = _MOST) -> None:
        self._loop = loop
        self._most = most
        self._left = most  # in this turn
        self._counts = False  # the next turn is awaited
        # Those of each client, in order. A dict finds its first slowly when others went.
        self.waiting: OrderedDict[Hashable, OrderedDict[Step, None]] = OrderedDict()

    def take(self) -> bool:
        """Whether one more goes on in this turn; none does before those that wait."""
        if self.waiting or self._left <= 0:
            return False
        self._left -= 1
        if not self._counts:
            self._counts = True
            self._loop.call_soon(self._next)
        return True

    def spend(self, steps: int) -> None:
        """The step that goes on now counts as so many more."""
        self._left -= steps

    def add(self, client: Hashable, step: Step) -> None:
        """Call that now, or in a turn that comes. What waits already is called once."""
        if self.take():
            step()
        else:
            steps = self.waiting.get(client)
            if steps is None:
                steps = self.waiting[client] = OrderedDict()
            steps[step] = None

    def discard(self, client: Hashable, step: Step) -> None:
        """Do not call it. What does not wait is ignored."""
        steps = self.waiting.get(client)
        if steps is not None and step in steps:
            del steps[step]
            if not steps:
                del self.waiting[client]

    async def wait(self, client: Hashable) -> None:
        """Until it is the turn of who calls this, as one step."""
        mine = asyncio.Event()
        self.add(client, mine.set)
        try:
            await mine.wait()
        finally:
            self.discard(client, mine.set)

    def _next(self) -> None:
        """Another turn: of each client that waits one step, and again while there is room."""
        waiting = self.waiting
        self._left = self._most
        self._counts = bool(waiting)
        if self._counts:
            self._loop.call_soon(self._next)  # first, as a step may raise something
        while waiting and self._left > 0:
            self._left -= 1
            client, steps = waiting.popitem(last=False)
            step, _ = steps.popitem(last=False)
            if steps:
                waiting[client] = steps
            step()
