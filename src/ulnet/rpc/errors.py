"""What a call ends with that did not end well."""

from __future__ import annotations

from errno import ECANCELED, EPROTO
from typing import Final, Literal

from ulnet.core.status import LNetError
from ulnet.wire.rpc import Reply

__all__ = ["MOST_ERRNO", "Executed", "RpcError", "errno_of", "raised"]

Executed = Literal["no", "yes", "unknown"]
MOST_ERRNO: Final = 4095  # as in Linux


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
        words = f"an errno is positive, and {MOST_ERRNO} at most: errno.ENOENT, not -errno.ENOENT"
        raise ValueError(f"RpcError({number}, {text!r}): {words}")


def errno_of(number: int) -> int:
    """The errno that a server told; EPROTO where it is none."""
    return number if 0 < number <= MOST_ERRNO else EPROTO


def raised(place: str, reply: Reply) -> RpcError:
    """What a handler raised, as its reply tells it; ECANCELED: that it was ended, perhaps before it began."""
    words, _, traceback = bytes(reply.data).decode("utf-8", "replace").partition("\0")
    executed: Executed = "unknown" if reply.status == ECANCELED else "yes"
    failed = RpcError(errno_of(reply.status), f"{place}: {words}", executed)
    failed.traceback = traceback
    return failed
