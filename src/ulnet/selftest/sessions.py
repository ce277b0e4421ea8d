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
from operator import sub
from typing import Final, NamedTuple

from ulnet.core.lines import Line
from ulnet.core.notices import Notices
from ulnet.core.status import LNetError
from ulnet.nid.errors import shown
from ulnet.node.turns import Turns
from ulnet.selftest.services import TestClient
from ulnet.wire.selftest_values import Service, SessionId

__all__ = ["ASK_AT_ONCE", "Batch", "Needs", "Room", "Session", "Test"]

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
    instance of a server has no units: its `clients` are None. `changed`, its batch's, hears that it becomes
    active, or is so no more.
    """

    __test__ = False

    def __init__(
        self,
        service: Service,
        loop: int,
        stop_on_error: bool,
        clients: Callable[[], Iterable[TestClient]] | None,
        failed: Callable[[Service, LNetError], None],
        turns: Turns,
        changed: Callable[[Test], None],
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
        self._given_up = False  # all its units are
        self.units: dict[asyncio.Task[None], None] = {}
        self._changed = changed

    @property
    def has_units(self) -> bool:
        """Whether it has units at all, now or when it runs."""
        return self._clients is not None

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
        self._stopping = self._given_up = False
        self._waits = True
        self._changed(self)

    def begin(self) -> Iterator[None]:
        """Begin a unit at each step; the last one finds that there are no more."""
        assert self._clients is not None
        loop = asyncio.get_running_loop()
        for client in self._clients():
            unit = loop.create_task(self._unit(client))
            self.units[unit] = None
            unit.add_done_callback(self._ended)
            yield
        self._waits = False
        if not self.units:
            self._changed(self)
        yield

    def _ended(self, unit: asyncio.Task[None]) -> None:
        del self.units[unit]
        if not self.active:
            self._changed(self)

    def stop(self) -> None:
        """Let the units end with the request under way; what `begin` gave has no steps after that."""
        self._stopping = True
        if self._waits:
            self._waits = False
            if not self.units:
                self._changed(self)

    def give_up(self) -> Iterable[asyncio.Task[None]]:
        """Its units, which are to be given up; those that are so already are told no more."""
        if self._given_up:
            return ()
        self._given_up = True
        return self.units

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


class Room:
    """What the batches of a session have together, and what those take that run.

    Nobody looks at all tests for that, who may be thousands: anybody may ask again and again. Units of all
    batches begin, and are given up, so many in a turn of the loop.
    """

    def __init__(self) -> None:
        self.tests = 0
        self.targets = 0
        self.running: dict[Batch, Needs] = {}  # which batches run, and what each needs
        self._needs = _NOTHING  # those together
        self._beginning: dict[Batch, Iterator[None]] = {}
        self._leaving: deque[asyncio.Task[None]] = deque()
        self._goes_on = False  # in the next turn

    def changed(self, batch: Batch) -> None:
        """A batch may run now, or run no more."""
        if bool(batch.active) == (batch in self.running):
            return
        if batch.active:
            self.running[batch] = batch.needs
            self._needs = total([self._needs, batch.needs])
        else:
            less = self.running.pop(batch)
            self._needs = Needs._make(map(sub, self._needs, less))

    def may_run(self, batch: Batch) -> bool:
        """Whether there is room for a batch beside those that run."""
        return _fits([self._needs] if batch in self.running else [self._needs, batch.needs])

    def begins(self, batch: Batch) -> bool:
        """Whether units of it are still to begin."""
        return batch in self._beginning

    def begin(self, batch: Batch, units: Iterator[None]) -> None:
        """Begin those units."""
        self._beginning[batch] = units
        self._go_on()

    def give_up(self, units: Iterable[asyncio.Task[None]]) -> None:
        """Give up those units."""
        self._leaving.extend(units)
        self._go_on()

    def let_end(self, batch: Batch) -> None:
        """Begin no more units of it."""
        self._beginning.pop(batch, None)

    def _go_on(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._goes_on = False
        for _ in range(min(_AT_ONCE, len(self._leaving))):
            self._leaving.popleft().cancel()  # kept no longer: tens of thousands would be freed in one turn
        left = _AT_ONCE
        while left and self._beginning:
            batch, units = next(iter(self._beginning.items()))
            begun = sum(1 for _ in islice(units, left))
            if begun < left:
                del self._beginning[batch]
            left -= begun
        if self._leaving or self._beginning:
            self._go_on()


class Batch:
    """Tests that run together, in the room of their session."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.tests: list[Test] = []
        self.needs = _NOTHING  # all of them together
        self._have_units: list[Test] = []
        self._running: dict[Test, None] = {}

    @property
    def active(self) -> int:
        """How many of its tests have units that run, or are about to."""
        return len(self._running)

    def add(self, test: Test) -> None:
        """One test more."""
        self.tests.append(test)
        self.needs = total([self.needs, test.needs])
        self._room.tests += 1
        self._room.targets += test.needs.targets
        if test.has_units:
            self._have_units.append(test)

    def changed(self, test: Test) -> None:
        """A test of it has units that run, or has none any more."""
        if test.active:
            self._running[test] = None
        else:
            del self._running[test]
        self._room.changed(self)

    def run(self) -> None:
        """Begin all tests; what runs goes on. Many units begin in many turns of the loop."""
        if self._room.begins(self) or self.active == len(self._have_units):
            return
        tests = [test for test in self._have_units if not test.active]
        for test in tests:
            test.prepare()
        self._room.begin(self, (step for test in tests for step in test.begin()))

    def stop(self, at_once: bool) -> None:
        """End all tests; `at_once`: the requests under way are given up, many in many turns of the loop."""
        self._room.let_end(self)
        for test in list(self._running):
            test.stop()
            if at_once:
                self._room.give_up(test.give_up())


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
    room: Room = field(default_factory=Room)  # of all those
    brw_errors: int = 0
    ping_errors: int = 0
    corrupted: int = 0  # of both

    def takes(self, needs: Needs, batch: Batch) -> bool:
        """Whether a batch may have a test more that needs so much."""
        if self.room.tests >= _MOST_TESTS or self.room.targets + needs.targets > MOST.targets:
            return False
        return _fits([batch.needs, needs])

    def may_run(self, batch: Batch) -> bool:
        """Whether it has room beside those that run."""
        return self.room.may_run(batch)

    @property
    def active(self) -> int:
        """How many batches run."""
        return len(self.room.running)

    def abort(self) -> None:
        """Give up all tests, together so many in a turn as one batch."""
        for batch in list(self.room.running):
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
        if (count <= _TOLD or not count % _TOLD_EACH) and self.notices.is_due((corrupted, error.text)):
            level = logging.ERROR if corrupted else logging.WARNING
            name = shown(self.name)
            text = f"selftest, session {name}: {error.text} (error {count} of this kind)"
            self.notices.tell(Line("selftest.failed", text, session=name), partial(_log.log, level, "%s"))
