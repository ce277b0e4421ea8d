"""The receiving half of the guard: what was taken is not taken again, but acknowledged again.

Whenever it is not sure, a resend is dropped: its sender then reports, as by the rules of LNet.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from itertools import islice, takewhile
from typing import Final

from ulnet.core.guard.identity import AGAIN, FIRST, MARKS, tag_of
from ulnet.core.guard.seen import NO_ACK, STALE, Seen
from ulnet.core.msg import Incoming
from ulnet.nid import Nid
from ulnet.wire.lnet import Header

__all__ = ["ReceiverGuard", "Verdict"]

MAX_RESENDS: Final = 65536  # that were delivered and whose first may still come


class Verdict(Enum):
    """What becomes of a resend, or of a first that comes behind its resend."""

    TAKE = auto()  # it is the first to come
    REPLACE = auto()  # the first has not come whole yet: this one in its place
    ACKNOWLEDGE = auto()  # it was taken: drop it, and say so again
    DROP = auto()


class ReceiverGuard:
    """PUTs with an identity that is meant for this life of the node.

    `first` is how identities of new ones end; `resends` are those sent again that were delivered.
    """

    __slots__ = ("_again", "_clock", "first", "notes", "resends", "resent_by", "tag", "under_way")

    def __init__(self, clock: Callable[[], float], cookie: int, secret: bytes) -> None:
        self._clock = clock
        self.tag: bytes = tag_of(cookie)
        self.first: bytes = self.tag + bytes((FIRST,))
        self._again = self.tag + bytes((AGAIN,))
        self.notes: Seen = Seen(clock, secret)
        self.under_way: dict[bytes, Incoming] = {}
        self.resends: OrderedDict[bytes, tuple[float, Nid]] = OrderedDict()  # when they came, by which hop
        self.resent_by: Counter[Nid] = Counter()

    def leading(self, wmds: list[bytes]) -> list[bytes]:
        """As many of these PUTs, from the first on, as are taken without a closer look.

        All are like the first one: without an identity, or with one for this life, and neither resends nor
        behind one. Who takes those with an identity has them noted.
        """
        count = len(wmds)
        if not count:
            return wmds
        joined = b"".join(wmds)
        marks = joined[15::16]
        if marks[0] not in MARKS:
            if not (marks.count(FIRST) or marks.count(AGAIN)):
                return wmds
            return list(takewhile(lambda wmd: wmd[15] not in MARKS, wmds))
        first, resends = self.first, self.resends
        if (
            marks == first[2:] * count
            and joined[13::16] == first[:1] * count
            and joined[14::16] == first[1:2] * count
            and not resends
        ):
            return wmds
        return list(takewhile(lambda wmd: wmd.endswith(first) and wmd[:15] not in resends, wmds))

    def is_meant(self, wmd: bytes) -> bool:
        """Whether an identity is to be kept: not that of a first that was meant for a former life."""
        return wmd[15] == AGAIN or wmd[13:] == self.first

    def is_repeated(self, wmd: bytes) -> bool:
        """Whether this PUT says that it was sent before, or comes behind one that said so."""
        return wmd[15] == AGAIN or wmd[:15] in self.resends

    def judge(self, wmd: bytes, hop: Nid) -> Verdict:
        """What becomes of one that `is_repeated`, and came by that hop."""
        if wmd[13:] != self._again:
            return Verdict.DROP
        if wmd[:15] in self.under_way:
            return Verdict.REPLACE
        taken = self.notes.taken(wmd)
        if taken:
            return Verdict.ACKNOWLEDGE
        return Verdict.DROP if taken is None or not self._room(hop) else Verdict.TAKE

    def outcome(self, hdr: Header) -> int:
        """The length to acknowledge, of a PUT that was taken; NO_ACK: none."""
        return self.notes.length(hdr.wmd, hdr.payload_length)

    def _room(self, hop: Nid) -> bool:
        """Whether one more fits: a hop has as many as are left for others at most."""
        for key in [key for key, (at, _) in islice(self.resends.items(), 2) if self._clock() - at >= STALE]:
            self._drop(key)
        return self.resent_by[hop] < MAX_RESENDS - len(self.resends)

    def _drop(self, key: bytes) -> None:
        found = self.resends.pop(key, None)
        if found is not None:
            self.resent_by[found[1]] -= 1
            if not self.resent_by[found[1]]:
                del self.resent_by[found[1]]

    def begins(self, msg: Incoming) -> None:
        """A PUT with an identity is being received, or waits for memory."""
        wmd = msg.hdr.wmd
        key = msg.identity = wmd[:15]
        self.under_way[key] = msg
        if wmd[15] == AGAIN:
            self._drop(key)
            self.resends[key] = (self._clock(), msg.next_nid)
            self.resent_by[msg.next_nid] += 1

    def ended(self, msg: Incoming, taken: bool, acknowledged: bool = True) -> None:
        """The PUT is there, or will never be."""
        key = msg.identity
        if self.under_way.get(key) is msg:
            del self.under_way[key]
        if not taken:
            self._drop(key)
            return
        self.notes.note([msg.hdr.wmd], msg.next_nid)
        length = msg.mlength if acknowledged else NO_ACK
        if length != msg.hdr.payload_length:
            self.notes.note_length(key, length)
