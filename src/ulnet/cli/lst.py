"""lst: the console of LNet selftest; loads its commands, and runs one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ulnet.cli.output import ended_by_ctrl_c, run_to_its_end

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; exit status 1 where it fails, 2 for words that make none."""
    words = sys.argv[1:] if argv is None else list(argv)
    return run_to_its_end("lst", lambda: _run(words), lambda number: 2)


def _run(words: list[str]) -> int:
    with ended_by_ctrl_c():
        from ulnet.cli.lst_commands import run
    return run(words)


if __name__ == "__main__":
    raise SystemExit(main())
