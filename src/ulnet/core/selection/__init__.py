"""Path selection: which local NI sends to which peer NI, and why (spec selection.md)."""

from ulnet.core.selection.choose import Balance, Selector
from ulnet.core.selection.criteria import HIGHER_IS_BETTER, YES_OR_NO, Step
from ulnet.core.selection.live import RING, LiveTrace, Tally, Traced
from ulnet.core.selection.paths import NetPair
from ulnet.core.selection.trace import Explanation, Stage

__all__ = [
    "HIGHER_IS_BETTER",
    "RING",
    "YES_OR_NO",
    "Balance",
    "Explanation",
    "LiveTrace",
    "NetPair",
    "Selector",
    "Stage",
    "Step",
    "Tally",
    "Traced",
]
