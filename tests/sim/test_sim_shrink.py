"""Shrinking: what is left still fails, nothing of it can be left out, and the budget is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ulnet.sim.plan import Event, NodePlan, Plan
from ulnet.sim.shrink import shrink

NODES = {name: NodePlan() for name in "abcd"}


def plan_with(kinds: list[str]) -> Plan:
    return Plan(nodes=NODES, events=[Event(at=float(at), kind=kind) for at, kind in enumerate(kinds)])


def kinds_of(plan: Plan) -> list[str]:
    return [event.kind for event in plan.events]


@given(st.lists(st.sampled_from("uvwxyz"), max_size=40), st.integers(0, 30), st.integers(0, 30))
def test_only_what_matters_is_left(noise: list[str], first: int, second: int) -> None:
    kinds = list(noise)
    kinds.insert(min(first, len(kinds)), "down")
    kinds.insert(min(second, len(kinds)), "up")
    smallest = shrink(plan_with(kinds), lambda plan: {"down", "up"} <= set(kinds_of(plan)), runs=5000)
    assert sorted(kinds_of(smallest)) == ["down", "up"]


def test_nodes_that_do_not_matter_are_left_out() -> None:
    smallest = shrink(plan_with(["x"]), lambda plan: "c" in plan.nodes)
    assert list(smallest.nodes) == ["c"]
    assert not smallest.events


def test_many_messages_become_few() -> None:
    event = Event(kind="put", words={"count": 64})
    plan = Plan(nodes=NODES, events=[event])

    def fails(plan: Plan) -> bool:
        return any(event.words["count"] >= 5 for event in plan.events)

    (left,) = shrink(plan, fails).events
    assert left.words["count"] == 8


@given(st.integers(0, 60))
def test_no_more_runs_than_the_budget(runs: int) -> None:
    called = 0

    def fails(plan: Plan) -> bool:
        nonlocal called
        called += 1
        return len(plan.events) > 3

    smallest = shrink(plan_with(["x"] * 30), fails, runs)
    assert called <= runs
    assert len(smallest.events) > 3


def test_what_always_fails_is_cut_to_nothing() -> None:
    smallest = shrink(plan_with(["x"] * 10), lambda plan: True)
    assert not smallest.events
    assert len(smallest.nodes) == 1
