"""Selftest on one node: requests find their service, and an answer while it is off."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Final

from ulnet.core.status import LNetError
from ulnet.node import Node
from ulnet.selftest.exchange import Exchange, Incoming
from ulnet.selftest.framework import Framework
from ulnet.selftest.services import PING_MAGIC, TestServices
from ulnet.wire.selftest import VERSION, is_framework
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
        self.exchange = Exchange(node, wall=wall)
        self.framework = Framework(self.exchange, session_timeout=session_timeout, rpc_timeout=rpc_timeout)
        self._services = TestServices(self.exchange, self.framework.data_corrupted, timeout=rpc_timeout)
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
            self.exchange.serve(self._answer)

    async def close(self) -> None:
        """End the session and answer nobody any more."""
        self.framework.end_session()
        self.exchange.stop()
        await self.exchange.stopped()
        await self.framework.ended()

    async def __aenter__(self) -> Selftest:
        self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _answer(self, incoming: Incoming) -> None:
        try:
            reply = await self._reply_to(incoming)
        except LNetError:  # the node is shutting down
            reply = None
        if reply is None:
            self.exchange.dropped += 1
        else:
            await self.exchange.reply(incoming, reply, self.framework.features)

    async def _reply_to(self, incoming: Incoming) -> Reply | None:
        request = incoming.request
        service = incoming.message.service
        if isinstance(request, JoinRequest):
            return None  # nobody has that service
        if not self._on or incoming.message.version != VERSION:
            status = _MISMATCH if self._on else OFF
            if isinstance(request, PingRequest):
                return PingReply(status, PING_MAGIC, request.sequence)
            return REPLIES[service](status)  # type: ignore[call-arg]
        if is_framework(service):
            return await self.framework.answer(incoming)
        session = self.framework.session
        features = session.features if session is not None else None
        if isinstance(request, BrwRequest):
            return await self._services.brw(incoming, features)
        return self._services.ping(incoming, features)
