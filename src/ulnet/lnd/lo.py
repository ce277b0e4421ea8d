"""The loopback driver: messages of a node to itself (`0@lo`)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, cast

from ulnet.core.msg import Incoming, Msg
from ulnet.core.ni import NI
from ulnet.core.status import HealthStatus
from ulnet.lnd.contract import Inbound, Upcalls
from ulnet.nid import LO_NID, NetType, Nid

__all__ = ["LoLnd"]


class _Delivery:
    """One message on its way from the sender's memory into the receiver's."""

    __slots__ = ("_core", "_msg", "_receiver")

    def __init__(self, core: Upcalls, receiver: Inbound, msg: Msg) -> None:
        self._core = core
        self._receiver = receiver
        self._msg = msg

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """Copy, then both sides are done."""
        if incoming is not None:
            _copy(self._msg.payload, buffers, mlen)
            self._receiver.end(incoming)
        self._core.completed([self._msg])

    def abandon(self, incoming: Incoming) -> bool:
        """Nothing is ever half way."""
        return False

    def unanswered(self) -> None:
        """Who asked hears nothing, as with TCP."""


class LoLnd:
    """Delivers from the sender's memory straight into the receiver's; nothing is held in between.

    `defer` runs a call later, outside the sender's stack.
    """

    name = "lo"
    net_type: int = int(NetType.LO)
    reports_timeout = False

    def __init__(self, core: Upcalls, defer: Callable[..., Any]) -> None:
        self._core = core
        self._defer = defer

    def startup(self, ni: NI) -> None:
        """One connection: with itself."""
        ni.lnd_data = self._core.receiver(ni, LO_NID)

    def shutdown(self, ni: NI) -> None:
        """Messages under way are deferred calls: they end by themselves."""
        cast("Inbound", ni.lnd_data).close()

    def retune(self, ni: NI, timeout: float) -> None:
        """There is nothing to tune."""

    def access_changed(self, ni: NI) -> None:
        """A node may do here what it wants."""

    def verify(self, ni: NI, nid: Nid) -> bool:
        """There is one life."""
        return True

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Deliver soon."""
        for msg in msgs:
            self._defer(self._deliver, ni, msg)

    def _deliver(self, ni: NI, msg: Msg) -> None:
        if not ni.active:
            reason = "the node is shutting down"
            self._core.completed([msg], HealthStatus.LOCAL_ERROR, errno.ESHUTDOWN, reason)
            return
        receiver = cast("Inbound", ni.lnd_data)
        hdr = msg.hdr.copy()
        hdr.wmd = msg.wmd
        if receiver.begin(hdr, _Delivery(self._core, receiver, msg)):
            reason = "the message breaks LNet's rules"
            self._core.completed([msg], HealthStatus.LOCAL_ERROR, errno.EPROTO, reason)
        elif not hdr.payload_length:
            self._core.completed([msg])


def _copy(source: list[memoryview], target: list[memoryview], length: int) -> None:
    if len(source) == 1 and len(target) == 1:
        target[0][:length] = source[0][:length]
        return
    data = memoryview(b"".join(source))
    at = 0
    for view in target:
        view[:] = data[at : at + view.nbytes]
        at += view.nbytes
