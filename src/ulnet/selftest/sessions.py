"""Sessions of a node, their batches and tests (spec selftest.md §3, §4)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ulnet.core.lines import Line
from ulnet.core.status import LNetError
from ulnet.nid.errors import shown
from ulnet.selftest.services import TestClient
from ulnet.wire.selftest_bodies import Service, SessionId

__all__ = ["Batch", "Session", "Test"]

_ENDLESS: Final = 1 << 31  # loops are signed: that many and more is less than none
_log = logging.getLogger("ulnet.selftest")
_TOLD: Final = 10  # errors of a session that the log tells, and each so many after that
_TOLD_EACH: Final = 1000
_PAUSE: Final = 0.1  # seconds after a request that failed


class Test:
    """One test of a batch: its units, of which each asks one node again and again.

    `failed` hears of each request that failed. The instance of a server has no units.
    """

    __test__ = False

    def __init__(
        self,
        service: Service,
        loop: int,
        stop_on_error: bool,
        clients: Callable[[], Sequence[TestClient]],
        failed: Callable[[Service, LNetError], None],
    ) -> None:
        self.service = service
        self._loop = loop
        self._stop_on_error = stop_on_error
        self._clients = clients
        self._failed = failed
        self._stopping = False
        self.units: dict[asyncio.Task[None], None] = {}

    def run(self) -> None:
        """Begin; what runs goes on."""
        if self.units:
            return
        self._stopping = False
        loop = asyncio.get_running_loop()
        for client in self._clients():
            unit = loop.create_task(self._unit(client))
            self.units[unit] = None
            unit.add_done_callback(self.units.pop)

    def stop(self, at_once: bool) -> None:
        """Let the units end with the request under way, or give that up."""
        self._stopping = True
        if at_once:
            for unit in list(self.units):
                unit.cancel()

    async def _unit(self, client: TestClient) -> None:
        left = self._loop
        try:
            while not self._stopping:
                try:
                    await client.once()
                except LNetError as error:
                    self._failed(self.service, error)
                    if self._stop_on_error:
                        return
                    await asyncio.sleep(_PAUSE)
                if left < _ENDLESS:
                    left -= 1
                    if not left:
                        return
        finally:
            client.close()


class Batch:
    """Tests that run together."""

    def __init__(self) -> None:
        self.tests: list[Test] = []

    @property
    def active(self) -> int:
        """How many of its tests have units that run."""
        return sum(bool(test.units) for test in self.tests)

    def run(self) -> None:
        """Begin all tests."""
        for test in self.tests:
            test.run()

    def stop(self, at_once: bool) -> None:
        """End all tests."""
        for test in self.tests:
            test.stop(at_once)


@dataclass(slots=True, eq=False)
class Session:
    """One console's session on this node. `began` by the loop's clock."""

    id: SessionId
    name: str
    features: int
    began: float
    refs: int = 1
    batches: dict[int, Batch] = field(default_factory=dict)
    brw_errors: int = 0
    ping_errors: int = 0
    corrupted: int = 0  # of both

    @property
    def active(self) -> int:
        """How many batches run."""
        return sum(bool(batch.active) for batch in self.batches.values())

    def abort(self) -> None:
        """Give up all tests."""
        for batch in self.batches.values():
            batch.stop(at_once=True)

    def failed(self, service: Service, error: LNetError) -> None:
        """Count a request of a test that failed; the log tells some, and all corrupted data at first."""
        if service == Service.PING:
            self.ping_errors += 1
        else:
            self.brw_errors += 1
        corrupted = error.errno == errno.EBADMSG
        self.corrupted += corrupted
        count = self.corrupted if corrupted else self.brw_errors + self.ping_errors - self.corrupted
        if count <= _TOLD or not count % _TOLD_EACH:
            level = logging.ERROR if corrupted else logging.WARNING
            name = shown(self.name)
            text = f"selftest, session {name}: {error.text} (error {count} of this kind)"
            _log.log(level, "%s", Line("selftest.failed", text, session=name))
