"""Refusals as lnetctl prints them: verb, entity, errno, text (spec lnetctl.md §3)."""

from __future__ import annotations

import msgspec

__all__ = ["DlcError", "ErrorItem"]


class ErrorItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One refusal; `errno` as it is printed: negative, with few exceptions."""

    verb: str
    entity: str
    errno: int
    descr: str
    seq_no: int | None = None

    @property
    def exit_code(self) -> int:
        """What a command that ends with this error returns: never 0."""
        return self.errno & 0xFF or 255


class DlcError(Exception):
    """A request is refused. `errno` is positive; `descr` names the thing, the rule and the way out."""

    def __init__(
        self,
        errno: int,
        descr: str,
        *,
        verb: str,
        entity: str,
        seq_no: int | None = None,
        signed: bool = True,
    ) -> None:
        super().__init__(descr)
        self.item: ErrorItem = ErrorItem(verb, entity, -abs(errno) if signed else abs(errno), descr, seq_no)

    @property
    def errno(self) -> int:
        """The errno, positive."""
        return abs(self.item.errno)

    @property
    def descr(self) -> str:
        """The sentence for people."""
        return self.item.descr
