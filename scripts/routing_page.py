"""Draws the states of a router into docs/design/routing.md; with --check, only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from ulnet.core.routing.state import TRANSITIONS, RoutingAction

PAGE = Path(__file__).parents[1] / "docs" / "design" / "routing.md"
BEGIN, END = "<!-- begin: drawn by scripts/routing_page.py -->\n", "<!-- end -->\n"


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
    page = PAGE.read_text()
    before, rest = page.split(BEGIN, 1)
    wanted = before + BEGIN + diagram() + END + rest.split(END, 1)[1]
    if wanted == page:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.name} is old: run scripts/routing_page.py", file=sys.stderr)
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
