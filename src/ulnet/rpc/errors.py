"""What a call ends with that did not end well."""

from __future__ import annotations

from typing import Literal

from ulnet.core.status import LNetError

__all__ = ["Executed", "RpcError"]

Executed = Literal["no", "yes", "unknown"]


class RpcError(LNetError):
    """Why a call failed: `errno`, a sentence, and whether its handler was `executed`."""

    def __init__(self, errno: int, text: str, executed: Executed = "unknown") -> None:
        super().__init__(errno, text)
        self.executed: Executed = executed

    def __reduce__(self) -> tuple[type[RpcError], tuple[int, str, Executed]]:  # type: ignore[override]
        return type(self), (self.errno, self.text, self.executed)
