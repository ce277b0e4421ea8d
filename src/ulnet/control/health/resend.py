"""Messages that failed and set out again: how often, when, how soon (spec health.md §3, selection.md §10).

A message that failed on a path it had not tried sets out again at once; on one that it had, after a
pause that doubles. So an instant failure cannot spin, and another path costs no time.
"""

from __future__ import annotations

from collections.abc import Callable

from ulnet.core.msg import Attempts, Msg
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.state import NodeState
from ulnet.core.timers import Timer

__all__ = ["Resender"]


class Resender:
    """Decides about another attempt and keeps the messages that pause; `launch` sends one again."""

    __slots__ = ("_launch", "_state", "pausing")

    def __init__(self, state: NodeState, launch: Callable[[Msg], None]) -> None:
        self._state = state
        self._launch: Callable[[Msg], None] = launch
        self.pausing: dict[Msg, Timer] = {}

    def allows(self, msg: Msg, ni: NI, pni: PeerNi) -> bool:
        """Whether msg, which failed on that pair, may be sent again; it is counted then.

        Not so a PUT that may be well, and its copy, which tries each pair once.
        """
        state = self._state
        limit = state.settings.retry_count
        if msg.exact or not limit or (msg.md is not None and msg.md.aborted):
            return False
        attempts = msg.attempts
        if attempts is None:
            attempts = msg.attempts = Attempts(msg.queued_at + self._patience(msg))
        pause = attempts.pause_after(ni, pni)
        well = attempts.well
        spared = well is not None and well in (msg, msg.copy_of)
        used_up = pause > 0 if spared else attempts.count >= limit
        if used_up or state.clock() + pause >= attempts.deadline:
            state.stats.failed_resends += attempts.count > 0
            return False
        attempts.count += not spared
        attempts.last = (ni, pni)
        attempts.pause = pause
        if not pause:
            attempts.tried.append((ni, pni))
        return True

    def spare(self, put: Msg) -> None:
        """put may be well, and is to be copied: it keeps its attempts for losses."""
        if put.attempts is None:
            put.attempts = Attempts(put.queued_at + self._patience(put))
        put.attempts.well = put

    def _patience(self, msg: Msg) -> float:
        timeout = msg.md.timeout if msg.md is not None else None
        return self._state.settings.transaction_timeout if timeout is None else timeout

    def schedule(self, msg: Msg) -> None:
        """Send msg again, now or after its pause."""
        attempts = msg.attempts
        assert attempts is not None
        state = self._state
        if attempts.pause:
            when = state.clock() + attempts.pause
            self.pausing[msg] = state.timers.at(when, lambda: self._resume(msg))
        else:
            state.defer(self._launch, msg)

    def _resume(self, msg: Msg) -> None:
        del self.pausing[msg]
        self._launch(msg)

    def close(self) -> None:
        """The node shuts down: those that pause end."""
        for msg, timer in list(self.pausing.items()):
            self._state.timers.cancel(timer)
            self._resume(msg)
