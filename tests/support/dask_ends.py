"""Both ends of comms of Dask; the other one is in an event loop of its own, and so on a node of its own."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from distributed.comm.core import listen

from ulnet.dask.comm import UlnetComm
from ulnet.dask.endpoint import present_endpoint

__all__ = ["Ends", "Far", "an_address"]

T = TypeVar("T")


def an_address() -> str:
    """One of loopback's that nobody else has."""
    return f"127.{secrets.randbelow(100) + 100}.{secrets.randbelow(254) + 1}.{secrets.randbelow(254) + 1}"


class Far:
    """Another process, as far as LNet knows: a loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.comms: list[UlnetComm] = []
        self.listener: Any = None
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def listen(self, **options: Any) -> str:
        """Take comms there, and say where."""

        async def start() -> str:
            self.listener = await listen(f"ulnet://{an_address()}:0", self._accepted, **options)
            return str(self.listener.contact_address)

        return await self.do(start())

    async def _accepted(self, comm: UlnetComm) -> None:
        self.comms.append(comm)

    async def accepted(self) -> UlnetComm:
        """The next comm that was connected."""
        while not self.comms:
            await asyncio.sleep(0.001)
        return self.comms.pop()

    async def close_node(self) -> None:
        """End its node."""

        async def close() -> None:
            endpoint = present_endpoint()
            if endpoint is not None:
                await endpoint.close()

        await self.do(close())

    def close(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Ends:
    """A comm that was connected, and its other end, which is in the other loop."""

    def __init__(self, ours: UlnetComm, theirs: UlnetComm, far: Far) -> None:
        self.ours = ours
        self.theirs = theirs
        self._far = far

    async def read(self, **options: Any) -> Any:
        """Read there."""
        return await self._far.do(self.theirs.read(**options))

    async def write(self, message: Any, **options: Any) -> int:
        """Write there."""
        return await self._far.do(self.theirs.write(message, **options))

    async def close(self) -> None:
        """Close it there."""
        await self._far.do(self.theirs.close())

    async def abort(self) -> None:
        """Abort it there."""

        async def abort() -> None:
            self.theirs.abort()

        await self._far.do(abort())
