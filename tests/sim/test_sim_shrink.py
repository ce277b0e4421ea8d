"""Shrinking: what is left still fails, nothing of it can be left out, and the budget is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.sim.errors import PlanError
from ulnet.sim.failure import kind_of
from ulnet.sim.plan import Event, NodePlan, Plan
from ulnet.sim.random_run import Recipe, find_failure, replay
from ulnet.sim.run import Outcome, Run, play
from ulnet.sim.shrink import fails_alike, shrink

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


SENTENCES = [
    (
        "node n1: NI 10.0.0.1@tcp has 3 of 8 credits, 1 users (seed 3, 0.2 s, event 12)",
        "node client: NI fd00::7@tcp1 has 7 of 16 credits, 2 users (seed 'x', 17.25 s, event 99)",
    ),
    (
        "3 of 10 messages ended well; 10 to 12 should. The first that did not: Operation(put, 5)",
        "1 of 4 messages ended well; 4 to 5 should. The first that did not: Operation(get, 'x', {1: 2})",
    ),
    (
        "node a: event handler failed on Event(kind=PUT, hdr=Header(1, [2])): KeyError(5) (seed 1, 2 s)",
        "node b: event handler failed on Event(kind=ACK, hdr=None): KeyError((1, 2)) (seed 2, 9 s)",
    ),
    (
        "node a has peer 10.0.0.1@tcp as 10.0.0.1@tcp, 10.1.0.1@tcp",
        "node b has peer 10.0.0.9@tcp as 10.0.0.9@tcp",
    ),
]


@pytest.mark.parametrize(("one", "other"), SENTENCES)
def test_a_failure_is_known_again_in_another_run(one: str, other: str) -> None:
    assert kind_of(one) == kind_of(other)


def test_different_failures_are_told_apart() -> None:
    kinds = {kind_of(sentence) for sentence, _ in SENTENCES}
    kinds |= {kind_of("node a: 3 messages never ended"), kind_of("node a: 3 responses are still awaited")}
    assert len(kinds) == len(SENTENCES) + 2
    assert all(any(word.isalpha() for word in kind.split()) for kind in kinds)


PINGS = [Event(at=0.1 * number, kind="ping", words={"from": "a", "to": "b"}) for number in range(8)]
TWO = Plan(nodes={"a": NodePlan(nids=["10.0.0.1@tcp"]), "b": NodePlan(nids=["10.0.0.2@tcp"])}, events=PINGS)


def too_many(run: Run) -> str:
    return f"{len(run.operations)} are more than five" if len(run.operations) > 5 else ""


def too_few(run: Run) -> str:
    return f"{len(run.operations)} are less than three" if len(run.operations) < 3 else ""


def test_a_plan_that_fails_otherwise_is_not_what_was_looked_for() -> None:
    judged = Recipe(
        plan=lambda seed: TWO,
        prepare=(lambda run: run.judges.append(too_many), lambda run: run.judges.append(too_few)),
    )
    found = find_failure(judged, [1])
    assert found is not None
    _, smallest, why = found
    assert why == "6 are more than five"
    assert len(smallest.events) == 6
    assert not replay(judged, 1, plan=TWO.with_events([])).ok  # the way that it must not have gone


def test_an_expectation_is_one_whatever_it_says() -> None:
    few = {"counter": {"node": "a", "name": "send_count", "most": 3}}
    none = {"operations": "none"}
    plan = Plan(nodes=TWO.nodes, events=PINGS, expect=[few, none])
    first = play(plan, seed=1)
    assert first.expected == 1 and first.kind == "expectation 1"
    smallest = shrink(plan, fails_alike(first, lambda plan: play(plan, seed=1)))
    after = play(smallest, seed=1)
    assert (after.ok, after.expected) == (False, 1)
    assert smallest.events and len(smallest.events) < len(PINGS)
    assert play(plan.with_events(PINGS[:1]), seed=1).expected == 2  # what it would have drifted to


def test_a_plan_that_cannot_be_does_not_fail() -> None:
    first = Outcome(None, "x")  # type: ignore[arg-type]

    def impossible(plan: Plan) -> Outcome:
        raise PlanError("no")

    assert not fails_alike(first, impossible)(TWO)
