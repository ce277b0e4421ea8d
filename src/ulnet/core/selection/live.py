"""What choices are made for live traffic, while somebody follows it: tallies by pair, and a ring of messages.

Bounded, however slowly it is read: tallies only grow in value, the ring forgets its oldest entries. Nobody
who follows has to say goodbye: a trace that is not asked for any more ends with the next message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from ulnet.core.msg import Msg
from ulnet.core.path import Path
from ulnet.core.selection.choice import ONLY_ONE
from ulnet.nid import Nid
from ulnet.wire.lnet import MsgType

__all__ = ["LINGER", "MAX_PAIRS", "RING", "START", "LiveTrace", "Tally", "Traced"]

RING: Final = 4096  # messages
MAX_PAIRS: Final = 1024
LINGER: Final = 10.0  # seconds without a reader
START: Final = 384  # bytes

_GET: Final = int(MsgType.GET)
_PUT: Final = int(MsgType.PUT)
_Pair: TypeAlias = tuple[Nid, Nid]


class Traced(NamedTuple):
    """One message. `before` is the pair of the peer's previous one, None where that was the same."""

    at: float
    type: int
    size: int
    peer: Nid
    source: Nid
    target: Nid
    reason: str
    before: _Pair | None
    portal: int
    start: bytes  # of the payload of a PUT: what upper layers say of it
    words: str  # that its descriptor's owner gave as user_ptr


class Tally:
    """What one pair carried since the trace began."""

    __slots__ = ("messages", "peer", "reasons", "size", "types")

    def __init__(self, peer: Nid) -> None:
        self.peer: Nid = peer
        self.messages: int = 0
        self.size: int = 0
        self.types: list[int] = [0, 0, 0, 0, 0]  # by MsgType
        self.reasons: dict[str, int] = {}


class LiveTrace:
    """`session` tells a trace of a node from others; `untold` counts messages of pairs beyond the bound."""

    __slots__ = ("_all_until", "_last", "_ring", "_until", "began", "noted", "session", "tallies", "untold")

    def __init__(self, session: int, now: float) -> None:
        self.session: int = session
        self.began: float = now
        self.tallies: dict[_Pair, Tally] = {}
        self.noted: int = 0  # entries that ever came into the ring
        self.untold: int = 0
        self._ring: deque[Traced] = deque(maxlen=RING)
        self._last: dict[Nid, _Pair] = {}
        self._until = self._all_until = now

    def wanted(self, now: float, every_message: bool) -> None:
        """A reader begins."""
        self._until = now + LINGER
        if every_message:
            self._all_until = now + LINGER

    def note(self, path: Path, msg: Msg, now: float) -> bool:
        """Count a message; whether somebody still follows."""
        if now > self._until:
            return False
        ni, pni, ni_by, pni_by = path.ni, path.peer_ni, path.ni_by, path.peer_ni_by
        hdr = msg.hdr
        peer = pni.peer.primary_nid
        pair = ni.nid, pni.nid
        size = hdr.length if hdr.type == _GET else hdr.payload_length
        reason = _reason(ni_by, pni_by)
        tally = self.tallies.get(pair)
        if tally is None:
            if len(self.tallies) >= MAX_PAIRS:
                self.untold += 1
                return True
            tally = self.tallies[pair] = Tally(peer)
        tally.messages += 1
        tally.size += size
        tally.types[hdr.type] += 1
        tally.reasons[reason] = tally.reasons.get(reason, 0) + 1
        before = self._last.get(peer)
        self._last[peer] = pair
        if now <= self._all_until:
            before = None if before == pair else before
            self.noted += 1
            start = bytes(msg.payload[0][:START]) if hdr.type == _PUT and msg.payload else b""
            at = now - self.began
            user = msg.md.user_ptr if msg.md is not None else None
            words = user if isinstance(user, str) else ""
            # fmt: off
            self._ring.append(Traced(at, hdr.type, size, peer, *pair, reason, before, hdr.portal, start,
                                     words))
            # fmt: on
        return True

    def since(self, cursor: int, limit: int) -> tuple[int, int, Iterator[Traced]]:
        """From entry `cursor` on: how many are lost, the next cursor, and up to `limit` entries."""
        first = self.noted - len(self._ring)
        start = min(max(cursor, first), self.noted)
        end = min(start + limit, self.noted)
        return start - min(cursor, start), end, islice(self._ring, start - first, end - first)


def _reason(ni_by: str, pni_by: str) -> str:
    if pni_by in (ONLY_ONE, ni_by):
        return ni_by
    return pni_by if ni_by == ONLY_ONE else f"{ni_by}, then {pni_by}"
