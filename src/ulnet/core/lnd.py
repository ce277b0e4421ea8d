"""The contract between the core and its drivers: what the core calls (docs/design/contracts.md).

What drivers call is in `ulnet.lnd.contract`.
"""

from __future__ import annotations

import errno
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from ulnet.core.status import LNetError
from ulnet.nid import Net

if TYPE_CHECKING:
    from ulnet.core.msg import Incoming, Msg
    from ulnet.core.ni import NI
    from ulnet.nid import Nid
    from ulnet.wire.lnet import Header

__all__ = ["Drivers", "Lnd", "Master", "NiEvent", "Payload"]


class NiEvent(Enum):
    """What a driver tells of its device."""

    FATAL = auto()  # the device cannot carry anything now
    RECOVERED = auto()
    DEGRADED = auto()  # it carries far less than it should
    RESTORED = auto()


class Lnd(Protocol):
    """A driver. None of these ever blocks; only `startup` and `retune` may raise, and only LNetError."""

    name: str  # "tcp"
    net_type: int
    reports_timeout: bool  # the message deadline then follows the LND's own timeout

    def startup(self, ni: NI) -> None:
        """Make the NI ready for traffic. Raises LNetError and leaves nothing behind on failure."""

    def shutdown(self, ni: NI) -> None:
        """Stop the NI at once: close its connections, complete all its messages before returning."""

    def retune(self, ni: NI, timeout: float) -> None:
        """The tunables of ni changed, also for what is under way; `timeout` (seconds) is what it may take.

        Raises LNetError where they cannot be, and follows the former ones then.
        """

    def verify(self, ni: NI, nid: Nid) -> bool:
        """The node behind nid may have begun a new life: find out; what goes from ni to its former life ends.

        True while ni has connections with nid: `peer_restarted` tells of a new life that is found, and of a
        nid that gives no answer. No pause keeps ni from connecting with nid.
        """

    def access_changed(self, ni: NI) -> None:
        """Others may connect with ni than before: who may not any more has no connection when this returns.

        What is under way with those fails with EACCES. `Upcalls.why_denied` tells who may.
        """

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Queue messages of one path, in that order; complete each later, once, never before this returns."""


class Drivers:
    """The drivers of one node, by the type of the nets that each carries."""

    __slots__ = ("_by_type",)

    def __init__(self) -> None:
        self._by_type: dict[int, Lnd] = {}

    def add(self, lnd: Lnd) -> None:
        """Make a driver available for its net type."""
        self._by_type[lnd.net_type] = lnd

    def of(self, net: Net) -> Lnd:
        """The driver for a net. Raises LNetError(EINVAL)."""
        lnd = self._by_type.get(net.type)
        if lnd is None:
            names = ", ".join(sorted(one.name for one in self._by_type.values() if one.name != "lo"))
            text = f"no driver for net {net}: this node has drivers for {names or 'none'}"
            raise LNetError(errno.EINVAL, text)
        return lnd


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

    def unanswered(self) -> None:
        """The GET that came with it gets no REPLY: a peer that waits for one by other means may be told."""


class Master(Protocol):
    """An NI without a wire of its own: other NIs, its slaves, carry what it sends and take what comes for it.

    It is found by its NID in `NodeState.masters`. Headers have its NID; paths are between slaves.
    """

    def owns(self, ni: NI) -> bool:
        """Whether ni is a slave."""

    def comes_by(self, source: Nid, from_nid: Nid) -> bool:
        """Whether what source, of the master's net, sends may come from the next hop from_nid."""

    def heard(self, ni: NI, hdr: Header, from_nid: Nid) -> None:
        """Messages for the master, headed like hdr, arrive on its slave ni from the next hop from_nid."""

    def received(self, kind: int, count: int, size: int) -> None:
        """Count messages of that kind, of `size` bytes together, for the master, received on slaves."""

    def slaves_changed(self) -> None:
        """NIs came, went, failed or recovered: perhaps slaves."""

    def failed(self, msg: Msg, ni: NI, nid: Nid) -> None:
        """A message that the master passed on failed on its way from the slave ni to nid."""

    def has_other_path(self, msg: Msg, ni: NI, nid: Nid) -> bool:
        """Whether msg, passed on from ni to nid, may take another path that is not known to be broken."""

    def path_broke(self, ni: NI, nid: Nid) -> None:
        """The last connection from ni, perhaps a slave, to nid broke."""
