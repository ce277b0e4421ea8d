"""Selftest on one node: requests find their service, and an answer while it is off."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ulnet.node import Node
from ulnet.selftest.exchange import Exchange, Incoming
from ulnet.selftest.framework import Framework
from ulnet.selftest.services import PING_MAGIC, TestServices
from ulnet.wire.selftest import VERSION
from ulnet.wire.selftest_bodies import (
    REPLIES,
    BrwRequest,
    JoinRequest,
    PingReply,
    PingRequest,
    Reply,
)

__all__ = ["OFF", "Selftest"]

OFF: Final = errno.EOPNOTSUPP  # the status of every reply while selftest is off
_MISMATCH: Final = errno.EPROTO
SESSION_TIMEOUT: Final = 100.0
RPC_TIMEOUT: Final = 64.0


class Selftest:
    """The node's side of selftest: `start` it when the node is up; `on` is whether tests are taken.

    While it is off each request is answered by EOPNOTSUPP. `wall` is the time of day in nanoseconds, from
    which match bits follow.
    """

    def __init__(
        self,
        node: Node,
        *,
        on: bool = True,
        session_timeout: float = SESSION_TIMEOUT,
        rpc_timeout: float = RPC_TIMEOUT,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.node = node
        self.exchange: Exchange = Exchange(node, wall=wall)
        self.framework: Framework = Framework(
            self.exchange, session_timeout=session_timeout, rpc_timeout=rpc_timeout
        )
        corrupted = self.framework.data_corrupted
        self._services = TestServices(self.exchange, corrupted, self._tell, timeout=rpc_timeout)
        self._on = on

    @property
    def on(self) -> bool:
        """Whether tests are taken."""
        return self._on

    def switch(self, on: bool) -> None:
        """Take tests, or refuse them from now on; a session ends then."""
        if self._on and not on:
            self.framework.end_session()
        self._on = on

    def start(self) -> None:
        """Answer requests, in this life of the node. Raises LNetError."""
        if not self.exchange.serving:
            self._services.start()
            self.exchange.serve(self._answer)

    async def close(self) -> None:
        """End the session and answer nobody any more."""
        self.framework.end_session()
        self.exchange.stop()
        self._services.forget()
        await self.exchange.stopped()
        await self.framework.ended()

    async def __aenter__(self) -> Selftest:
        self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _answer(self, incoming: Incoming) -> Coroutine[Any, Any, None] | None:
        request = incoming.request
        if isinstance(request, JoinRequest):  # nobody has that service
            self._tell(incoming, None)
        elif not self._on or incoming.message.version != VERSION:
            status = _MISMATCH if self._on else OFF
            if isinstance(request, PingRequest):
                self._tell(incoming, PingReply(status, PING_MAGIC, request.sequence))
            else:
                self._tell(incoming, REPLIES[incoming.message.service](status))  # type: ignore[call-arg]
        elif isinstance(request, PingRequest):
            self._tell(incoming, self._services.ping(incoming, self._session_features))
        elif isinstance(request, BrwRequest):
            self._services.brw(incoming, self._session_features)
        else:
            return self._framework(incoming)
        return None

    async def _framework(self, incoming: Incoming) -> None:
        self._tell(incoming, await self.framework.answer(incoming))

    def _tell(self, incoming: Incoming, reply: Reply | None) -> None:
        if reply is None:
            self.exchange.dropped += 1
        else:
            self.exchange.reply(incoming, reply, self.framework.features)

    @property
    def _session_features(self) -> int | None:
        session = self.framework.session
        return session.features if session is not None else None
