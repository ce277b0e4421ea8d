"""Cut a failing plan down: the fewest events, nodes and messages that still fail (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ulnet.sim.errors import PlanError
from ulnet.sim.plan import Event, Plan
from ulnet.sim.run import Outcome

__all__ = ["fails_alike", "shrink"]

Fails = Callable[[Plan], bool]


class _Budget:
    """How often the plan may still be run."""

    def __init__(self, fails: Fails, runs: int) -> None:
        self._fails = fails
        self.left = runs

    def fails(self, plan: Plan) -> bool:
        """Run it; what there is no budget for does not fail."""
        if self.left <= 0:
            return False
        self.left -= 1
        return self._fails(plan)


def fails_alike(first: Outcome, play: Callable[[Plan], Outcome]) -> Fails:
    """Whether a plan fails as the first run did: another failure is another bug."""
    wanted = first.kind

    def fails(plan: Plan) -> bool:
        try:
            outcome = play(plan)
        except PlanError:
            return False
        return not outcome.ok and outcome.kind == wanted

    return fails


def shrink(plan: Plan, fails: Fails, runs: int = 500) -> Plan:
    """A plan that still fails, with as little as `runs` runs can leave of it."""
    budget = _Budget(fails, runs)
    while True:
        smaller = _fewer_events(plan, budget)
        smaller = _fewer_nodes(smaller, budget)
        smaller = _fewer_messages(smaller, budget)
        if smaller == plan or budget.left <= 0:
            return smaller
        plan = smaller


def _fewer_events(plan: Plan, budget: _Budget) -> Plan:
    """Leave out ever smaller pieces of the list."""
    events = list(plan.events)
    piece = max(len(events) // 2, 1)
    while events and budget.left > 0:
        at = 0
        cut = False
        while at < len(events):
            rest = events[:at] + events[at + piece :]
            if budget.fails(plan.with_events(rest)):
                events = rest
                cut = True
            else:
                at += piece
        if piece == 1 and not cut:
            break
        piece = max(piece // 2, 1)
    return plan.with_events(events)


def _fewer_nodes(plan: Plan, budget: _Budget) -> Plan:
    """Leave out nodes that nothing names; a plan that names them cannot be, and does not count as failing."""
    for name in list(plan.nodes):
        rest = {other: node for other, node in plan.nodes.items() if other != name}
        without = msgspec.structs.replace(plan, nodes=rest)
        if rest and budget.fails(without):
            plan = without
    return plan


def _fewer_messages(plan: Plan, budget: _Budget) -> Plan:
    """One message where there were many."""
    events = list(plan.events)
    for index, event in enumerate(events):
        for word in ("count", "burst", "window"):
            words = events[index].words
            if isinstance(words, dict) and isinstance(words.get(word), int) and words[word] > 1:
                fewer = Event(at=event.at, kind=event.kind, words={**words, word: words[word] // 2})
                changed = [*events[:index], fewer, *events[index + 1 :]]
                if budget.fails(plan.with_events(changed)):
                    events = changed
    return plan.with_events(events)
