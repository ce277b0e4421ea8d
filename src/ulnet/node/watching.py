"""What a program tells others of its node: a control socket for `lnetctl`, and statistics of each rail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ulnet.control.instance import LNet
from ulnet.core.ni import NI
from ulnet.core.status import of_system
from ulnet.lnd.forks import of_this_process
from ulnet.nid import LO_NID, Nid

if TYPE_CHECKING:
    from ulnet.node.admin.managed import ManagedNode

__all__ = ["RailStatistics", "WatchCalls"]


@dataclass(frozen=True, slots=True)
class RailStatistics:
    """One local NI at one moment. Counters begin with the NI: messages of all kinds, bytes of payload.

    `health` is 0 to 1000; `credits` may be negative, then so many messages wait; `latency` is the mean time
    in seconds from a PUT to its acknowledgement, 0.0 without any.
    """

    nid: Nid
    interface: str | None
    up: bool
    health: int
    credits: int
    sent: int
    received: int
    dropped: int
    sent_bytes: int
    received_bytes: int
    latency: float


class WatchCalls(ABC):
    """The calls of `Node` that show it to others."""

    @property
    @abstractmethod
    def core(self) -> LNet:
        """The LNet instance. Raises LNetError(ENETDOWN) before `start` and after `close`."""

    def rails(self) -> list[RailStatistics]:
        """What each NI carried, and how well it is; loopback is left out.

        What waits for the end of this turn of the loop leaves first, so that all that was sent is counted.
        """
        self.core.settle()
        return [_statistics_of(ni) for ni in self.core.nis.values() if ni.nid != LO_NID]

    @asynccontextmanager
    async def serve_control(self, path: str | Path) -> AsyncIterator[None]:
        """Answer `lnetctl --socket PATH`, `ulnet top` and metrics, as `lnetd` does, while the block runs.

        Only this user and root may connect. Raises LNetError where the socket cannot be made: EADDRINUSE
        (a daemon answers there), EACCES, EPERM, ENAMETOOLONG.
        """
        # Programs that are not asked need none of that.
        from ulnet.dlc.endpoint import Endpoint
        from ulnet.dlc.protocol import ProtocolError
        from ulnet.dlc.server import ControlServer
        from ulnet.node.admin import Admin

        try:
            endpoint = Endpoint(str(path))
        except ProtocolError as refused:
            raise of_system(refused.errno, str(refused)) from None
        of_this_process(endpoint.socket)
        server = ControlServer(endpoint, Admin(cast("ManagedNode", self)).handle)
        await server.start()
        try:
            yield
        finally:
            await server.close()


def _statistics_of(ni: NI) -> RailStatistics:
    stats = ni.stats
    return RailStatistics(
        nid=ni.nid,
        interface=ni.interface,
        up=ni.up,
        health=ni.health,
        credits=ni.tx_credits,
        sent=sum(stats.sent),
        received=sum(stats.received),
        dropped=sum(stats.dropped),
        sent_bytes=stats.sent_bytes,
        received_bytes=stats.received_bytes,
        latency=ni.latency_ack.avg / 1e9,
    )
