"""Draws the state machine of discovery into docs/design/discovery.md; with --check, only compares."""

from __future__ import annotations

import sys
from collections import defaultdict

from drawn import PAGES, keep
from ulnet.control.discovery.table import RULES, TRANSITIONS, Action, Input, Rule, State
from ulnet.core.peer import PeerFlag


def flags(bits: int) -> str:
    """Their names."""
    return ", ".join(flag.name or "" for flag in PeerFlag if flag & bits)


def condition(rule: Rule) -> str:
    """When a rule holds, in words."""
    parts = []
    if rule.every:
        parts.append(flags(rule.every))
    if rule.some:
        parts.append(flags(rule.some).replace(", ", " or "))
    if rule.no:
        parts.append("not " + flags(rule.no).replace(", ", ", not "))
    if rule.push_due:
        parts.append("a push is due")
    if rule.error is not None:
        parts.append("with an error" if rule.error else "without an error")
    return ", ".join(parts) or "otherwise"


def rules() -> list[str]:
    """What a turn is about."""
    lines = ["### A turn: the first rule that holds", "", "| Flags | The turn is about |", "| --- | --- |"]
    lines += [f"| {condition(rule)} | {rule.input.name}: {rule.input.value} |" for rule in RULES]
    return [*lines, ""]


def transitions() -> list[str]:
    """All pairs of state and input."""
    lines = ["### All transitions", "", "| State | Input | Action | Next |", "| --- | --- | --- | --- |"]
    order = {one: place for place, one in enumerate(Input)}
    for (state, what), (action, after) in sorted(
        TRANSITIONS.items(), key=lambda item: (item[0][0], order[item[0][1]])
    ):
        lines.append(f"| {state.name} | {what.name}: {what.value} | {action.value} | {after.name} |")
    return [*lines, ""]


def diagram() -> list[str]:
    """The moves between states; what stays in a state is in the table only."""
    moves: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (state, what), (action, after) in TRANSITIONS.items():
        if state is not after and State.BOTH not in (state, after):
            doing = "" if action is Action.NOTHING else f" / {action.value}"
            moves[state, after].append(f"{what.value}{doing}")
    lines = ["### The states", "", "```mermaid", "stateDiagram-v2", f"    [*] --> {State.IDLE.name}"]
    for (state, after), words in moves.items():
        lines += [
            f"    {state.name} --> {after.name}: {word.replace(';', ',').replace(':', ' -')}"
            for word in words
        ]
    return [*lines, "```", ""]


def main() -> int:
    """Write the page, or tell that it is old."""
    drawn = diagram() + rules() + transitions()
    return keep(PAGES / "discovery.md", "discovery_page.py", "\n".join(drawn))


if __name__ == "__main__":
    sys.exit(main())
