"""What ping replies and pushes do to the flags of a peer (spec discovery.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ulnet.core.lines import Line
from ulnet.core.peer import Peer, PeerFlag
from ulnet.nid import Nid
from ulnet.wire.ping import MAX_INFO_SIZE, PREFIX_SIZE, Feature, PingInfo, info_size

__all__ = ["SAYS_MULTI_RAIL", "Answers", "see_sequence", "size_needed"]

_MULTI_RAIL = int(PeerFlag.MULTI_RAIL)
_NO_DISCOVERY = int(PeerFlag.NO_DISCOVERY)
_CONFIGURED = int(PeerFlag.CONFIGURED)
_DISCOVERED = int(PeerFlag.DISCOVERED)
_DISCOVERING = int(PeerFlag.DISCOVERING)
_DATA_PRESENT = int(PeerFlag.DATA_PRESENT)
_UPTODATE = int(PeerFlag.NIDS_UPTODATE)
_FORCE_PING = int(PeerFlag.FORCE_PING)
_MARK_DELETION = int(PeerFlag.MARK_DELETION)
_LOCK = int(PeerFlag.LOCK_PRIMARY)
SAYS_MULTI_RAIL = int(Feature.MULTI_RAIL)
_SAYS_DISCOVERY = int(Feature.DISCOVERY)


class Answers:
    """Judges the infos of peers. `mode` tells how discovery is set: 0 off, 1 on, 2 to verify only."""

    __slots__ = ("_mode", "_say")

    def __init__(self, mode: Callable[[], int], say: Callable[[Hashable, str], None]) -> None:
        self._mode = mode
        self._say = say

    def take_reply(self, peer: Peer, info: PingInfo) -> None:
        """A whole ping reply: news that replace any other."""
        able = info.features & _SAYS_DISCOVERY != 0 and self._mode() != 0
        if able:
            peer.mark(remove=_NO_DISCOVERY)
        else:
            flags = peer.flags
            if not flags & (_CONFIGURED | _NO_DISCOVERY) and flags & (_DISCOVERED | _MULTI_RAIL):
                peer.mark(_MARK_DELETION)
            peer.mark(_NO_DISCOVERY)
        self._judge_rails(peer, info, able)
        if peer.multi_rail and _is_its_own(peer, info.primary):
            see_sequence(peer, info.sequence)
        peer.news = info
        peer.mark(_DATA_PRESENT)

    def take_push(self, peer: Peer, info: PingInfo) -> None:
        """A whole push of a multi-rail peer: news, unless newer ones wait or were merged."""
        able = info.features & _SAYS_DISCOVERY != 0 and self._mode() != 0
        if info.features & _SAYS_DISCOVERY:
            peer.mark(remove=_NO_DISCOVERY)
        else:
            if peer.flags & (_DISCOVERED | _NO_DISCOVERY | _DISCOVERING | _CONFIGURED) == _DISCOVERED:
                peer.mark(_MARK_DELETION)
            peer.mark(_NO_DISCOVERY)
        self._judge_rails(peer, info, able)
        peer.mark(remove=_UPTODATE)
        if info.sequence < peer.remote_sequence:
            # Late on its way, or the peer began anew: asked, it tells which.
            peer.pushed_sequence = 0
            peer.mark(_FORCE_PING)
            return
        known = peer.news
        if known is None or info.sequence > known.sequence:
            peer.remote_sequence = info.sequence
            peer.news = info
            peer.mark(_DATA_PRESENT)

    def _judge_rails(self, peer: Peer, info: PingInfo, able: bool) -> None:
        """Whether the peer may be used by any of its NIDs."""
        says = info.features & SAYS_MULTI_RAIL != 0
        if says == peer.multi_rail:
            return
        if peer.configured:
            return  # the differences are told when the info is merged
        if not says:
            name = peer.primary_nid
            line = Line("peer.told", f"peer {name} is no longer Multi-Rail", peer=name)
            self._say(("rails", name), line)
            peer.mark(remove=_MULTI_RAIL)
        elif able and self._mode() == 1:
            peer.mark(_MULTI_RAIL)
            for pni in peer.members.values():
                pni.preferred = None


def _is_its_own(peer: Peer, primary: Nid | None) -> bool:
    """Whether the node that says this of itself is known as this peer; a locked name may be another one."""
    return primary == peer.primary_nid or bool(peer.flags & _LOCK and primary in peer.members)


def see_sequence(peer: Peer, sequence: int) -> None:
    """An answer to a ping has that number; a lower one than before means that the peer began anew.

    Or it was overtaken by a push on its way: a second ping tells.
    """
    if sequence < peer.remote_sequence:
        peer.pushed_sequence = 0
        peer.mark(_FORCE_PING)
    peer.remote_sequence = sequence


def size_needed(data: memoryview) -> int:
    """How large a buffer the info needs that begins with data; 0 if that cannot be told or is absurd."""
    needed = info_size(data[:PREFIX_SIZE]) if len(data) >= PREFIX_SIZE else 0
    return needed if needed <= MAX_INFO_SIZE else 0
