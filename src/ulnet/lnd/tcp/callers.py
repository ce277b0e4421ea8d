"""Connections of those who call, by the address that they come from: which gives way to one more."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Final, Protocol

from ulnet.nid import Nid

__all__ = ["Callers", "Established", "HalfOpen"]

_SHARE: Final = 4  # of the handshakes in progress one address has no more than this part
_MANY: Final = 4  # who has so many times as much as another one gives way first, whatever it does, …
_PART: Final = 16  # … if it has more than this part of all: other peers have a few each, and are busy
_RESTS: Final = 5.0  # seconds without use after which a connection gives way to who has less
_CANDIDATES: Final = 16  # that are looked at for the one that was not used for longest, or is the oldest
_LOOKS: Final = 32  # connections that are looked at each time for one that rests


class HalfOpen(Protocol):
    """An accepted connection whose handshake is in progress, with the NI that `wanted` names."""

    wanted: Nid | None

    def give_way(self) -> None:
        """Hang up, as there are others."""

    def drop(self) -> None:
        """Hang up."""


class Established(Protocol):
    """An accepted connection that is through."""

    def is_idle(self) -> bool:
        """Whether no message is under way."""

    def used_at(self) -> float:
        """When something last came from the peer, or left for it."""

    def give_way(self) -> None:
        """Hang up."""


class _Address:
    """What an address has: handshakes, the oldest first; connections, and when each was last seen used."""

    __slots__ = ("established", "half_open")

    def __init__(self) -> None:
        self.half_open: dict[HalfOpen, None] = {}
        self.established: dict[Established, float] = {}

    @property
    def count(self) -> int:
        return len(self.half_open) + len(self.established)

    def least_used(self) -> Established:
        """One that is idle and was not used for long, if there is one among the first; those used go last."""
        table = self.established
        best = next(iter(table))
        cost = (True, float("inf"))
        for _ in range(min(len(table), _CANDIDATES)):
            one = next(iter(table))
            used = one.used_at()
            busy = not one.is_idle()
            if (busy, used) < cost:
                best, cost = one, (busy, used)
            if not busy and used == table[one]:
                break
            del table[one]
            table[one] = used
        return best


class Callers:
    """All accepted connections. What is done for each takes the same time however many there are."""

    __slots__ = ("_addresses", "_by_count", "_established", "half_open", "most")

    def __init__(self) -> None:
        self.half_open: dict[HalfOpen, str] = {}  # the oldest first
        # Those looked at go last. A dict would pass over all that it moved to find its first one.
        self._established: OrderedDict[Established, str] = OrderedDict()
        self._addresses: dict[str, _Address] = {}
        self._by_count: dict[int, dict[str, None]] = {}  # addresses by how many connections they have
        self.most: int = 0  # that any address has

    # They come and go -----------------------------------------------------------------------------

    def begins(self, one: HalfOpen, address: str) -> None:
        """A handshake begins."""
        self.half_open[one] = address
        self._of(address).half_open[one] = None
        self._changed(address, 1)

    def ended(self, one: HalfOpen) -> bool:
        """A handshake is over, one way or the other; False if it was already."""
        address = self.half_open.pop(one, None)
        if address is None:
            return False
        del self._addresses[address].half_open[one]
        self._changed(address, -1)
        return True

    def entered(self, one: Established, address: str) -> None:
        """A connection is through."""
        self._of(address).established[one] = one.used_at()
        self._established[one] = address
        self._changed(address, 1)

    def left(self, one: Established, address: str) -> None:
        """A connection is closed; nothing happens if it is not of those who call."""
        own = self._addresses.get(address)
        if own is not None and own.established.pop(one, None) is not None:
            del self._established[one]
            self._changed(address, -1)

    def _of(self, address: str) -> _Address:
        own = self._addresses.get(address)
        if own is None:
            own = self._addresses[address] = _Address()
        return own

    def _changed(self, address: str, by: int) -> None:
        count = self._addresses[address].count
        before = count - by
        if before:
            alike = self._by_count[before]
            del alike[address]
            if not alike:
                del self._by_count[before]
        if count:
            self._by_count.setdefault(count, {})[address] = None
        else:
            del self._addresses[address]
        if count > self.most or (before == self.most and before not in self._by_count):
            self.most = count

    # Room for one more ----------------------------------------------------------------------------

    def bound_handshakes(self, address: str, most: int) -> None:
        """Before one more handshake: the oldest give way, of that address first if it has many."""
        own = self._addresses.get(address)
        if own is not None and len(own.half_open) >= max(most // _SHARE, 1):
            _oldest_gives_way(own.half_open)
        elif len(self.half_open) >= most:
            _oldest_gives_way(self.half_open)

    def end_oldest_handshake(self) -> bool:
        """Hang up on the oldest of those whose handshake is not through, if there are any."""
        return _oldest_gives_way(self.half_open)

    def make_way(self, address: str, now: float) -> bool:
        """Have one give way to one more of that address; False if nobody has to.

        An address that has a good part of all, and much more than the caller, does even when busy. Else the
        oldest handshake of who has more, or of the caller; else a connection of who has more that rests.
        """
        own = self._addresses.get(address)
        count = own.count if own is not None else 0
        if self.most > max(_MANY * (count + 1), (len(self.half_open) + len(self._established)) // _PART):
            rich = self._addresses[next(iter(self._by_count[self.most]))]
            if not _oldest_gives_way(rich.half_open):
                rich.least_used().give_way()
            return True
        if self._handshake_gives_way(count) or (own is not None and _oldest_gives_way(own.half_open)):
            return True
        found = self._resting(count, now) if self.most > count + 1 else None
        if found is None:
            return False
        found.give_way()
        return True

    def _handshake_gives_way(self, count: int) -> bool:
        """The oldest handshake of an address that has more, among the first; else of who has most."""
        if self.most <= count:
            return False
        for one, address in islice(self.half_open.items(), _CANDIDATES):
            if self._addresses[address].count > count:
                one.give_way()
                return True
        return _oldest_gives_way(self._addresses[next(iter(self._by_count[self.most]))].half_open)

    def _resting(self, count: int, now: float) -> Established | None:
        """A connection that was idle for a while, of an address that has at least two more.

        Else peers with as many would close each other's by turns. The next ones are looked at next time.
        """
        best: Established | None = None
        since = now - _RESTS
        table = self._established
        for one in list(islice(table, _LOOKS)):
            table.move_to_end(one)
            used = one.used_at()
            if used <= since and self._addresses[table[one]].count > count + 1 and one.is_idle():
                best, since = one, used
        return best


def _oldest_gives_way(among: dict[HalfOpen, None] | dict[HalfOpen, str]) -> bool:
    oldest = next(iter(among), None)
    if oldest is None:
        return False
    oldest.give_way()
    return True
