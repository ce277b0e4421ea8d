"""Number expressions: `7`, `*`, `[1-9/2,12]` (spec wire-lnet.md §2.3, udsp.md §2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from ulnet.nid.errors import NidError, shown

__all__ = ["NumberSet", "split_list"]

_MOST_RANGES = 256  # in brackets: each number of an IPv4 address by itself
_BYTE = 255
_DIGITS = 10  # as many as 2**32 - 1 has


def split_list(text: str) -> list[str]:
    """The items of a list, apart by blanks or commas; commas in brackets belong to their item."""
    items: list[str] = []
    item = ""
    depth = 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if depth <= 0 and (char == "," or char.isspace()):
            if item:
                items.append(item)
            item = ""
        else:
            item += char
    if item:
        items.append(item)
    return items


@dataclass(frozen=True, slots=True)
class NumberSet:
    """Numbers from 0 to `limit`, as ranges (low, high, stride)."""

    ranges: tuple[tuple[int, int, int], ...]
    limit: int

    @classmethod
    def parse(cls, text: str, limit: int, what: str) -> NumberSet:
        """The numbers that text names; `what` says in errors what they are numbers of."""
        if not text.startswith("["):
            if "[" in text:
                raise NidError(f"{what} {shown(text)}: write whole numbers in the brackets, such as [10-19]")
            if "-" in text:
                raise NidError(f"{what} {shown(text)}: a range goes into brackets; write [{text[:20]}]")
            return cls((_parse_range(text, limit, what),), limit)
        if not text.endswith("]") or "[" in text[1:] or "]" in text[:-1]:
            raise NidError(f"{what} {shown(text)}: brackets open and close once; write [1-3] or [1,5-9/2]")
        parts = text[1:-1].split(",")
        if len(parts) > _MOST_RANGES:
            words = f"{len(parts)} numbers and ranges in brackets: there may be {_MOST_RANGES}"
            raise NidError(f"{what} {shown(text)}: {words}; join neighbours, such as [10-19]")
        return cls(tuple(_parse_range(part, limit, what) for part in parts), limit)

    @classmethod
    def one(cls, value: int) -> NumberSet:
        """A single byte."""
        return cls(((value, value, 1),), _BYTE)

    def __contains__(self, value: int) -> bool:
        return any(low <= value <= high and (value - low) % stride == 0 for low, high, stride in self.ranges)

    def __iter__(self) -> Iterator[int]:
        """Every number once, in the order written."""
        if len(self.ranges) == 1:
            low, high, stride = self.ranges[0]
            yield from range(low, high + 1, stride)
            return
        seen: set[int] = set()
        for low, high, stride in self.ranges:
            for value in range(low, high + 1, stride):
                if value not in seen:
                    seen.add(value)
                    yield value

    @property
    def is_all(self) -> bool:
        """Whether every number is in the set because it was written `*`."""
        return (0, self.limit, 1) in self.ranges

    def overlaps(self, other: NumberSet) -> bool:
        """Whether a number is in both."""
        return any(_have_common(one, its) for one in self.ranges for its in other.ranges)

    def by_byte(self, size: int) -> tuple[list[NumberSet | None], bool]:
        """What each of the `size` bytes of the numbers may be (None: anything), and if all such are meant.

        Where they are not, bytes that nobody meant may be among those that are told.
        """
        if self.is_all:
            return [None] * size, True
        places: list[list[tuple[int, int, int]]] = [[] for _ in range(size)]
        for low, high, _ in self.ranges:
            alike = True  # up to here
            for place, first, last in zip(places, low.to_bytes(size), high.to_bytes(size), strict=True):
                place.append((first, last, 1) if alike else (0, _BYTE, 1))
                alike = alike and first == last
        sure = len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1]
        return [NumberSet(tuple(dict.fromkeys(place)), _BYTE) for place in places], sure

    def __str__(self) -> str:
        if self.is_all:
            return "*"
        parts = [
            f"{low}" if low == high else f"{low}-{high}" + (f"/{stride}" if stride > 1 else "")
            for low, high, stride in self.ranges
        ]
        return parts[0] if len(parts) == 1 and "-" not in parts[0] else f"[{','.join(parts)}]"


def _have_common(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Whether a number is in both ranges."""
    (low, high, stride), (its_low, its_high, its_stride) = one, other
    common = gcd(stride, its_stride)
    steps, rest = divmod(its_low - low, common)
    if rest:
        return False
    every = its_stride // common  # so many steps of one lead from a common number to the next
    found = low + stride * (steps * pow(stride // common, -1, every) % every)
    missing = its_low - found
    if missing > 0:
        found += -(-missing // (stride * every)) * stride * every
    return found <= min(high, its_high)


def _parse_range(text: str, limit: int, what: str) -> tuple[int, int, int]:
    span, slash, step = text.strip().partition("/")
    if span == "*" and not slash:
        return 0, limit, 1
    first, dash, last = span.partition("-")
    low = _number(first, limit, what)
    high = _number(last, limit, what) if dash else low
    if slash and not dash:
        raise NidError(f"{what} {shown(text)}: a stride belongs to a range; write low-high/stride")
    stride = _number(step, limit, what) if slash else 1
    if low > high:
        raise NidError(f"{what} {shown(text)}: the range runs backwards; write [{high}-{low}]")
    if stride == 0:
        raise NidError(f"{what} {shown(text)}: a stride of 0 leads nowhere; write 1 or more")
    return low, high, stride


def _number(text: str, limit: int, what: str) -> int:
    base, digits = (16, text[2:]) if text[:2] in ("0x", "0X") else (10, text)
    if digits.isascii() and digits.isalnum() and len(digits) <= _DIGITS:
        try:
            value = int(digits, base)
        except ValueError:
            value = limit + 1
        if value <= limit:
            return value
    raise NidError(f"{what} {shown(text)} is not a number from 0 to {limit}, nor *, nor a range in brackets")
