"""What a call of the DLC library is: a request, and how its reply becomes a value."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ulnet.dlc import documents, model
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.protocol import Reply, document_of

__all__ = ["Call", "Discovered", "Pinged", "nothing", "reader", "refuse", "seconds", "several"]

T = TypeVar("T")
_LONGEST_WAIT = 3600  # seconds


class Call(Generic[T]):
    """A request, and how its reply becomes a value. `deadline` in seconds, None is the client's own."""

    __slots__ = ("_read", "deadline", "request")

    def __init__(
        self, request: model.Request, read: Callable[[Reply], T], deadline: float | None = None
    ) -> None:
        self.request: model.Request = request
        self.deadline: float | None = deadline
        self._read = read

    def result(self, reply: Reply) -> T:
        """The value of a reply. Raises DlcError with the first refusal."""
        return self._read(reply)


class Pinged(NamedTuple):
    """Nodes that answered, and why others did not, each in the order asked."""

    answers: list[documents.PingView]
    errors: list[ErrorItem]


class Discovered(NamedTuple):
    """Peers as they are known now, and why others are not, each in the order asked."""

    answers: list[documents.DiscoverView]
    errors: list[ErrorItem]


def refuse(reply: Reply) -> None:
    """Raise DlcError with the first thing that was refused, if any was."""
    if reply.errors:
        item = reply.errors[0]
        raise DlcError(
            item.errno,
            item.descr,
            verb=item.verb,
            entity=item.entity,
            seq_no=item.seq_no,
            signed=item.errno < 0,
        )


def nothing(reply: Reply) -> None:
    """Reads a reply that only says whether it is done. Raises DlcError."""
    refuse(reply)


def several(texts: Sequence[str]) -> list[str]:
    """A list of names; one text is a sequence too, of its letters."""
    if isinstance(texts, str):
        raise TypeError(f"a list is wanted: write [{texts!r}], not {texts!r}")
    return list(texts)


def seconds(timeout: float) -> float:
    """A time-out as it may be. Raises DlcError(EINVAL)."""
    if not 0 < timeout <= _LONGEST_WAIT:
        text = f"timeout {timeout:g} is out of range: use more than 0 and up to {_LONGEST_WAIT} seconds"
        raise DlcError(errno.EINVAL, text, verb="manage", entity="ping")
    return timeout


def reader(kind: type[Any], field: str) -> Callable[[Reply], Any]:
    """Reads one field of a document. Raises DlcError."""

    def read(reply: Reply) -> Any:
        refuse(reply)
        return getattr(document_of(reply.result, kind), field)

    return read
