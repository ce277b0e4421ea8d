"""What a call ends with that did not end well."""

from __future__ import annotations

from typing import Final, Literal

from ulnet.core.status import LNetError
from ulnet.wire.rpc import Reply

__all__ = ["MOST_ERRNO", "Executed", "RpcError", "raised"]

Executed = Literal["no", "yes", "unknown"]
MOST_ERRNO: Final = 0xFFFFFFFF  # a frame has 32 bits for it


class RpcError(LNetError):
    """Why a call failed: `errno`, a sentence, and whether its handler was `executed`.

    `traceback` is that of what the handler raised, where its client asks for tracebacks. Raises TypeError,
    and ValueError for an errno that is not positive.
    """

    traceback = ""

    def __init__(self, errno: int, text: str, executed: Executed = "unknown") -> None:
        _check(errno, text)
        super().__init__(errno, text)
        self.executed: Executed = executed

    def __reduce__(self) -> tuple[type[RpcError], tuple[int, str, Executed], dict[str, str]]:  # type: ignore[override]
        return type(self), (self.errno, self.text, self.executed), {"traceback": self.traceback}


def _check(number: object, text: object) -> None:
    if not isinstance(number, int) or not isinstance(text, str):
        made = f"RpcError({number!r}, {text!r})"
        raise TypeError(f'{made}: give an errno and a text, as in RpcError(errno.ENOENT, "no such key")')
    if not 0 < number <= MOST_ERRNO:
        words = "an errno is positive, and has 32 bits at most: errno.ENOENT, not -errno.ENOENT"
        raise ValueError(f"RpcError({number}, {text!r}): {words}")


def raised(place: str, reply: Reply, executed: Executed) -> RpcError:
    """What a handler raised, as its reply tells it."""
    words, _, traceback = bytes(reply.data).decode("utf-8", "replace").partition("\0")
    failed = RpcError(reply.status, f"{place}: {words}", executed)
    failed.traceback = traceback
    return failed
