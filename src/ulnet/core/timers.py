"""Calls at a later time, for the parts of a node that keep their own pace (discovery, recovery, resends)."""

from __future__ import annotations

from collections.abc import Callable

from ulnet.core.deadlines import DeadlineWheel

__all__ = ["Timer", "Timers"]


class Timer:
    """One call to come; `Timers.cancel` takes it back."""

    __slots__ = ("call", "key", "slot")

    def __init__(self, key: int, call: Callable[[], None]) -> None:
        self.key = key
        self.call: Callable[[], None] | None = call
        self.slot = 0


class Timers:
    """All calls to come of one node, due to the next tenth of a second, in order of time and then of age."""

    __slots__ = ("_count", "_wheel")

    def __init__(self, on_earlier: Callable[[], None]) -> None:
        self._wheel: DeadlineWheel[Timer] = DeadlineWheel(on_earlier)
        self._count = 0

    def __len__(self) -> int:
        return len(self._wheel)

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        """Call `call` at `when` (seconds of the node's clock) or soon after."""
        self._count += 1
        timer = Timer(self._count, call)
        timer.slot = self._wheel.add(timer.key, when, timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Take a call back; one that was made, was taken back, or is None is ignored."""
        if timer is not None and timer.call is not None:
            timer.call = None
            self._wheel.discard(timer.key, timer.slot)

    def run(self, now: float) -> None:
        """Make the calls that are due."""
        for timer, _ in self._wheel.expire(now):
            call, timer.call = timer.call, None
            if call is not None:  # an earlier one may have taken it back
                call()

    def next_deadline(self) -> float | None:
        """When `run` should be called next, or None."""
        return self._wheel.next_deadline()
