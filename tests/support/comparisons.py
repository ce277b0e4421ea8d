"""How often numbers of NIDs are compared with those of patterns: what a list of rules costs."""

from __future__ import annotations

import pytest

from ulnet.nid import NumberSet

__all__ = ["Comparisons"]


class Comparisons:
    """Counts while a test goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        contains = NumberSet.__contains__

        def counted(numbers: NumberSet, value: int) -> bool:
            self.count += 1
            return contains(numbers, value)

        monkeypatch.setattr(NumberSet, "__contains__", counted)
