"""The parts of one LNet that call each other both ways, as each sees the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ulnet.core.flow import Flow
    from ulnet.core.lnd import Payload
    from ulnet.core.md import Md
    from ulnet.core.msg import Incoming, Msg
    from ulnet.core.ni import NI
    from ulnet.core.peer import Peer, PeerNi
    from ulnet.core.status import HealthStatus
    from ulnet.nid import Nid
    from ulnet.wire.lnet import Header

__all__ = ["Parts"]


class _Sender(Protocol):
    """The sending half, for those that it is made of."""

    def fail(self, msg: Msg, err: int, reason: str) -> None: ...

    def set_out_anew(self, msg: Msg) -> None: ...

    def launch(self, msg: Msg) -> None: ...

    def relaunch(self, msg: Msg) -> None: ...

    def leave(self, ni: NI | None, pni: PeerNi | None) -> None: ...


class _Completion(Protocol):
    """The end of messages."""

    def completed(
        self, msgs: list[Msg], status: HealthStatus = ..., err: int = ..., reason: str = ...
    ) -> None: ...

    def end(self, msg: Msg, status: HealthStatus, err: int, reason: str) -> None: ...


class _Discovery(Protocol):
    """Whether a message has to wait until its peer is known."""

    def hold(self, msg: Msg, peer: Peer) -> bool: ...


class _Rates(Protocol):
    def flow(self, ni: NI, peer: Peer) -> Flow: ...


class _Health(Protocol):
    """What becomes of both ends of a message."""

    @property
    def rates(self) -> _Rates: ...

    def posted(self, pni: PeerNi) -> None: ...

    def sent(self, ni: NI, pni: PeerNi) -> None: ...

    def heard(self, ni: NI, pni: PeerNi) -> None: ...

    def failed(self, msg: Msg, status: HealthStatus) -> bool: ...

    def broken(self, ni: NI, pni: PeerNi, status: HealthStatus) -> None: ...

    def resend(self, msg: Msg) -> None: ...

    def send_again(self, msg: Msg) -> None: ...

    def switched(self, msg: Msg, ni: NI, pni: PeerNi) -> None: ...

    def moved(self, msg: Msg, old_ni: NI, old_pni: PeerNi) -> None: ...

    def overdue(self, md: Md) -> None: ...


class _Forwarding(Protocol):
    """Messages that pass through this node."""

    def take(self, ni: NI, hdr: Header, from_nid: Nid, rx: Payload) -> None: ...

    def received(self, incoming: Incoming, status: HealthStatus) -> None: ...

    def relay(self, msg: Msg) -> None: ...

    def sent(self, msg: Msg, status: HealthStatus) -> None: ...

    def last_hop(self, ni: NI, hdr: Header, from_nid: Nid) -> PeerNi | str: ...


class Parts:
    """Filled once, when the instance is put together; whoever gets it looks a part up when it calls it."""

    __slots__ = ("completion", "discovery", "forwarding", "health", "sender")

    sender: _Sender
    completion: _Completion
    discovery: _Discovery
    health: _Health
    forwarding: _Forwarding
