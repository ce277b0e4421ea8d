"""The `lnetd` command: loads the daemon, and runs it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ulnet.cli.output import ended_by_ctrl_c, run_to_its_end

__all__ = ["main", "parser"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; exit status 0 after a stop, 1 if it could not start, 2 for wrong words."""
    with ended_by_ctrl_c():
        from ulnet.cli.lnetd_daemon import run
    options = argparse.Namespace()

    def parse() -> int:
        parser().parse_args(argv, options)
        return 0

    try:
        return run_to_its_end("lnetd", parse, lambda number: 1) or run(options)
    except KeyboardInterrupt:  # before its loop takes signals: nothing is to be finished
        return 130


def parser() -> argparse.ArgumentParser:
    """Its words."""
    from ulnet.cli.lnetd_daemon import parser as words

    return words()


if __name__ == "__main__":
    raise SystemExit(main())
