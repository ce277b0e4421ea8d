"""What decided a choice, in place of a criterion's name."""

from __future__ import annotations

from typing import Final

__all__ = ["FIRST_OF_EQUALS", "NOT_MULTI_RAIL", "NOT_TRIED", "ONLY_ONE", "RESPONSE", "SOURCE_GIVEN"]

# What may stand in place of a criterion's name.
ONLY_ONE: Final = "only one"
FIRST_OF_EQUALS: Final = "first of equals"
SOURCE_GIVEN: Final = "source given"
RESPONSE: Final = "response"
NOT_MULTI_RAIL: Final = "peer without Multi-Rail"
NOT_TRIED: Final = "not tried yet"
