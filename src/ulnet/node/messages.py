"""What a node's user sends and fetches, as awaitables; and which way it would take."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ulnet.control.instance import LNet
from ulnet.core.md import Buffer
from ulnet.core.selection import Explanation
from ulnet.nid import Nid
from ulnet.node.operations import Operations, PingResult, ping
from ulnet.node.peers import as_nid

__all__ = ["MessageCalls"]


class MessageCalls(ABC):
    """The calls of `Node` that send messages. NIDs are given as `Nid` or text."""

    _operations: Operations | None

    @property
    @abstractmethod
    def core(self) -> LNet:
        """The LNet instance. Raises LNetError(ENETDOWN) before `start` and after `close`."""

    def _begun(self) -> Operations:
        """Raises LNetError(ENETDOWN) while the node is not started."""
        assert self.core is not None
        assert self._operations is not None
        return self._operations

    async def put(
        self,
        target: Nid | str,
        portal: int,
        match_bits: int,
        data: Buffer | list[Buffer],
        *,
        ack: bool = True,
        offset: int = 0,
        hdr_data: int = 0,
        source: Nid | str | None = None,
        timeout: float | None = None,
        cpt: int | None = None,
    ) -> int:
        """Send up to 1 MiB; answers how many bytes the target took (with ack), else how many left.

        Where the target's memory is used up, so that it took none, that is an error: ENOBUFS.

        `data` must not change until this returns; it is not copied. `timeout` in seconds (default:
        the transaction timeout). `cpt` is where the memory is (default: where this thread runs).
        Raises LNetError with errno and reason.
        """
        operation = (self._operations or self._begun()).put(
            target if isinstance(target, Nid) else as_nid(target),
            portal,
            match_bits,
            data,
            bool(ack),  # compiled code takes nothing else
            offset,
            hdr_data,
            source if source is None else as_nid(source),
            timeout,
            cpt,
        )
        done = operation.done
        try:
            return await done
        except BaseException:
            operation.close(done)
            raise

    async def get(
        self,
        target: Nid | str,
        portal: int,
        match_bits: int,
        buffer: bytearray | memoryview,
        *,
        offset: int = 0,
        source: Nid | str | None = None,
        timeout: float | None = None,
        cpt: int | None = None,
    ) -> int:
        """Fetch up to len(buffer) bytes (at most 1 MiB) into buffer; answers how many came.

        After a time-out or a cancellation nothing comes into the buffer any more. Over o2ib a REPLY may,
        until its transfer ends: do not use that memory for something else there. Raises LNetError.
        """
        operation = (self._operations or self._begun()).get(
            as_nid(target),
            portal,
            match_bits,
            buffer,
            offset,
            source if source is None else as_nid(source),
            timeout,
            cpt,
        )
        done = operation.done
        try:
            return await done
        except BaseException:
            operation.close(done)
            raise

    def explain(
        self, target: Nid | str, *, source: Nid | str | None = None, size: int = 0, cpt: int | None = None
    ) -> Explanation:
        """Which path a request of `size` bytes would take now, and what eliminated the others.

        Runs the very comparisons that a message gets, and changes nothing. Raises LNetError.
        """
        bound = as_nid(source) if source is not None else None
        return self.core.explain(as_nid(target), source=bound, size=size, cpt=cpt)

    async def ping(
        self, target: Nid | str, *, timeout: float = 1.0, source: Nid | str | None = None
    ) -> PingResult:
        """Ask a node for its NIDs. Raises LNetError: ETIMEDOUT, EHOSTUNREACH, …, with the reason."""
        return await ping(
            self._operations or self._begun(),
            as_nid(target),
            source=as_nid(source) if source is not None else None,
            timeout=timeout,
        )
