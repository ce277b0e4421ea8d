"""What a driver may call of the core; the other half, what the core calls of a driver, is `ulnet.core.lnd`.

Both halves are described in docs/design/contracts.md. Drivers import all names of the contract from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ulnet.core.lnd import Lnd, Master, NiEvent, Payload

if TYPE_CHECKING:
    from ulnet.core.msg import Incoming, Msg
    from ulnet.core.ni import NI
    from ulnet.core.status import HealthStatus
    from ulnet.nid import Nid
    from ulnet.wire.lnet import Header

__all__ = ["Inbound", "Lnd", "Master", "NiEvent", "Payload", "Upcalls"]


class Upcalls(Protocol):
    """The core (`LNet`), as its drivers see it."""

    def receiver(self, ni: NI, nid: Nid, vouches: Callable[[Nid], bool] | None = None) -> Inbound:
        """Takes what comes by a connection with the next hop nid.

        Where its certificate says which NIDs its node may use, `vouches` tells whether it may use one.
        """

    def why_denied(self, ni: NI, nid: Nid) -> str:
        """Why nid is neither to be called nor heard over ni; "" if it is."""

    def completed(
        self, msgs: list[Msg], status: HealthStatus = ..., err: int = ..., reason: str = ...
    ) -> None:
        """All of these are sent, in that order, or all have failed (err is a positive errno then).

        With an errno and the status OK it was the peer who refused them, over a path that is well.
        """

    def take_back(self, msg: Msg) -> None:
        """Nothing of msg was sent, other paths may do better: it sets out anew. In place of `completed`."""

    def awaits_connection(self, msgs: list[Msg]) -> None:
        """There is no connection yet that could carry these: they hold no credits of their NI until there is.

        May be called from inside `send`.
        """

    def has_connection(self, msgs: list[Msg]) -> None:
        """There is one, and they are about to leave. Who fails, or is taken back, need not be told of."""

    def ni_event(self, ni: NI, event: NiEvent) -> None:
        """The device of ni changed."""

    def path_stalled(self, ni: NI, nid: Nid) -> None:
        """What was sent from ni to the next hop nid makes no progress: new messages avoid that path.

        Those under way there stay until the driver ends them. Unknown paths, and repetitions, are ignored.
        """

    def path_moving(self, ni: NI, nid: Nid) -> None:
        """The path makes progress again, or its connections are gone."""

    def path_lost(self, ni: NI, nid: Nid) -> None:
        """The last connection from ni to the next hop nid broke, and none is being made."""

    def in_doubt(self, ni: NI, nid: Nid, count: int) -> None:
        """A connection from ni to the next hop nid broke: so many PUTs may be lost that were told to be sent.

        Nobody acknowledges them, and nothing else will tell.
        """

    def unconnected(self, ni: NI, nid: Nid, err: int) -> None:
        """An attempt to connect from ni to the next hop nid came to nothing (err is a positive errno)."""

    def peer_restarted(self, nid: Nid, heard: bool = True) -> None:
        """The node behind the next hop nid has begun a new life: a connection with nid shows it.

        Or it was not heard: another NID of that node showed it, and nid cannot be called.
        """

    def slept(self, seconds: float) -> None:
        """While messages were under way this process did not run for so long."""

    def forget_rx(self, rx: Payload) -> None:
        """rx died while the core still held it for a message that waits for a match."""


class Inbound(Protocol):
    """Takes what comes by one connection (`ulnet.core.receiver`)."""

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
