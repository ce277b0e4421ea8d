"""The deadline wheel against a plain sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.parts import quiet_parts
from ulnet.core.deadlines import DeadlineWheel
from ulnet.core.md import Md
from ulnet.core.timers import Timers


def test_earlier_items_are_announced():
    calls: list[int] = []
    wheel: DeadlineWheel[str] = DeadlineWheel(lambda: calls.append(1))
    wheel.add(1, 10.0, "late")
    wheel.add(2, 20.0, "later")
    assert len(calls) == 1
    wheel.add(3, 5.0, "soon")
    assert len(calls) == 2
    assert 5.0 < wheel.next_deadline() <= 5.2


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.floats(0, 30)),
            st.tuples(st.just("discard"), st.integers(0, 40)),
            st.tuples(st.just("expire"), st.floats(0, 5)),
        ),
        max_size=60,
    )
)
def test_agrees_with_a_naive_model(script):
    wheel: DeadlineWheel[int] = DeadlineWheel()
    model: dict[int, float] = {}
    slots: dict[int, int] = {}
    now, key = 0.0, 0
    for name, value in script:
        if name == "add":
            slots[key] = wheel.add(key, now + value, key)
            model[key] = now + value
            key += 1
        elif name == "discard" and value in model:
            wheel.discard(value, slots[value])
            del model[value]
        elif name == "expire":
            now += value
            due = wheel.expire(now)
            for one, slot in due:  # never early, at most two tenths late
                assert slot == slots[one]
                assert model.pop(one) <= now
            assert all(deadline > now - 0.2 for deadline in model.values())
        assert sum(map(len, wheel._buckets.values())) == len(model)
        following = wheel.next_deadline()
        assert (following is None) == (not model)
        if model:
            assert min(model.values()) <= following <= min(model.values()) + 0.2


@pytest.mark.requirement("HEALTH-monitor")
def test_calls_and_awaited_answers_are_due_in_one_order():
    done: list[str] = []
    parts = quiet_parts()
    parts.expire = lambda md, slot: done.append(f"answer {md.user_ptr}")
    timers = Timers(lambda: None, lambda error: None, parts)
    early, late = (Md([], None, user_ptr=name) for name in ("early", "late"))
    timers.wheel.add(9, 4.0, late)
    timers.at(3.0, lambda: done.append("call"))
    timers.wheel.add(5, 2.0, early)
    gone = timers.at(1.0, lambda: done.append("taken back"))
    timers.cancel(gone)
    assert timers.next_deadline() == pytest.approx(2.1)
    timers.run(3.5)
    assert done == ["answer early", "call"]
    timers.run(5.0)
    assert done == ["answer early", "call", "answer late"]
    assert timers.next_deadline() is None


def test_a_call_that_raises_takes_nothing_else_with_it_and_is_told():
    done: list[str] = []
    told: list[Exception] = []
    parts = quiet_parts()
    timers = Timers(lambda: None, told.append, parts)
    mistake, other = KeyError("planted"), ZeroDivisionError("planted too")

    def raises(error: Exception) -> None:
        raise error

    parts.expire = lambda md, slot: raises(other)
    timers.at(1.0, lambda: done.append("before"))
    timers.at(1.0, lambda: raises(mistake))
    timers.wheel.add(5, 1.0, Md([], None))
    timers.at(1.0, lambda: done.append("after"))
    timers.at(1.5, lambda: done.append("later"))
    timers.run(2.0)
    assert done == ["before", "after", "later"]
    assert told == [mistake, other]
    assert timers.next_deadline() is None
