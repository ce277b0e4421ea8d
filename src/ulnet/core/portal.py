"""Portals and match entries: which memory an incoming message goes to (spec md-me-eq.md §1, §2)."""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, Final

from ulnet.core.generation import Generation
from ulnet.core.md import MANAGE_REMOTE, MAX_SIZE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.status import LNetError
from ulnet.nid import ANY_NID, PID_ANY, Nid
from ulnet.wire.lnet import LNET_MTU, MsgType

if TYPE_CHECKING:
    from ulnet.core.md import Md
    from ulnet.core.msg import Incoming
    from ulnet.core.peer import Peer
    from ulnet.wire.lnet import Header

__all__ = ["DROP", "NO_MATCH", "PORTALS", "PORTAL_BITS", "TOO_MUCH", "MatchEntry", "Portal"]

_PUT: Final = int(MsgType.PUT)
PORTAL_BITS = 6
PORTALS = 1 << PORTAL_BITS

# What `Portal.match` answers when it found no memory.
NO_MATCH = "no matching entry"
DROP = "message longer than the matching memory descriptor"
TOO_MUCH = "GET of more than one message carries"


class MatchEntry:
    """One ME: who may reach the memory of its MD with which match bits."""

    __slots__ = ("ignore_bits", "linked", "match_bits", "md", "nid", "pid", "portal", "unlink")

    def __init__(
        self, portal: Portal, nid: Nid, pid: int, match_bits: int, ignore_bits: int, unlink: bool
    ) -> None:
        self.portal: Portal = portal
        self.nid: Nid = nid
        self.pid: int = pid
        self.match_bits: int = match_bits
        self.ignore_bits: int = ignore_bits
        self.unlink: bool = unlink  # goes with its MD
        self.md: Md | None = None
        self.linked: bool = True

    @property
    def unique(self) -> bool:
        """Whether exactly one sender with exactly one set of bits can match."""
        return not self.ignore_bits and self.nid != ANY_NID and self.pid != PID_ANY

    def accepts(self, peer: Peer, pid: int, match_bits: int) -> bool:
        """The ID compared is the peer's primary NID; another NID of the same peer is accepted too."""
        if (self.match_bits ^ match_bits) & ~self.ignore_bits:
            return False
        if self.pid not in (PID_ANY, pid):
            return False
        return self.nid == ANY_NID or peer.owns(self.nid)


