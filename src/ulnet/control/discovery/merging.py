"""Makes of what a peer told of itself the peer, its nets and NIDs (spec discovery.md §6)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Final

from ulnet.control.discovery.answers import SAYS_MULTI_RAIL, see_sequence
from ulnet.control.discovery.asking import Asking
from ulnet.control.discovery.claims import Claims
from ulnet.core.lines import Line
from ulnet.core.peer import Peer, PeerFlag, PeerNi, may_be_listed
from ulnet.core.peer_table import PeerTable
from ulnet.core.tunables import GlobalSettings
from ulnet.nid import Nid
from ulnet.wire.ping import Feature, NiStatus, PingInfo

__all__ = ["MAX_DIFFERENCES", "Merging"]

MAX_DIFFERENCES: Final = 64  # that are kept of one peer
_MAX_LISTED: Final = 4096  # NIDs that stayed with another peer, of which is known who listed them
_AT_ONCE: Final = 64  # NIDs that a peer gets in one turn: 10 to 20 µs each, beside the look at the whole list

_MULTI_RAIL = int(PeerFlag.MULTI_RAIL)
_NO_DISCOVERY = int(PeerFlag.NO_DISCOVERY)
_ROUTER = int(PeerFlag.ROUTER_ENABLED)
_DISCOVERED = int(PeerFlag.DISCOVERED)
_DISCOVERING = int(PeerFlag.DISCOVERING)
_LOCK = int(PeerFlag.LOCK_PRIMARY)
_UPTODATE = int(PeerFlag.NIDS_UPTODATE)
_DATA_PRESENT = int(PeerFlag.DATA_PRESENT)
_SAYS_NO_ROUTER = int(Feature.RTE_DISABLED)


class Merging:
    """Merges news into the table. Conflicts with configuration never stop it: they are told, and kept.

    `peer_told` hears of every NID that its peer tells to be up (True) or down, when that changed; `told` of
    all news. `asking` has a peer asked again who it is.
    """

    # fmt: off
    __slots__ = ("_ask_who", "_asking", "_claims", "_discover_secured", "_listed", "_moved", "_peer_told",
                 "_peers", "_report", "_say", "_settings", "_told", "differences")
    # fmt: on

    def __init__(
        self,
        peers: PeerTable,
        claims: Claims,
        settings: GlobalSettings,
        report: Callable[[str], None],
        say: Callable[[Hashable, str], None],
        peer_told: Callable[[PeerNi, bool], None],
        told: Callable[[Peer, PingInfo], None],
        asking: Asking,
        ask_who: Callable[[PeerNi], object],
        discover_secured: Callable[[Nid], None],
        moved: Callable[[Peer, Iterable[Peer]], None],
    ) -> None:
        self._peers = peers
        self._claims = claims
        self._settings = settings
        self._report = report
        self._say = say  # a line of a kind that may come often
        self.differences: int = 0  # found since the start
        self._peer_told: Callable[[PeerNi, bool], None] = peer_told
        self._told: Callable[[Peer, PingInfo], None] = told
        self._asking = asking
        self._ask_who: Callable[[PeerNi], object] = ask_who
        self._discover_secured: Callable[[Nid], None] = discover_secured
        self._moved: Callable[[Peer, Iterable[Peer]], None] = moved  # NIDs of a peer are other peers' now
        self._listed: dict[Nid, Peer] = {}  # NIDs that stayed with another peer, by who listed them last

    def merge(self, peer: Peer) -> Peer:
        """Merge the news of peer; answers which peer has the NIDs now.

        A list that is longer than one turn takes stays as the news of the peer that is answered, and the next
        call for that one goes on.
        """
        asked: Nid | None = None
        news = peer.news
        before: list[tuple[Peer, int]] = []  # that handed over their news, and how many NIDs they had
        while (owner := self._merge(peer, asked)) is not peer:
            # What the other one has still to take is not what the peer that was asked said.
            asked = peer.primary_nid if owner.news is news else None
            before.append((peer, len(peer.members)))
            peer, news = owner, owner.news
        for other, had in before:
            if not other.gone and len(other.members) < had:  # one NID answered: who has the others?
                self._moved(other, (peer,))
                self._asking.ask(other)
        return peer

    def _merge(self, peer: Peer, asked: Nid | None) -> Peer:
        """Merge the news of peer, or hand them over to the peer that it answers.

        `asked` is the NID of the peer that these news were handed over from.
        """
        news, peer.news = peer.news, None
        begun, peer.merging = peer.merging, None
        at = begun[1] if begun is not None and begun[0] is news else 0
        peer.mark(0 if at else _UPTODATE, _DATA_PRESENT)  # what was doubted between two turns stays so
        if news is None:
            return peer
        if not at:
            self._hear(peer, news)
        peer.guard = news.guard
        primary = news.primary
        if primary is None or not (may_be_listed(primary) and may_be_listed(peer.primary_nid)):
            return peer  # a bonding NID is a peer by itself, whatever its node lists
        if self._bound(peer, at):
            self._compare(peer, news, primary)
            self._take_statuses(peer, news)
            return peer
        if self._peers.claims_ours(peer, primary):
            whose = "this node" if self._peers.ours(primary) else "another node"
            self._tell(peer, "kept", f"peer {peer.primary_nid} says that it is {primary}, {whose}")
            return peer
        listed = [entry.nid for entry in news.entries]
        peer.says = self._of_others(peer, (primary, *listed))
        owner = self._peers.heir(primary, listed)
        if owner is not None and owner is not peer and self._is_that(peer, owner, primary):
            return self._hand_over(peer, owner, news)
        known = peer.flags & _LOCK and peer.owns(primary)  # a locked name is not what the peer says
        if primary != peer.primary_nid and peer.flags & _DISCOVERED and not known:
            self._tell(peer, "primary", f"peer {peer.primary_nid} answers as {primary} now")
        self._regroup(peer, news, primary, listed, at, asked)
        return peer

    def _is_that(self, peer: Peer, owner: Peer, primary: Nid) -> bool:
        """Whether a peer is another one, which has its primary NID or a name by one that it lists.

        If not, it has those NIDs of its list that it may have (`Claims.grant`).
        """
        certified = self._claims.are_certified(peer, primary, owner)
        if not certified and owner.owns(primary):
            whose = "which its certificates are not for"
            self._tell(peer, "kept", f"peer {peer.primary_nid} says that it is {primary}, {whose}")
        return certified and self._claims.agrees(owner, peer)

    def _hear(self, peer: Peer, news: PingInfo) -> None:
        """Tell of news before they are merged: to gateways, and by a line where the list is too long."""
        self._told(peer, news)
        most = self._settings.max_interfaces
        if len(news.entries) > most:
            text = f"peer {peer.primary_nid} tells of {len(news.entries)} NIs, and max_interfaces is {most}"
            self._tell(peer, "interfaces", f"{text}: raise that, or see what runs there")

    def _tell(self, peer: Peer, kind: str, text: str) -> None:
        self._say((kind, peer.primary_nid), Line("peer.told", text, peer=peer.primary_nid))

    def _bound(self, peer: Peer, at: int) -> bool:
        """Whether the NIDs of peer stay as they are, whatever it tells; what has begun goes on to its end."""
        off = not peer.multi_rail or peer.flags & _NO_DISCOVERY or self._settings.discovery != 1
        return bool(off and not at) or peer.configured

    def _of_others(self, peer: Peer, nids: Iterable[Nid]) -> frozenset[Nid]:
        """Those that other peers have, of the first so many."""
        known = (nid for nid in nids if not peer.owns(nid) and self._peers.find(nid) is not None)
        return frozenset(islice(known, MAX_DIFFERENCES))

    def _doubt(self, peer: Peer, nid: Nid, other: Peer) -> list[PeerNi]:
        """A peer says that it has a NID of another one, which has not said so: the NID to ask now."""
        text = f"peer {peer.primary_nid} lists {nid}, which stays with peer {other.primary_nid}"
        self._tell(peer, "kept", f"{text} until that says so too")
        self._listed.pop(nid, None)
        if len(self._listed) >= _MAX_LISTED:
            del self._listed[next(iter(self._listed))]
        self._listed[nid] = peer
        pni = other.members.get(nid)
        if pni is not None and pni.listed:
            self._ask_who(pni)
            return []
        return [] if pni is None else [pni]

    def awaited(self, peer: Peer) -> Peer | None:
        """Another one that is asked just now whether a NID that peer lists is that peer's."""
        for nid in peer.says:
            other = self._peers.find(nid) if self._listed.get(nid) is peer else None
            if other is not None and other is not peer and other.flags & _DISCOVERING:
                return other
        return None

    def _offer(self, nids: Iterable[Nid]) -> None:
        """A peer has these NIDs no longer: does who listed one meanwhile still say so?"""
        for nid in nids:
            peer = self._listed.pop(nid, None)
            if peer is not None and not peer.gone:
                self._asking.ask(peer)

    def _hand_over(self, peer: Peer, owner: Peer, news: PingInfo) -> Peer:
        """The node behind this NID is known by another one already: what it told is about that peer."""
        owner.mark(0 if owner.configured else _MULTI_RAIL, _NO_DISCOVERY)
        for pni in owner.members.values() if not (owner.heard and self._claims.can_say(owner, peer)) else ():
            self._claims.only_listed(pni, peer, owner.heard)
        owner.heard_at, owner.heard_from = peer.heard_at, peer.heard_from
        owner.allowance.limit(peer.allowance)
        known = owner.news
        if known is None or known.sequence < news.sequence or not owner.multi_rail:
            owner.news = news
            see_sequence(owner, news.sequence)
        return owner

    def _regroup(
        self, peer: Peer, info: PingInfo, primary: Nid, listed: list[Nid], at: int, asked: Nid | None
    ) -> None:
        """Give peer the NIDs that it lists, as many as are one turn's; in the last turn the others go.

        The NID of the peer that was asked comes in the first turn: who waits for it finds it here then.
        """
        whole = dict.fromkeys((primary, *listed))
        end = at + _AT_ONCE
        kept = self._claims.grant(peer, primary, islice(whole, at, end), whole, asked)
        if asked is not None and asked in whole and end < len(whole):
            kept |= self._claims.grant(peer, primary, [asked], whole, asked)
        if end < len(whole):
            peer.news, peer.merging = info, (info, end)
            peer.mark(_DATA_PRESENT)
        else:
            before = list(peer.members) if self._listed else ()
            kept |= self._peers.keep_only(peer, whole)
            self._offer(nid for nid in before if nid not in peer.members)
            peer.says = peer.says.difference(peer.members)  # no others have these
            self._take_statuses(peer, info)
        doubted: dict[Peer, list[PeerNi]] = {}
        for nid, why in kept.items():
            pni = peer.members.get(nid)
            if pni is not None and why == errno.EPERM:
                self._set_status(pni, down=True)
            elif pni is None:
                other = self._peers.find(nid)
                if why == errno.EAGAIN and other is not None:
                    doubted.setdefault(other, []).extend(self._doubt(peer, nid, other))
                    continue
                if why == errno.EACCES:
                    if other is None and self._claims.is_here(nid):
                        self._discover_secured(nid)
                    whose = "a certificate is to be for, and none of its own is"
                elif why == errno.EADDRINUSE:
                    whose = "is this node's own" if self._peers.ours(nid) else "is not this node's own"
                elif other is not None:
                    whose = f"stays with peer {other.primary_nid}"
                else:
                    continue
                self._tell(peer, "kept", f"peer {peer.primary_nid} lists {nid}, which {whose}")
        for other, suspects in doubted.items():
            self._asking.doubt(other, suspects, bool(peer.waiters))

    def _take_statuses(self, peer: Peer, info: PingInfo) -> None:
        peer.mark(0 if info.features & _SAYS_NO_ROUTER else _ROUTER, _ROUTER)
        for entry in info.entries:
            pni = peer.members.get(entry.nid)
            if pni is not None:
                self._set_status(pni, down=entry.status == NiStatus.DOWN)

    def _set_status(self, pni: PeerNi, down: bool) -> None:
        if pni.said_down != down:
            pni.said_down = down
            self._peer_told(pni, not down)

    # Configured and seen ---------------------------------------------------------------------------

    def _compare(self, peer: Peer, info: PingInfo, primary: Nid) -> None:
        """Tell what differs between a peer as it is configured and as it says it is (dyn-060)."""
        mode = self._settings.discovery
        if mode == 0 or (mode == 1 and not peer.configured):
            return
        found = differences(self._peers, peer, info, primary)[:MAX_DIFFERENCES]
        for line in found:
            if line in peer.differences:
                continue
            self.differences += 1
            if peer.configured:
                self._report(Line("peer.told", line, peer=peer.primary_nid))
            else:  # a stranger, who may say another thing each time
                self._tell(peer, "difference", line)
        peer.differences = tuple(found)


def differences(peers: PeerTable, peer: Peer, info: PingInfo, primary: Nid) -> list[str]:
    """One sentence for each thing in which the peer differs from what it says of itself."""
    name = f"peer {peer.primary_nid}"
    found = []
    if primary != peer.primary_nid:
        found.append(f"{name} says that its primary NID is {primary}")
    says = info.features & SAYS_MULTI_RAIL != 0
    if says != peer.multi_rail:
        held = "configured" if peer.configured else "known"
        found.append(f"{name} says that it is {'' if says else 'not '}Multi-Rail; it is {held} otherwise")
    listed = dict.fromkeys(entry.nid for entry in info.entries)
    for nid in listed:
        if peer.owns(nid):
            continue
        other = peers.find(nid)
        if other is None:
            where = "not configured"
        else:
            where = f"{'configured for' if other.configured else 'known as one of'} peer {other.primary_nid}"
        found.append(f"{name} lists {nid}, which is {where}")
    unlisted = (nid for nid in peer.members if nid not in listed)
    held = "is configured with" if peer.configured else "was known to have"
    return found + [f"{name} {held} {nid}, which it does not list" for nid in unlisted]
