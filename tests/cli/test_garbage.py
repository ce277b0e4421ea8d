"""When lnetd looks for cycles among new objects."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from ulnet.cli import garbage
from ulnet.cli.garbage import collect_what_is_new


class Loop:
    """What is to be called later, and when."""

    def __init__(self) -> None:
        self.later: list[tuple[float, tuple[object, ...]]] = []

    def call_later(self, wait: float, call: Callable[..., None], *args: object) -> None:
        assert call is collect_what_is_new
        self.later.append((wait, args))


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def no_other_search() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def searched(took: float, wait: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """In how many seconds the next search is, after one that took so many."""
    times = iter([5.0, 5.0 + took])
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 0))
    monkeypatch.setattr(garbage, "perf_counter", lambda: next(times))
    loop = Loop()
    collect_what_is_new(cast(asyncio.AbstractEventLoop, loop), wait)
    [(later, args)] = loop.later
    assert args == (loop, later)
    return later


def test_new_cycles_go(no_other_search: None) -> None:
    gone = weakref.ref(Cycle())
    assert gone() is not None
    collect_what_is_new(cast(asyncio.AbstractEventLoop, Loop()))
    assert gone() is None


def test_older_ones_are_searched_too_as_often_as_python_would(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    monkeypatch.setattr(gc, "collect", searches.append)
    for counts in ((5, 1000, 100), (5, 1001, 100), (5, 1001, 101), (5, 3, 101)):
        monkeypatch.setattr(gc, "get_count", lambda counts=counts: counts)
        monkeypatch.setattr(gc, "get_threshold", lambda: (1500, 1000, 100))
        collect_what_is_new(cast(asyncio.AbstractEventLoop, Loop()))
    assert searches == [0, 1, 2, 0]


def test_searches_that_take_long_are_made_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    assert searched(3e-3, 1.0, monkeypatch) == pytest.approx(0.1)
    assert searched(3e-3, 0.1, monkeypatch) == pytest.approx(0.01)
    assert searched(3e-3, 0.01, monkeypatch) == pytest.approx(0.01)


def test_searches_that_find_little_are_made_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    assert searched(1e-6, 0.1, monkeypatch) == pytest.approx(0.2)
    assert searched(1e-6, 0.8, monkeypatch) == pytest.approx(1.0)
    assert searched(0.0, 0.8, monkeypatch) == pytest.approx(1.0)
