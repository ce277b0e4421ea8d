"""Draws the states of a router into docs/design/routing.md; with --check, only compares."""

from __future__ import annotations

import sys

from drawn import PAGES, keep
from ulnet.core.routing.state import TRANSITIONS, RoutingAction


def diagram() -> str:
    """The table as a mermaid diagram."""
    first = next(iter(TRANSITIONS))[0]
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    for (before, what), (action, after) in TRANSITIONS.items():
        doing = "" if action is RoutingAction.NOTHING else f" / {action.value.replace(';', ',')}"
        if doing or before is not after:
            lines.append(
                f"    {before.name} --> {after.name}: {what.value}{doing}".replace(": EBUSY", " (EBUSY)")
            )
    return "\n".join([*lines, "```", ""])


def main() -> int:
    """Write the page, or tell that it is old."""
    return keep(PAGES / "routing.md", "routing_page.py", diagram())


if __name__ == "__main__":
    sys.exit(main())
