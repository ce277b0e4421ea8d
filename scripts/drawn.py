"""A page of which a part is drawn from the code: that part is written anew, or only compared."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["PAGES", "keep"]

PAGES = Path(__file__).parents[1] / "docs" / "design"
_END = "<!-- end -->\n"


def keep(page: Path, script: str, drawn: str) -> int:
    """Put `drawn` between the marks that name `script`; with --check on the command line, only compare."""
    begin = f"<!-- begin: drawn by scripts/{script} -->\n"
    old = page.read_text()
    before, rest = old.split(begin, 1)
    wanted = before + begin + drawn + _END + rest.split(_END, 1)[1]
    if wanted == old:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{page.name} is old: run scripts/{script}", file=sys.stderr)
        return 1
    page.write_text(wanted)
    return 0
