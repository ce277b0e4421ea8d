"""Whatever a program's call raises, the node goes on: each way on which one is called."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from support.fabric import Fabric
from support.pair import BITS, PORTAL, A, B, Pair, Watching, counters, told
from support.stream import StreamFabric
from ulnet.control.instance import LNet
from ulnet.core.event import Event
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.path import LIGHT
from ulnet.core.peer import Waiter
from ulnet.core.status import LNetError


class UnspeakableError(Exception):
    """Of what it is made, nothing can be shown."""

    def __repr__(self) -> str:
        raise TypeError("nor can this")


REPORTED = [asyncio.CancelledError, GeneratorExit, ValueError, UnspeakableError]
ENDS = [KeyboardInterrupt, SystemExit]
COUNT = 20
WARM = 4

# name: PUT or GET, bytes, with ACK or not, many at a time or not, one behind the other or not
WAYS: dict[str, tuple[bool, int, bool, bool, bool]] = {
    "PUT one-way": (True, 64, False, False, False),
    "PUT and ACK": (True, 64, True, False, False),
    "GET": (False, 64, False, False, False),
    "runs one-way": (True, 64, False, True, False),
    "runs and ACKs": (True, 64, True, True, False),
    "runs into moving memory": (True, 64, True, True, True),
    "runs of GETs": (False, 64, False, True, False),
    "large PUT": (True, LIGHT + 1, True, False, False),
    "large GET": (False, LIGHT + 1, False, False, False),
    "large runs": (True, LIGHT + 1, True, True, False),
}


class Breaking(Watching):
    """Notes each event, then raises, once it is told to."""

    error: type[BaseException] | None = None

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if self.error is not None:
            raise self.error("mine")


def run_to_the_end(fabric: Fabric) -> list[BaseException]:
    """Until nothing moves, whatever is to end the program meanwhile: that."""
    ends: list[BaseException] = []
    while True:
        try:
            fabric.run()
        except (KeyboardInterrupt, SystemExit) as end:
            ends.append(end)
        else:
            return ends


class Play:
    """Messages of one kind between two nodes; from some moment on all handlers raise `error`."""

    def __init__(self, way: str, error: type[BaseException] | None) -> None:
        self.is_put, self.size, self.ack, stream, moving = WAYS[way]
        self.world = world = Pair(stream=stream)
        self.fabric = world.fabric
        self.handlers = [Breaking() for _ in range(2)]
        mine, lent = self.handlers
        options = OP_PUT | OP_GET | TRUNCATE | (0 if moving else MANAGE_REMOTE)
        world.lend(bytearray(self.size * (WARM + COUNT if moving else 1)), lent, options=options)
        self.md = world.bind(bytearray(self.size), mine)
        self.ends: list[BaseException] = []
        self.send(WARM, one_by_one=True)
        for handler in self.handlers:
            handler.seen.clear()
            handler.error = error
        self.send(COUNT)

    def send(self, count: int, *, one_by_one: bool = False) -> None:
        for _ in range(count):
            if self.is_put:
                self.world.a.put(self.md, B, PORTAL, BITS, ack=self.ack)
            else:
                self.world.a.get(self.md, B, PORTAL, BITS)
            if one_by_one:
                self.run()
        self.run()

    def run(self) -> None:
        self.ends += run_to_the_end(self.fabric)

    def outcome(self) -> tuple[object, ...]:
        """What the handlers heard, and all that lnetctl could show."""
        self.fabric.assert_conserved()
        heard = [Counter(map(repr, handler.seen)) for handler in self.handlers]
        return heard, counters(self.world.a), counters(self.world.b)

    def events(self) -> int:
        return sum(len(handler.seen) for handler in self.handlers)


@pytest.mark.parametrize("error", REPORTED)
@pytest.mark.parametrize("way", WAYS)
def test_what_a_handler_raises_is_told_and_costs_no_other_message_anything(
    way: str, error: type[BaseException]
) -> None:
    good, broken = Play(way, None), Play(way, error)
    assert broken.outcome() == good.outcome()
    assert broken.events() >= 2 * COUNT
    assert len(broken.fabric.complaints) == broken.events()
    assert all(error.__name__ in line for line in broken.fabric.complaints)


@pytest.mark.parametrize("error", ENDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_ends_the_program_gets_through_and_all_messages_are_accounted_for(
    way: str, error: type[BaseException]
) -> None:
    good, ended = Play(way, None), Play(way, error)
    assert ended.outcome() == good.outcome()
    assert ended.ends
    assert {type(end) for end in ended.ends} == {error}
    assert not ended.fabric.complaints


@pytest.mark.parametrize("way", [way for way in WAYS if WAYS[way][3]])
def test_what_comes_in_one_piece_is_taken_in_runs(way: str) -> None:
    fabric = Play(way, None).fabric
    assert isinstance(fabric, StreamFabric)
    taken = [run for connection in fabric.connections.values() for run in connection.runs]
    assert sum(taken) >= COUNT
    assert max(taken) >= 10


def raising(error: type[BaseException]) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise error("mine")

    return call


@pytest.fixture
def core() -> LNet:
    return Fabric().node(str(A))


def complaints(core: LNet) -> list[str]:
    reports: list[str] = []
    core.state.report = reports.append
    return reports


@pytest.mark.parametrize("error", [*REPORTED, *ENDS])
def test_what_is_deferred_or_due_is_done_whatever_another_call_raises(
    core: LNet, error: type[BaseException]
) -> None:
    reports = complaints(core)
    done: list[str] = []
    state = core.state
    state.defer(raising(error))
    state.defer(done.append, "deferred")
    state.timers.at(1.0, raising(error))
    state.timers.at(1.0, lambda: done.append("due"))
    if error in ENDS:
        with pytest.raises(error, match="mine"):
            core.tick(2.0)
    else:
        core.tick(2.0)
    assert done == ["deferred", "due"]
    assert len(reports) == (0 if error in ENDS else 2)
    core.tick(3.0)  # once is enough


@pytest.mark.parametrize("error", [*REPORTED, *ENDS])
def test_who_is_told_that_an_answer_is_overdue_breaks_nothing(error: type[BaseException]) -> None:
    fabric = Fabric()
    a, b = fabric.node(str(A)), fabric.node(str(B))
    b.memory.portal(PORTAL).lazy = True  # a PUT waits there, and is not answered
    seen: list[str] = []

    def handler(event: Event) -> None:
        seen.append(event.kind.name)
        if event.status:
            raise error("mine")

    for _ in range(3):
        a.put(a.memory.md_bind(b"", handler, threshold=2, timeout=1.0), B, PORTAL, BITS)
    fabric.run()
    assert seen == ["SEND"] * 3
    fabric.clock.now += 5.0
    if error in ENDS:
        with pytest.raises(error, match="mine"):
            fabric.run()
    fabric.run()
    assert seen[3:] == ["ACK", "UNLINK"] * 3
    assert len(fabric.complaints) == (0 if error in ENDS else 6)


@pytest.mark.parametrize("error", [*REPORTED, *ENDS])
def test_who_waits_for_a_discovery_breaks_nothing(core: LNet, error: type[BaseException]) -> None:
    reports = complaints(core)
    Waiter(B, raising(error), core.state.mistake).tell(None, None)
    if error in ENDS:
        with pytest.raises(error, match="mine"):
            core.tick(0.0)
        assert not reports
    else:
        core.tick(0.0)
        (line,) = reports
        assert line.startswith(f"who waited for the discovery of {B} failed: ")
        assert error.__name__ in line


@pytest.mark.parametrize("error", ENDS)
def test_a_node_shuts_down_whole_before_a_handler_ends_the_program(error: type[BaseException]) -> None:
    fabric = Fabric()
    a = fabric.node(str(A))
    ended: list[tuple[Any, ...]] = []

    def handler(event: Event) -> None:
        ended.append(told(event))
        raise error("mine")

    for _ in range(3):
        a.put(a.memory.md_bind(b"", handler, threshold=1), B, PORTAL, BITS, ack=False)
    with pytest.raises(error, match="mine"):
        a.shutdown()
    assert not a.nis
    fabric.wire.clear()
    a.tick(0.0)
    a.shutdown()


@pytest.mark.parametrize("error", ENDS)
def test_the_program_may_be_ended_while_a_mistake_is_put_into_words(
    core: LNet, error: type[BaseException]
) -> None:
    class EndingError(Exception):
        __repr__: Any = raising(error)

    reports = complaints(core)
    core.state.defer(raising(EndingError))
    with pytest.raises(error, match="mine"):
        core.tick(2.0)
    (line,) = reports
    assert "EndingError" in line


def test_what_has_become_of_an_event_does_not_hide_what_its_handler_raised() -> None:
    fabric = Fabric()
    a, b = fabric.node(str(A)), fabric.node(str(B))
    entry = b.memory.me_attach(PORTAL, match_bits=BITS)

    def handler(event: Event) -> None:
        event.kind = None  # type: ignore[assignment]
        raise ValueError("mine")

    b.memory.md_attach(entry, bytearray(64), handler, options=OP_PUT)
    a.put(a.memory.md_bind(bytes(64)), B, PORTAL, BITS)
    fabric.run()
    (line,) = fabric.complaints
    assert line.startswith("event handler failed on ")
    fabric.assert_conserved()


def test_the_program_is_woken_for_what_ends_it() -> None:
    woken: list[int] = []
    core = LNet(clock=lambda: 0.0, cookie=1, wake=lambda: woken.append(1), report=lambda line: None)
    core.state.mistake(KeyboardInterrupt(), "")
    assert woken


@pytest.mark.parametrize("handler", [5, 0, "", "handler", [], False])
def test_what_cannot_be_called_is_no_handler(core: LNet, handler: Any) -> None:
    words = f"event handler of type {type(handler).__name__}: give a function of one event, or None"
    entry = core.memory.me_attach(PORTAL, match_bits=BITS)
    with pytest.raises(LNetError, match=words):
        core.memory.md_attach(entry, bytearray(1), handler, options=OP_PUT)
    assert not entry.linked
    before = set(core.memory.mds)
    with pytest.raises(LNetError, match=words):
        core.memory.md_bind(b"", handler)
    assert set(core.memory.mds) == before
