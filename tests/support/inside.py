"""An event loop inside a host of `support.netns`: what runs there has that host's links and addresses."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from support.netns import Host

_NEWNET = 0x40000000
_PATIENCE = 120.0

_Result = TypeVar("_Result")


class Inside:
    """A thread that lives in the host's namespace and runs an event loop."""

    def __init__(self, host: Host) -> None:
        self.loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._trouble: list[int] = []
        self._thread = threading.Thread(target=self._live, args=(host.name,), name=f"inside {host.name}")
        self._thread.start()
        self._ready.wait()
        if self._trouble:
            self.close()
            raise OSError(self._trouble[0], f"setns to {host.name}")

    def _live(self, namespace: str) -> None:
        handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(handle, _NEWNET):
                self._trouble.append(ctypes.get_errno())
        finally:
            os.close(handle)
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._ready.set)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of a coroutine that runs there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_PATIENCE)

    def start(self, work: Coroutine[Any, Any, _Result]) -> Any:
        """Begin a coroutine there; its `result` is had later."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
