"""Many patterns at once: which of them match a NID."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ulnet.nid.address_pattern import AddressPattern
from ulnet.nid.expr import NumberSet
from ulnet.nid.nid import Nid
from ulnet.nid.patterns import NetPattern

__all__ = ["NidIndex", "places_of"]


class NidIndex:
    """Patterns by what each byte of a NID may be, so that a NID is not compared with each of them.

    A pattern is of nets and of addresses there; without addresses it is of all NIDs of these nets. Sets of
    patterns are integers that have a bit for each: 1 << its place in the sequence.
    """

    __slots__ = ("_bytes", "_every", "_patterns", "_unsure")

    def __init__(self, patterns: Sequence[tuple[NetPattern, AddressPattern | None]]) -> None:
        self._patterns = patterns
        self._every = (1 << len(patterns)) - 1
        self._unsure = 0  # those for which bytes by themselves do not tell enough
        places: list[_Byte] = []
        for at, (nets, addresses) in enumerate(patterns):
            numbers, sure = nets.by_byte()
            if addresses is not None:
                more, told = addresses.by_byte()
                numbers = [*more[:1], *numbers, *more[1:]]
                sure = sure and told
            else:
                numbers = [None, *numbers]
            if not sure:
                self._unsure |= 1 << at
            while len(places) < len(numbers):
                places.append(_Byte())
            for place, allowed in zip(places, numbers, strict=False):
                if allowed is not None:
                    place.add(allowed, 1 << at)
        # Of each byte that matters: its place, the sets known by now, and what makes them.
        self._bytes = [(at, one.known, one) for at, one in enumerate(places) if one.named]

    def match(self, nid: Nid) -> int:
        """The patterns that match."""
        found = self._every
        for at, known, one in self._bytes:
            value = nid[at]
            some = known.get(value)
            found &= one.find(value, self._every) if some is None else some
            if not found:
                return 0
        unsure = found & self._unsure
        if unsure:
            for at in places_of(unsure):
                nets, addresses = self._patterns[at]
                if not nets.match(nid.net) or not (addresses is None or addresses.match(nid.address)):
                    found ^= 1 << at
        return found


class _Byte:
    """One byte of a NID: which patterns allow which values. Sets are made when a value comes first."""

    __slots__ = ("_by_numbers", "known", "named")

    def __init__(self) -> None:
        self.named: int = 0  # patterns that do not take every value here
        self.known: dict[int, int] = {}
        self._by_numbers: dict[NumberSet, int] = {}

    def add(self, allowed: NumberSet, pattern: int) -> None:
        """A pattern that takes these values."""
        self.named |= pattern
        self._by_numbers[allowed] = self._by_numbers.get(allowed, 0) | pattern

    def find(self, value: int, every: int) -> int:
        """The patterns that take that value."""
        found = every ^ self.named
        for numbers, patterns in self._by_numbers.items():
            if value in numbers:
                found |= patterns
        self.known[value] = found
        return found


def places_of(patterns: int) -> Iterator[int]:
    """The places of the patterns of a set, the first one first."""
    while patterns:
        last = patterns & -patterns
        yield last.bit_length() - 1
        patterns ^= last
