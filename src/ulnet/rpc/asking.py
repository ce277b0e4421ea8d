"""A client's questions for a session, one at a time, and what is answered."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Final

from ulnet.node.port import Port
from ulnet.rpc.errors import RpcError, errno_of
from ulnet.wire.rpc import Connected, Frame, OtherVersion, Refused

__all__ = ["Asking"]

_NO_ANSWER: Final = "no answer"


class Asking:
    """The question of the client of a `service` at `target`; `why` says why there is no session yet."""

    __slots__ = ("_answered", "_loop", "_port", "_service", "_target", "_token", "why")

    def __init__(self, loop: asyncio.AbstractEventLoop, port: Port, target: str, service: str) -> None:
        self._loop = loop
        self._port = port
        self._target = target
        self._service = service
        self._answered: asyncio.Future[Connected] | None = None
        self._token = 0
        self.why: str = _NO_ANSWER

    def begin(self) -> None:
        """Nothing was asked yet."""
        self.why = _NO_ANSWER

    def ask(self, token: int) -> Callable[[int, str], None]:
        """Something is asked, under that token; who is to hear what becomes of its frame."""
        self._token = token
        answered = self._answered = self._loop.create_future()
        return partial(self._left, answered)

    def _left(self, answered: asyncio.Future[Connected], error: int, text: str) -> None:
        if error:
            self.why = text
        if answered.done():
            return
        if self._port.closed:
            answered.set_exception(self._failure(errno.ESHUTDOWN, "this node was shut down"))
        elif error == errno.ENOENT:
            words = f"nothing serves {self._service!r} there: see the service's name"
            answered.set_exception(self._failure(errno.ENOENT, words))

    def _failure(self, number: int, words: str) -> RpcError:
        return RpcError(number, f"{self._target}: {words}", "no")

    async def answer(self, patience: float) -> Connected | None:
        """The answer to what was asked; None if there is none in time. Raises RpcError."""
        answered = self._answered
        assert answered is not None
        try:
            async with asyncio.timeout(patience):
                return await answered
        except TimeoutError:
            return None
        finally:
            self._answered = None

    def connected(self, frame: Connected) -> bool:
        """Whether that is an answer to what is asked."""
        answered = self._answered
        if answered is None or answered.done() or frame.token != self._token:
            return False
        if frame.slots:
            answered.set_result(frame)
        else:
            answered.set_exception(self._failure(errno.EPROTO, "the server made a session without slots"))
        return True

    def refused(self, frame: Frame) -> bool:
        """Whether something is asked, which a frame that is about no session may refuse."""
        answered = self._answered
        if answered is None or answered.done():
            return False
        if isinstance(frame, Refused):
            answered.set_exception(self._failure(errno_of(frame.errno), frame.text))
        elif isinstance(frame, OtherVersion):
            words = f"{self._target} speaks version {frame.version}"
            answered.set_exception(RpcError(errno.EPROTONOSUPPORT, words, "no"))
        return True
