"""What requests need of the node that they are about."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ulnet.control.instance import LNet
from ulnet.core.access import Access
from ulnet.core.peer import Peer
from ulnet.nid import Nid
from ulnet.node.machine import Machine
from ulnet.node.operations import PingResult

__all__ = ["ManagedNode"]

D = TypeVar("D")


class ManagedNode(Protocol):
    """`ulnet.Node`, as far as its administration knows it; each member is described there."""

    machine: Machine

    # fmt: off
    @property
    def core(self) -> LNet: ...
    @property
    def start_access(self) -> Access: ...
    @property
    def running(self) -> bool: ...
    async def start(self) -> object: ...
    async def close(self, drain: float = ...) -> None: ...
    def driver(self, kind: type[D]) -> D: ...
    async def ping(
        self, target: Nid | str, *, timeout: float = ..., source: Nid | str | None = ...
    ) -> PingResult: ...
    async def discover(
        self, target: Nid | str, *, force: bool = ..., timeout: float | None = ...
    ) -> Peer: ...
    # fmt: on
