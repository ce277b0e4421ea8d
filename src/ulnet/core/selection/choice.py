"""The outcome of a choice: the pair, and what decided each side of it."""

from __future__ import annotations

from typing import Final, TypeAlias

from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi

__all__ = ["FIRST_OF_EQUALS", "NOT_MULTI_RAIL", "NOT_TRIED", "ONLY_ONE", "RESPONSE", "SOURCE_GIVEN", "Choice"]

# What may stand in place of a criterion's name.
ONLY_ONE: Final = "only one"
FIRST_OF_EQUALS: Final = "first of equals"
SOURCE_GIVEN: Final = "source given"
RESPONSE: Final = "response"
NOT_MULTI_RAIL: Final = "peer without Multi-Rail"
NOT_TRIED: Final = "not tried yet"

# The local NI, the peer NI, and for each of them the last criterion that left another one out.
Choice: TypeAlias = tuple[NI, PeerNi, str, str]
