"""Errors as lnetctl prints them (spec lnetctl.md)."""

from __future__ import annotations

import sys

from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.yaml_out import emit_errors

__all__ = ["report_errors"]


def report_errors(errors: list[ErrorItem]) -> int:
    """Print them on stderr, after what stdout still holds; the exit code is that of the first."""
    if not errors:
        return 0
    sys.stdout.flush()
    sys.stderr.write(emit_errors(errors))
    return errors[0].exit_code
