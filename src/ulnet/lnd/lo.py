"""The loopback driver: messages of a node to itself (`0@lo`)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from ulnet.core.lnd import Upcalls
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.status import HealthStatus
from ulnet.nid import LO_NID, NetType

__all__ = ["LoLnd"]


class LoLnd:
    """Delivers from the sender's memory straight into the receiver's; nothing is held in between.

    `defer` runs a call later, outside the sender's stack.
    """

    name = "lo"
    net_type = int(NetType.LO)
    reports_timeout = False

    def __init__(self, core: Upcalls, defer: Callable[..., Any]) -> None:
        self._core = core
        self._defer = defer

    def startup(self, ni: NI) -> None:
        """Nothing to prepare."""

    def shutdown(self, ni: NI) -> None:
        """Messages under way are deferred calls: they end by themselves."""

    def retune(self, ni: NI, timeout: float) -> None:
        """There is nothing to tune."""

    def send(self, ni: NI, msg: Msg) -> None:
        """Deliver soon."""
        self._defer(self._deliver, ni, msg)

    def _deliver(self, ni: NI, msg: Msg) -> None:
        if not ni.active:
            self._core.finalize(msg, HealthStatus.LOCAL_ERROR, errno.ESHUTDOWN, "the node is shutting down")
        elif self._core.parse(ni, msg.hdr, LO_NID, msg):
            self._core.finalize(
                msg, HealthStatus.LOCAL_ERROR, errno.EPROTO, "the message breaks LNet's rules"
            )
        elif not msg.hdr.payload_length:
            self._core.finalize(msg, HealthStatus.OK)

    def recv(
        self, ni: NI, rx: object, msg: Msg | None, buffers: list[memoryview], mlen: int, rlen: int
    ) -> None:
        """Copy from the sending message `rx`, then both sides are done."""
        assert isinstance(rx, Msg)
        if msg is not None:
            _copy(rx.payload, buffers, mlen)
            self._core.finalize(msg, HealthStatus.OK)
        self._core.finalize(rx, HealthStatus.OK)


def _copy(source: list[memoryview], target: list[memoryview], length: int) -> None:
    if len(source) == 1 and len(target) == 1:
        target[0][:length] = source[0][:length]
        return
    data = memoryview(b"".join(source))
    at = 0
    for view in target:
        view[:] = data[at : at + view.nbytes]
        at += view.nbytes
