"""The monitor: all that is due later at one node, in one deadline wheel that `tick` drives (HEALTH-monitor).

Calls to come are for the parts that keep their own pace (discovery, recovery, resends, checks of routers);
beside them wait the memory descriptors to which an answer is due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ulnet.core.deadlines import DeadlineWheel
from ulnet.core.md import Md

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["Deadlines", "Timer", "Timers"]


class Timer:
    """One call to come; `Timers.cancel` takes it back."""

    __slots__ = ("call", "key", "slot")

    def __init__(self, key: int, call: Callable[[], None]) -> None:
        self.key: int = key
        self.call: Callable[[], None] | None = call
        self.slot: int = 0


Deadlines: TypeAlias = "DeadlineWheel[Timer | Md]"


class Timers:
    """All that is due at one node, to the next tenth of a second, in order of time and then of age.

    A descriptor is entered in `wheel` under its handle; calls have keys below 0. What a call raises is told
    to `failed`: it keeps nothing else that is due from being done.
    """

    __slots__ = ("_count", "_failed", "_parts", "wheel")

    def __init__(
        self, on_earlier: Callable[[], None], failed: Callable[[BaseException], None], parts: Parts
    ) -> None:
        self.wheel: Deadlines = DeadlineWheel(on_earlier)
        self._failed = failed
        self._parts = parts
        self._count = 0

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        """Call `call` at `when` (seconds of the node's clock) or soon after."""
        self._count -= 1
        timer = Timer(self._count, call)
        timer.slot = self.wheel.add(timer.key, when, timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Take a call back; one that was made, was taken back, or is None is ignored."""
        if timer is not None and timer.call is not None:
            timer.call = None
            self.wheel.discard(timer.key, timer.slot)

    def run(self, now: float) -> None:
        """Do what is due; descriptors are given to the memory, with their slot."""
        for item, slot in self.wheel.expire(now):
            try:
                if isinstance(item, Md):
                    self._parts.expire(item, slot)
                    continue
                call, item.call = item.call, None
                if call is not None:  # an earlier one may have taken it back
                    call()
            except BaseException as error:  # the others are out of the wheel: nobody else would run them
                self._failed(error)

    def next_deadline(self) -> float | None:
        """When `run` should be called next, or None."""
        return self.wheel.next_deadline()
