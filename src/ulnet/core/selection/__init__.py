"""Path selection: which local NI sends to which peer NI, and why (spec selection.md)."""

from ulnet.core.selection.choose import Balance, Selector
from ulnet.core.selection.criteria import Step
from ulnet.core.selection.trace import Explanation, Stage

__all__ = ["Balance", "Explanation", "Selector", "Stage", "Step"]
