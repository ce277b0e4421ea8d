"""Draws the state machines of ulnet.core.states into docs/design/health.md; with --check, only compares."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum

from drawn import PAGES, keep
from ulnet.control.health.classify import RULES
from ulnet.core.states import LOCAL_NET, LOCAL_NI, PEER, PEER_NI, Action
from ulnet.core.status import HealthStatus

Table = Mapping[tuple[Enum, Enum], tuple[Action, Enum]]
MACHINES: dict[str, Table] = {
    "Local NI": LOCAL_NI,  # type: ignore[dict-item]
    "Local net": LOCAL_NET,  # type: ignore[dict-item]
    "Peer": PEER,  # type: ignore[dict-item]
    "Peer NI": PEER_NI,  # type: ignore[dict-item]
}


def diagram(name: str, table: Table) -> list[str]:
    """One machine as a mermaid diagram."""
    first = next(iter(table))[0]
    lines = [f"### {name}", "", "```mermaid", "stateDiagram-v2", f"    [*] --> {first.value}"]
    for (before, what), (action, after) in table.items():
        doing = f" / {action.value}" if action.value else ""
        lines.append(f"    {before.value} --> {after.value}: {what.value}{doing}")
    return [*lines, "```", ""]


def rules() -> list[str]:
    """What each status means."""
    words = {True: "yes", False: "-"}
    lines = [
        "### Statuses",
        "",
        "| Status | Local NI suffers | Peer NI suffers | Resent |",
        "| --- | --- | --- | --- |",
    ]
    for status in HealthStatus:
        if status:
            rule = RULES[status]
            cells = " | ".join(words[value] for value in (rule.local, rule.peer, rule.resend))
            lines.append(f"| {status.name} | {cells} |")
    return [*lines, ""]


def main() -> int:
    """Write the page, or tell that it is old."""
    drawn = rules()
    for name, table in MACHINES.items():
        drawn += diagram(name, table)
    return keep(PAGES / "health.md", "health_page.py", "\n".join(drawn))


if __name__ == "__main__":
    sys.exit(main())
