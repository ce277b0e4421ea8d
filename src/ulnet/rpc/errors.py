"""What a call ends with that did not end well."""

from __future__ import annotations

from typing import Literal

from ulnet.core.status import LNetError
from ulnet.wire.rpc import Reply

__all__ = ["Executed", "RpcError", "raised"]

Executed = Literal["no", "yes", "unknown"]


class RpcError(LNetError):
    """Why a call failed: `errno`, a sentence, and whether its handler was `executed`.

    `traceback` is that of what the handler raised, where its client asks for tracebacks.
    """

    traceback = ""

    def __init__(self, errno: int, text: str, executed: Executed = "unknown") -> None:
        super().__init__(errno, text)
        self.executed: Executed = executed

    def __reduce__(self) -> tuple[type[RpcError], tuple[int, str, Executed], dict[str, str]]:  # type: ignore[override]
        return type(self), (self.errno, self.text, self.executed), {"traceback": self.traceback}


def raised(place: str, reply: Reply, executed: Executed) -> RpcError:
    """What a handler raised, as its reply tells it."""
    words, _, traceback = bytes(reply.data).decode("utf-8", "replace").partition("\0")
    failed = RpcError(reply.status, f"{place}: {words}", executed)
    failed.traceback = traceback
    return failed
