"""The deadline wheel against a plain sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ulnet.core.deadlines import DeadlineWheel


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
        assert len(wheel) == len(model)
        following = wheel.next_deadline()
        assert (following is None) == (not model)
        if model:
            assert min(model.values()) <= following <= min(model.values()) + 0.2
