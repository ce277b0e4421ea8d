"""The deadline of the call that is being served: what a handler calls in turn has no more time than that."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["DEADLINE"]

DEADLINE: Final[ContextVar[float | None]] = ContextVar("ulnet.rpc deadline", default=None)
