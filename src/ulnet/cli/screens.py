"""Consoles of rich that end as other output does, and show no style where NO_COLOR is set."""

from __future__ import annotations

import errno
import os
from typing import Any, NoReturn

from rich.console import Console

__all__ = ["Screen"]


class Screen(Console):
    """A reader that has enough raises BrokenPipeError: rich itself would end with status 1."""

    def __init__(self, **options: Any) -> None:
        """`options` are those of rich. With NO_COLOR a live picture still moves the cursor, and no more."""
        if os.environ.get("NO_COLOR"):
            options["color_system"] = None
        super().__init__(**options)

    def on_broken_pipe(self) -> NoReturn:
        """Say no more."""
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    @property
    def arrow(self) -> str:
        """An arrow, of which a table knows the width also where there is no UTF-8."""
        return "→" if self.encoding.lower().startswith("utf") else "->"
