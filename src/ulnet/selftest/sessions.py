"""Sessions of a node, their batches and tests (spec selftest.md §3, §4)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from ulnet.core.lines import Line
from ulnet.core.notices import Notices
from ulnet.core.status import LNetError
from ulnet.nid.errors import shown
from ulnet.node.turns import Turns
from ulnet.selftest.services import TestClient
from ulnet.wire.selftest_values import Service, SessionId

__all__ = ["ASK_AT_ONCE", "Batch", "Needs", "Session", "Test"]

_ENDLESS: Final = 1 << 31  # loops are signed: that many and more is less than none
_log = logging.getLogger("ulnet.selftest")
_TOLD: Final = 10  # errors of a session that the log tells, and each so many after that
_TOLD_EACH: Final = 1000
_MOST_TESTS: Final = 4096  # of a session
_AT_ONCE: Final = 64  # units that begin, or are given up, in one turn of the loop
ASK_AT_ONCE: Final = 8  # units that ask in one turn: 0.1 to 0.2 ms each
_PAUSE: Final = 0.1  # seconds after a request that failed; twice as long after each that follows it
_LONGEST_PAUSE: Final = 3.2


class Needs(NamedTuple):
    """What tests take of a node: targets to remember, units that run at once, bytes of sinks."""

    targets: int = 0
    units: int = 0
    memory: int = 0


_NOTHING: Final = Needs()
MOST: Final = Needs(1 << 20, 16384, 1 << 30)  # targets of a session; units and bytes of batches that run


class Test:
    """One test of a batch: its units, of which each asks one node again and again.

    `failed` hears of each request that failed; `turns` are those in which units of all tests ask. The
    instance of a server has no units.
    """

    __test__ = False

    def __init__(
        self,
        service: Service,
        loop: int,
        stop_on_error: bool,
        clients: Callable[[], Iterable[TestClient]],
        failed: Callable[[Service, LNetError], None],
        turns: Turns,
        needs: Needs = _NOTHING,
    ) -> None:
        self.needs = needs
        self.service = service
        self._loop = loop
        self._stop_on_error = stop_on_error
        self._clients = clients
        self._failed = failed
        self._turns = turns
        self._stopping = False
        self._waits = False  # units of it are still to begin
        self.units: dict[asyncio.Task[None], None] = {}

    @property
    def active(self) -> bool:
        """Whether it has units that run, or are about to."""
        return self._waits or bool(self.units)

    @property
    def busy(self) -> int:
        """How many run; none only when none is about to."""
        return len(self.units) or int(self._waits)

    def prepare(self) -> None:
        """Its units begin soon, one by one: see `begin`."""
        self._stopping = False
        self._waits = True

    def begin(self) -> Iterator[None]:
        """Begin a unit at each step."""
        loop = asyncio.get_running_loop()
        try:
            for client in self._clients():
                unit = loop.create_task(self._unit(client))
                self.units[unit] = None
                unit.add_done_callback(self.units.pop)
                yield
        finally:
            self._waits = False

    def stop(self) -> None:
        """Let the units end with the request under way."""
        self._stopping = True
        self._waits = False

    async def _unit(self, client: TestClient) -> None:
        left, pause, turns = self._loop, _PAUSE, self._turns
        try:
            while True:
                if not turns.take():
                    await turns.wait(self)
                if self._stopping:
                    return
                try:
                    await client.once()
                    pause = _PAUSE
                except LNetError as error:
                    self._failed(self.service, error)
                    if self._stop_on_error:
                        return
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                if left < _ENDLESS:
                    left -= 1
                    if not left:
                        return
        finally:
            client.close()


def total(needs: Sequence[Needs]) -> Needs:
    """What all of them take together."""
    return Needs(*[sum(numbers) for numbers in zip(*needs, strict=True)]) if needs else _NOTHING


def _fits(needs: Sequence[Needs]) -> bool:
    _, units, memory = total(needs)
    return units <= MOST.units and memory <= MOST.memory


class Batch:
    """Tests that run together."""

    def __init__(self) -> None:
        self.tests: list[Test] = []
        self.needs = _NOTHING  # all of them together
        self._beginning: Iterator[None] | None = None

    @property
    def active(self) -> int:
        """How many of its tests have units that run, or are about to."""
        return sum(test.active for test in self.tests)

    def add(self, test: Test) -> None:
        """One test more."""
        self.tests.append(test)
        self.needs = total([self.needs, test.needs])

    def run(self) -> None:
        """Begin all tests; what runs goes on. Many units begin in many turns of the loop."""
        if self._beginning is not None:
            return
        tests = [test for test in self.tests if not test.active]
        for test in tests:
            test.prepare()
        self._beginning = (step for test in tests for step in test.begin())
        self._begin_some(self._beginning)

    def _begin_some(self, beginning: Iterator[None]) -> None:
        if self._beginning is not beginning:
            return
        if sum(1 for _ in islice(beginning, _AT_ONCE)) < _AT_ONCE:
            self._beginning = None
        else:
            asyncio.get_running_loop().call_soon(self._begin_some, beginning)

    def stop(self, at_once: bool) -> None:
        """End all tests; `at_once`: the requests under way are given up, many in many turns of the loop."""
        units = self.let_end()
        if at_once:
            _give_up_some(deque(units))

    def let_end(self) -> Iterator[asyncio.Task[None]]:
        """End all tests with the requests under way: the units of these."""
        self._beginning = None
        for test in self.tests:
            test.stop()
        return (unit for test in self.tests for unit in test.units)


def _give_up_some(units: deque[asyncio.Task[None]]) -> None:
    for _ in range(min(_AT_ONCE, len(units))):
        units.popleft().cancel()  # kept no longer: tens of thousands would be freed in one turn
    if units:
        asyncio.get_running_loop().call_soon(_give_up_some, units)


@dataclass(slots=True, eq=False)
class Session:
    """One console's session on this node. `began` by the loop's clock; `notices` are of all sessions."""

    id: SessionId
    name: str
    features: int
    began: float
    notices: Notices
    refs: int = 1
    batches: dict[int, Batch] = field(default_factory=dict)
    brw_errors: int = 0
    ping_errors: int = 0
    corrupted: int = 0  # of both

    def takes(self, needs: Needs, batch: Batch) -> bool:
        """Whether a batch may have a test more that needs so much."""
        if sum([len(one.tests) for one in self.batches.values()]) >= _MOST_TESTS:
            return False
        targets = sum([one.needs.targets for one in self.batches.values()]) + needs.targets
        return targets <= MOST.targets and _fits([batch.needs, needs])

    def may_run(self, batch: Batch) -> bool:
        """Whether it has room beside those that run."""
        return _fits([one.needs for one in self.batches.values() if one.active or one is batch])

    @property
    def active(self) -> int:
        """How many batches run."""
        return sum(bool(batch.active) for batch in self.batches.values())

    def abort(self) -> None:
        """Give up all tests, together so many in a turn as one batch."""
        _give_up_some(deque([unit for batch in self.batches.values() for unit in batch.let_end()]))

    def failed(self, service: Service, error: LNetError) -> None:
        """Count a request of a test that failed; the log tells some, and all corrupted data at first."""
        if service == Service.PING:
            self.ping_errors += 1
        else:
            self.brw_errors += 1
        corrupted = error.errno == errno.EBADMSG
        self.corrupted += corrupted
        count = self.corrupted if corrupted else self.brw_errors + self.ping_errors - self.corrupted
        if (count <= _TOLD or not count % _TOLD_EACH) and self.notices.is_due((corrupted, error.text)):
            level = logging.ERROR if corrupted else logging.WARNING
            name = shown(self.name)
            text = f"selftest, session {name}: {error.text} (error {count} of this kind)"
            self.notices.tell(Line("selftest.failed", text, session=name), partial(_log.log, level, "%s"))
