"""The contract between the core and its drivers (docs/design/contracts.md)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ulnet.core.msg import Incoming, Msg
    from ulnet.core.ni import NI
    from ulnet.core.status import HealthStatus
    from ulnet.nid import Nid
    from ulnet.wire.lnet import Header

__all__ = ["Inbound", "Lnd", "Master", "NiEvent", "Payload", "Upcalls"]


class NiEvent(Enum):
    """What a driver tells of its device."""

    FATAL = auto()  # the device cannot carry anything now
    RECOVERED = auto()
    DEGRADED = auto()  # it carries far less than it should
    RESTORED = auto()


class Lnd(Protocol):
    """A driver. None of these ever blocks; only `startup` may raise, and only LNetError."""

    name: str  # "tcp"
    net_type: int
    reports_timeout: bool  # the message deadline then follows the LND's own timeout

    def startup(self, ni: NI) -> None:
        """Make the NI ready for traffic. Raises LNetError and leaves nothing behind on failure."""

    def shutdown(self, ni: NI) -> None:
        """Stop the NI at once: close its connections, complete all its messages before returning."""

    def retune(self, ni: NI, timeout: float) -> None:
        """The tunables of ni changed, also for what is under way; `timeout` (seconds) is what it may take."""

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Queue messages of one path, in that order; complete each later, once, never before this returns."""


class Payload(Protocol):
    """What a driver gives with a header that has arrived: the payload that is still to come.

    Also where there is none, so that a connection is told from others.
    """

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """Read mlen bytes into buffers, drop the other rlen - mlen; then `end` incoming, if there is one."""

    def abandon(self, incoming: Incoming) -> bool:
        """Touch the memory of incoming, whose payload is still coming, no more, and do not `end` it.

        False if it is not coming any more, or cannot be kept out of that memory.
        """


class Inbound(Protocol):
    """Takes what comes by one connection."""

    def begin(self, hdr: Header, rx: Payload) -> int:
        """A header has arrived: 0, or -errno for what breaks the protocol.

        Where there is payload `rx.take` is called, now or later, and says where it goes; then `end` is due.
        """

    def end(self, incoming: Incoming, status: HealthStatus = ..., err: int = ..., reason: str = ...) -> None:
        """The payload of a message is in its memory, or will never be."""

    def deliver(self, hdr: Header, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int) -> int:
        """Take messages that are whole in `buf` between `pos` and `end`: the position behind them.

        Each begins with the bytes `raw`, which end in the header `hdr`; only its handle may be another. What
        is not taken wants a closer look, which `begin` has.
        """

    def close(self) -> None:
        """The connection is gone."""


class Master(Protocol):
    """An NI without a wire of its own: other NIs, its slaves, carry what it sends and take what comes for it.

    It is found by its NID in `NodeState.masters`. Headers have its NID; paths are between slaves.
    """

    def owns(self, ni: NI) -> bool:
        """Whether ni is a slave."""

    def heard(self, ni: NI, hdr: Header, from_nid: Nid) -> None:
        """Messages for the master, headed like hdr, arrive on its slave ni from the next hop from_nid."""

    def received(self, kind: int, count: int) -> None:
        """So many messages of that kind, for the master, were received on slaves."""

    def slaves_changed(self) -> None:
        """NIs came, went, failed or recovered: perhaps slaves."""

    def failed(self, msg: Msg, ni: NI, nid: Nid) -> None:
        """A message that the master passed on failed on its way from the slave ni to nid."""

    def has_other_path(self, msg: Msg, ni: NI, nid: Nid) -> bool:
        """Whether msg, passed on from ni to nid, may take another path that is not known to be broken."""

    def path_broke(self, ni: NI, nid: Nid) -> None:
        """The last connection from ni, perhaps a slave, to nid broke."""


class Upcalls(Protocol):
    """What a driver may call: the core."""

    def receiver(self, ni: NI, nid: Nid) -> Inbound:
        """Takes what comes by a connection with the next hop nid."""

    def completed(
        self, msgs: list[Msg], status: HealthStatus = ..., err: int = ..., reason: str = ...
    ) -> None:
        """All of these are sent, in that order, or all have failed (err is a positive errno then)."""

    def take_back(self, msg: Msg) -> None:
        """Nothing of msg was sent, other paths may do better: it sets out anew. In place of `completed`."""

    def ni_event(self, ni: NI, event: NiEvent) -> None:
        """The device of ni changed."""

    def path_stalled(self, ni: NI, nid: Nid) -> None:
        """What was sent from ni to the next hop nid makes no progress: new messages avoid that path.

        Those under way there stay until the driver ends them. Unknown paths, and repetitions, are ignored.
        """

    def path_moving(self, ni: NI, nid: Nid) -> None:
        """That path makes progress again, or its connections are gone."""

    def path_lost(self, ni: NI, nid: Nid) -> None:
        """The last connection from ni to the next hop nid broke, and none is being made."""

    def peer_restarted(self, nid: Nid) -> None:
        """A connection with the next hop nid shows that the node there has begun a new life."""

    def slept(self, seconds: float) -> None:
        """While messages were under way this process did not run for so long."""

    def forget_rx(self, rx: Payload) -> None:
        """rx died while the core still held it for a message that waits for a match."""
