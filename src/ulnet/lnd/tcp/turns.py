"""How much one connection may read before the others have their turn.

How long that is depends on what comes, so that each turn's time decides on the next one.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DIRECT", "FIRST_TURN", "SHORT", "TURNS", "next_turn"]

TURNS: Final = (1024, 4096, 16384, 65536, 131072)  # bytes that one connection may read in a turn
FIRST_TURN: Final = 1  # of a new connection: a hostile one ends and calls again for another first turn
# What is left of a turn that is not worth to be timed: it read less than 2 KiB.
SHORT: Final = tuple(max(0, most - 2048) for most in TURNS)
# What is read to where it belongs costs little: so many bits less of a turn, by how short it is.
DIRECT: Final = (8, 7, 6, 5, 5)
_MOST_TURN: Final = len(TURNS) - 1
_LONG: Final = 5e-4  # seconds: the next turn is a fourth as long, or less …
_BRIEF: Final = 1.2e-4  # … or four times


def next_turn(turn: int, took: float, more: bool) -> int:
    """Which of `TURNS` follows one that took so many seconds, and left more to read or not."""
    if took > _LONG and turn:
        while took > _LONG and turn:
            turn -= 1
            took /= 4
    elif more and took < _BRIEF and turn < _MOST_TURN:
        turn += 1
    return turn
