"""What a program in pure Python executes: bytecodes, by function, as the interpreter traces them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ulnet

__all__ = ["Steps"]

_PACKAGE = Path(ulnet.__file__).parent


class Steps:
    """From `begin` to `end`, of this thread. Everything takes fifty times as long meanwhile."""

    def __init__(self) -> None:
        self._bytecodes: Counter[CodeType] = Counter()
        self._calls: Counter[CodeType] = Counter()

    def begin(self) -> None:
        """Count what is called from now on."""
        sys.settrace(self._called)

    def end(self) -> None:
        """Count no more."""
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._calls[frame.f_code] += 1
        return self._traced

    def _traced(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            self._bytecodes[frame.f_code] += 1
        return self._traced

    def found(self) -> dict[str, tuple[int, int]]:
        """Bytecodes and calls by function, the most bytecodes first."""
        return {_name(code): (count, self._calls[code]) for code, count in self._bytecodes.most_common()}


def _name(code: CodeType) -> str:
    path = Path(code.co_filename)
    where = path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else path.name
    return f"{where}:{code.co_qualname} {code.co_firstlineno}"