class Portal:
    """One portal: its match entries in matching order, and what waits for one (lazy portals)."""

    __slots__ = (
        "delayed",
        "exact",
        "generation",
        "hops",
        "ignoring",
        "index",
        "lazy",
        "matching",
        "named",
        "rematch",
        "unique",
    )

    def __init__(self, index: int) -> None:
        self.index: int = index
        self.generation: Generation = Generation()  # of its entries, and of which of them have memory
        self.lazy: bool = False
        self.unique: bool | None = None  # fixed by the first ME
        self.ignoring: deque[MatchEntry] = deque()  # with ignore bits: looked at first
        self.exact: dict[object, deque[MatchEntry]] = {}
        self.named: dict[tuple[int, int], dict[Nid, None]] = {}  # by such entries: per match bits and pid
        self.delayed: dict[Incoming, float] = {}  # in order of arrival: since when each waits; seconds
        self.hops: dict[Nid, int] = {}  # how many of them came by each next hop
        self.matching: bool = False  # somebody walks through `delayed` …
        self.rematch: bool = False  # … and must begin anew, because memory was attached meanwhile

    def hold(self, incoming: Incoming, now: float) -> None:
        """A message waits from now on."""
        self.delayed[incoming] = now
        self.hops[incoming.next_nid] = self.hops.get(incoming.next_nid, 0) + 1

    def let_go(self, incoming: Incoming) -> None:
        """A message waits no longer."""
        del self.delayed[incoming]
        left = self.hops[incoming.next_nid] = self.hops[incoming.next_nid] - 1
        if not left:
            del self.hops[incoming.next_nid]

    def attach(self, me: MatchEntry, at_head: bool) -> None:
        """Link an ME. Raises LNetError(EPERM) when the portal is of the other kind."""
        if self.unique is None:
            self.unique = me.unique
        elif self.unique != me.unique:
            kind = "unique" if self.unique else "wildcard"
            raise LNetError(
                errno.EPERM,
                f"portal {self.index} holds {kind} match entries (its first entry decides that): "
                "use another portal, or the same kind of NID, pid and ignore bits",
            )
        self.generation.invalidate("entries")
        entries = self._list_of(me)
        if at_head:
            entries.appendleft(me)
        else:
            entries.append(me)

    def detach(self, me: MatchEntry) -> None:
        """Unlink an ME; unknown ones are ignored."""
        if not me.linked:
            return
        me.linked = False
        self.generation.invalidate("entries")
        entries = self._list_of(me)
        entries.remove(me)
        if not entries and entries is not self.ignoring:
            del self.exact[self._key_of(me)]
            if self.unique:
                named = self.named[me.match_bits, me.pid]
                del named[me.nid]
                if not named:
                    del self.named[me.match_bits, me.pid]

    def match(self, hdr: Header, peer: Peer, known: Md | None = None) -> tuple[Md, int, int] | str:
        """Find memory for a PUT or GET: (md, mlength, offset), or NO_MATCH, DROP or TOO_MUCH.

        Takes one operation off the MD that it finds. `known` is what `first` found for such a header.
        """
        if known is not None and not known.exhausted:
            return _take(known, hdr)
        bits = hdr.match_bits
        wanted = OP_PUT if hdr.type == _PUT else OP_GET
        pid = hdr.src_pid
        if self.ignoring:
            for me in self.ignoring:
                md = me.md
                if (
                    md is not None
                    and md.options & wanted
                    and not md.exhausted
                    and me.accepts(peer, pid, bits)
                ):
                    return _take(md, hdr)
        exact = self.exact
        if not exact:
            return NO_MATCH
        if self.unique:
            named = self.named.get((bits, pid), {}).keys() & peer.members.keys()  # either may have thousands
            for nid in named if len(named) < 2 else [nid for nid in peer.nids() if nid in named]:
                found = self._first(exact.get((bits, nid, pid)), wanted, peer, pid, bits)
                if found is not None:
                    return _take(found, hdr)
            return NO_MATCH
        found = self._first(exact.get(bits), wanted, peer, pid, bits)
        return NO_MATCH if found is None else _take(found, hdr)

    def first(self, hdr: Header) -> Md | None:
        """What `match` finds, until another generation, where it is the first entry, open to all."""
        if self.unique:
            return None
        entries = self.ignoring or self.exact.get(hdr.match_bits)
        if not entries:
            return None
        me = entries[0]
        if (me.match_bits ^ hdr.match_bits) & ~me.ignore_bits or me.nid != ANY_NID:
            return None
        md = me.md
        wanted = OP_PUT if hdr.type == _PUT else OP_GET
        if md is None or not md.options & wanted:
            return None
        return md if me.pid in (PID_ANY, hdr.src_pid) else None

    @staticmethod
    def _first(entries: deque[MatchEntry] | None, wanted: int, peer: Peer, pid: int, bits: int) -> Md | None:
        if entries is None:
            return None
        for me in entries:
            md = me.md
            if md is not None and md.options & wanted and not md.exhausted and me.accepts(peer, pid, bits):
                return md
        return None

    def _key_of(self, me: MatchEntry) -> object:
        return (me.match_bits, me.nid, me.pid) if self.unique else me.match_bits

    def _list_of(self, me: MatchEntry) -> deque[MatchEntry]:
        if me.ignore_bits:
            return self.ignoring
        if self.unique:
            self.named.setdefault((me.match_bits, me.pid), {})[me.nid] = None
        return self.exact.setdefault(self._key_of(me), deque())

    def entries(self) -> list[MatchEntry]:
        """All MEs, those with ignore bits first."""
        return [*self.ignoring, *(me for chain in self.exact.values() for me in chain)]


def _take(md: Md, hdr: Header) -> tuple[Md, int, int] | str:
    """Fit a request into the MD that it matched; a misfit is dropped, not tried elsewhere."""
    offset = hdr.offset if md.options & MANAGE_REMOTE else md.offset
    if offset > md.length:
        return DROP
    allowed = md.max_size if md.options & MAX_SIZE else md.length - offset
    allowed = min(allowed, md.length - offset, LNET_MTU)
    wanted = hdr.payload_length if hdr.type == _PUT else hdr.length
    if wanted > allowed:
        if not md.options & TRUNCATE:
            return TOO_MUCH if wanted > LNET_MTU else DROP
        wanted = allowed
    if md.threshold > 0:
        md.threshold -= 1
    md.offset = offset + wanted
    md.refs += 1
    return md, wanted, offset
