"""The reply to a call, as its caller gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ulnet.rpc.service import decoded

__all__ = ["Answer"]


@dataclass(slots=True, init=False)
class Answer:
    """The reply to a call: its data, and how many bytes of `into` were filled."""

    data: bytes
    pushed: int = 0

    def __init__(self, data: bytes, pushed: int = 0) -> None:  # that of a dataclass is not compiled
        self.data = data
        self.pushed = pushed

    def __bytes__(self) -> bytes:
        return self.data

    def as_type(self, wanted: Any) -> Any:
        """The data as a value of that type. Raises RpcError(EBADMSG)."""
        return decoded(self.data, wanted, executed="yes")
