"""What bonding NIs call of the core beside what each driver calls (`ulnet.lnd.contract`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from ulnet.lnd.contract import Master, Upcalls

if TYPE_CHECKING:
    from ulnet.core.guard import Guarded
    from ulnet.core.md import EventHandler, Md
    from ulnet.core.memory import Memory
    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.core.peer_table import PeerTable
    from ulnet.core.stats import GlobalStats
    from ulnet.core.timers import Timers
    from ulnet.core.tunables import NetTunables
    from ulnet.nid import Net, Nid

__all__ = ["MasterUpcalls", "ReservedBuffers"]


class _Generation(Protocol):
    @property
    def number(self) -> int: ...


class ReservedBuffers(Protocol):
    """Buffers at the reserved portal for one kind of messages, which anybody may send."""

    def open(self) -> None:
        """Take messages."""

    def close(self) -> None:
        """Take no more."""


class MasterUpcalls(Upcalls, Protocol):
    """The core (`LNet`), as an NI sees it that is made of others."""

    # Tables

    @property
    def nis(self) -> Mapping[Nid, NI]:
        """The local NIs by NID."""

    @property
    def masters(self) -> dict[Nid, Master]:
        """Those of them that are made of others; a master puts itself there."""

    @property
    def peers(self) -> PeerTable:
        """All known peers."""

    @property
    def memory(self) -> Memory:
        """Memory of this node's own messages."""

    def reserve(
        self, handler: EventHandler, *, match_bits: int, ignore_bits: int, size: int, ack: bool
    ) -> ReservedBuffers:
        """Buffers for messages with such bits; `ack`: those that are given up are acknowledged, too."""

    @property
    def stats(self) -> GlobalStats:
        """Node-wide counters."""

    @property
    def generation(self) -> _Generation:
        """Another number: NIs, their health or policies are others."""

    # This life of the node

    @property
    def cookie(self) -> int:
        """A number that no other life of the node has."""

    @property
    def guards(self) -> bool:
        """Whether peers are told that identities of PUTs are kept."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds, monotonic."""

    @property
    def timers(self) -> Timers:
        """What is due later."""

    @property
    def defer(self) -> Callable[..., None]:
        """Call something, with arguments, outside the present stack."""

    @property
    def report(self) -> Callable[[str], None]:
        """Takes lines for the log."""

    # Messages

    def add_ni(self, net: Net, nid: Nid, *, tunables: NetTunables | None = ...) -> NI:
        """Add the master's NI. Raises LNetError."""

    def put(self, md: Md, target: Nid, portal: int, match_bits: int, *, source: Nid | None = ...) -> None:
        """Send all of the memory of md. Raises LNetError."""

    def get(
        self,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        *,
        source: Nid | None = ...,
        exact: bool = ...,
    ) -> None:
        """Ask for what fills md; `exact`: that NID of the peer and no other. Raises LNetError."""

    def settle(self) -> None:
        """Send what waits to be sent together."""

    def identify(self, msg: Msg, peer: Guarded) -> bool:
        """Name a PUT for the duplicate guard of a peer. False: it must not get this one."""

    def pass_on(self, msg: Msg, master: Master, ni: NI, nid: Nid) -> bool:
        """Give msg to a slave, for the next hop nid. False, and nothing is done, where that is no peer's."""

    def path_doubted(self, ni: NI, nid: Nid, dest: Nid, leave: bool = True) -> None:
        """What was passed on from ni to nid, for the master dest, may be lost.

        Without `leave` what waits there stays, as the path is good for what is sent from now on.
        """
