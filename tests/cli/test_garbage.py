"""When lnetd looks for cycles among new objects."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from ulnet.cli import garbage
from ulnet.cli.garbage import Searches


class Loop:
    """What is to be called later, and when."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, wait: float, call: Callable[[], None]) -> None:
        self.later.append((wait, call))


def searches() -> tuple[Searches, Loop]:
    """Those of a loop that does not run."""
    loop = Loop()
    return Searches(cast(asyncio.AbstractEventLoop, loop)), loop


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def no_other_search() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Counts:
    """Python's collector as it would count, with so many objects that came and stayed before each search."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.searches: list[int] = []
        self.young = 0
        self.new = 0
        self.found = 0  # in cycles, by each search
        monkeypatch.setattr(gc, "collect", self.collect)
        monkeypatch.setattr(gc, "get_count", lambda: (self.new, self.young, 0))
        monkeypatch.setattr(gc, "get_threshold", lambda: (1500, 1000, 10_000))

    def come(self, objects: int) -> None:
        """So many objects: Python looks among them at each 1,500."""
        self.young += objects // 1500
        self.new = objects % 1500

    def collect(self, generation: int) -> int:
        """Python's own."""
        self.searches.append(generation)
        self.new = 0
        self.young = 0 if generation else self.young + 1
        return self.found


def waits(took: list[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it is to the next search after each, by how many seconds these take."""
    times = [at for one in took for at in (5.0, 5.0 + one)]
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 0))
    monkeypatch.setattr(garbage, "perf_counter", lambda: times.pop(0))
    own, loop = searches()
    own.search()
    for _ in took[1:]:
        loop.later[-1][1]()
    return [wait for wait, _ in loop.later]


def test_new_cycles_go(no_other_search: None) -> None:
    gone = weakref.ref(Cycle())
    assert gone() is not None
    searches()[0].search()
    assert gone() is None


def test_older_ones_are_searched_too_as_often_as_python_would(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, (own, _) = Counts(monkeypatch), searches()
    for _ in range(2004):
        own.search()
    assert [at for at, found in enumerate(counts.searches) if found] == [1001, 2003]


def test_all_are_searched_after_very_many_searches_of_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, (own, _) = Counts(monkeypatch), searches()
    for _ in range(150_000):
        own.search()
    assert counts.searches.count(2) == 1
    assert counts.searches.index(2) == pytest.approx(100_000, rel=0.02)


def test_many_that_stay_are_searched_before_they_are_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search among millions took 0.3 s, in which nobody was answered."""
    counts, (own, _) = Counts(monkeypatch), searches()
    for objects in (4_500, 4_500, 3_000, 1_499, 9_000, 1_000, 100_000, 0):
        counts.come(objects)
        own.search()
    assert counts.searches == [0, 0, 1, 0, 1, 0, 1, 0]


def test_all_are_searched_when_very_many_have_stayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes a cycle when it is old is found by no other search."""
    counts, (own, _) = Counts(monkeypatch), searches()
    alive = [object()] * 3_000_000
    monkeypatch.setattr(gc, "get_objects", lambda: alive)
    for _ in range(400):
        counts.come(15_000)
        own.search()
    assert counts.searches.count(2) == 2
    assert [at for at, found in enumerate(counts.searches) if found == 2] == [133, 334]  # 2 and 3 million
    counts.found = 15_000  # none of them stays
    for _ in range(400):
        counts.come(15_000)
        own.search()
    assert counts.searches.count(2) == 2


def test_searches_are_made_sooner_where_many_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, (own, loop) = Counts(monkeypatch), searches()
    for objects in (40_500, 20_000, 1_000_000):
        counts.come(objects)
        own.search()
    assert [wait for wait, _ in loop.later] == pytest.approx([1 / 4.05, 1 / 8.1, 0.01], rel=0.05)


def test_searches_that_take_long_are_made_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits([3e-3, 3e-3, 3e-3], monkeypatch) == pytest.approx([0.1, 0.01, 0.01])


def test_searches_that_find_little_are_made_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits([3e-3, 1e-6, 1e-6, 0.0, 1e-6], monkeypatch) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0])
