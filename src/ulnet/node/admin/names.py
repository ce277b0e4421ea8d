"""What requests name: nets, NIDs, CPTs; text in, values out, refusals in words."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator

from ulnet.core.status import LNetError
from ulnet.nid import LO_NET, Net, Nid, NidError, NidList
from ulnet.nid.expr import NumberSet, split_list
from ulnet.nid.net import NAMES

__all__ = [
    "MANY",
    "MOST_TEXT",
    "NO_MATCH",
    "assumed",
    "must_be_few",
    "one_nid",
    "read_cpts",
    "read_interface",
    "read_net",
    "read_nids",
    "reading_nids",
]

NO_MATCH = errno.ENOMSG  # 42, lnetctl's "no match"
MANY = 1024  # NIDs in one request, or interfaces
MOST_TEXT = 0x10000  # characters of NIDs in one request: as many as the longest NIDs have
_NUMBERED = re.compile(rf"(?:{'|'.join(NAMES)})[0-9]+\Z")  # a known type with too high a number
_INTERFACE = re.compile(r"([^\[\]\s,]+)(\[[^\[\]]*\])?\Z")


def must_be_few(
    count: int, what: str, most: int = MANY, number: int = errno.ERANGE, way_out: str = "split it"
) -> None:
    """Refuse what would keep the loop from all others for long. Raises LNetError."""
    if count > most:
        raise LNetError(number, f"{count} {what} are more than the {most} of one request: {way_out}")


def read_net(text: str, unknown: int) -> Net:
    """A net that may be configured. Raises LNetError: `unknown` for no net at all, EINVAL, ENODEV (lo)."""
    try:
        net = Net.parse(text)
    except NidError as bad:
        raise LNetError(errno.EINVAL if _NUMBERED.match(text) else unknown, str(bad)) from None
    if net == LO_NET:
        raise LNetError(
            errno.ENODEV, "net lo belongs to every node and cannot be added or deleted: name another net"
        )
    return net


def one_nid(text: str) -> Nid:
    """A single NID. Raises LNetError(EINVAL)."""
    try:
        return Nid.parse(text)
    except NidError as bad:
        raise LNetError(errno.EINVAL, str(bad)) from None


def assumed(texts: Iterable[str]) -> list[str]:
    """What was made of NIDs without a net, as notes of an answer: one note for the first of them."""
    bare = next((text for text in texts if "@" not in text), None)
    return [] if bare is None else [f"{bare} is read as {bare}@tcp: where it is on another net, write @NET"]


def read_nids(texts: Iterable[str]) -> list[Nid]:
    """NIDs from lists with ranges, each once. Raises LNetError(EINVAL)."""
    found: dict[Nid, None] = {}
    for _ in reading_nids(texts, found):
        pass
    return list(found)


def reading_nids(texts: Iterable[str], found: dict[Nid, None]) -> Iterator[None]:
    """The same, into `found`, one text after the other: 1,024 take 30 ms. Raises LNetError(EINVAL)."""
    count = size = 0  # also of those that are named again
    try:
        for text in texts:
            size += len(text)
            must_be_few(size, "characters of NIDs", MOST_TEXT, errno.EINVAL)
            must_be_few(count + len(split_list(text)), "NIDs", number=errno.EINVAL)  # each is one or more
            nids = NidList.parse(text).expand(MANY)
            count += len(nids)
            must_be_few(count, "NIDs", number=errno.EINVAL)
            found.update(dict.fromkeys(nids))
            yield
    except NidError as bad:
        raise LNetError(errno.EINVAL, str(bad)) from None


def read_interface(text: str, cpt_count: int) -> tuple[str, tuple[int, ...] | None]:
    """`eth0` or `eth0[0,1]`: the name and its CPTs. Raises LNetError(EINVAL, ERANGE)."""
    match = _INTERFACE.match(text)
    if match is None:
        raise LNetError(
            errno.EINVAL, f"interface {text!r} is not written as a name, or a name with CPTs such as eth0[0]"
        )
    name, cpts = match.groups()
    return name, read_cpts(cpts, cpt_count) if cpts else None


def read_cpts(text: str, count: int) -> tuple[int, ...]:
    """`[0,2-3]`, `0` or `*` of a node's `count` CPTs. Raises LNetError(EINVAL, ERANGE)."""
    try:
        numbers = NumberSet.parse(text, 0xFFFF, "CPT")
    except NidError as bad:
        raise LNetError(errno.EINVAL, f"{bad}; write CPTs such as [0] or [0,2-3]") from None
    if numbers.is_all:
        return tuple(range(count))
    highest = max(high for _, high, _ in numbers.ranges)
    if highest >= count:
        raise LNetError(errno.ERANGE, f"CPT {highest} does not exist: this node's CPTs are 0 to {count - 1}")
    return tuple(sorted(numbers))
