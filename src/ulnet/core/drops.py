"""Messages that go nowhere: counted by their reason, and told in the log in few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.core.lines import Line
from ulnet.core.notices import Notices
from ulnet.wire.lnet import MsgType

if TYPE_CHECKING:
    from ulnet.core.ni import NI
    from ulnet.core.peer import PeerNi
    from ulnet.core.state import NodeState
    from ulnet.nid import Nid
    from ulnet.wire.lnet import Header

__all__ = ["FAULT_RULE", "IN_DOUBT", "NOT_ASKED", "REPEATED", "Drops"]

FAULT_RULE: Final = "a fault rule"
IN_DOUBT: Final = "sent without ACK, and perhaps lost with its connection"
NOT_ASKED: Final = "answer to nothing that waits"
REPEATED: Final = "sent again, and was taken or may have been"
_ACK: Final = int(MsgType.ACK)
_PUT: Final = int(MsgType.PUT)
_GET: Final = int(MsgType.GET)
_MOST_LINES: Final = 16  # a second: who sends what nobody takes must not fill the log
_NO_PORTAL: Final = -1


class Drops:
    """Of one node. Not logged is what nobody lost: copies, what fault rules take, and ACKs that are late."""

    __slots__ = ("_notices", "_state")

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._notices = Notices(state.clock, state.report, _MOST_LINES)

    def count(self, ni: NI, sender: PeerNi | None, hdr: Header, why: str) -> None:
        """A message that came in by ni goes nowhere; `sender` where it is known."""
        stats = self._state.stats
        stats.drop_count += 1
        stats.drop_length += hdr.payload_length
        stats.drops[why] += 1
        ni.stats.dropped[hdr.type] += 1
        if sender is not None:
            sender.stats.dropped[hdr.type] += 1
        if why is FAULT_RULE or why is REPEATED or (why is NOT_ASKED and hdr.type == _ACK):
            return
        portal = hdr.portal if hdr.type in (_PUT, _GET) else _NO_PORTAL
        if self._notices.is_due((why, hdr.src_nid, portal)):  # in a flood words cost more than the rest
            text, kind = f"dropped {_named(ni, hdr)}: {why}", MsgType(hdr.type).name
            self._notices.tell(Line("message.dropped", text, source=hdr.src_nid, type=kind, why=why))

    def in_doubt(self, ni: NI, nid: Nid, count: int) -> None:
        """A connection broke: so many PUTs without ACK may be lost that had been told to be sent."""
        self._state.stats.drops[IN_DOUBT] += count
        puts = "a PUT" if count == 1 else f"up to {count} PUTs"
        line = f"the connection from {ni.nid} to {nid} broke, and {puts} without ACK may be lost with it"
        self._notices.say((IN_DOUBT, ni.nid, nid), f"{line}: use ACKs where that matters")

    def told(self, nid: object, kind: MsgType, match_bits: int, why: str) -> None:
        """A peer says that it dropped a request of ours."""
        text = f"{nid} dropped a {kind.name} of ours, match bits {match_bits:#x}: {why}"
        line = Line("message.dropped_there", text, nid=nid, type=kind.name, why=why)
        self._notices.say((why, nid, kind), line)


def _named(ni: NI, hdr: Header) -> str:
    length = hdr.length if hdr.type == _GET else hdr.payload_length
    words = f"{'an' if hdr.type == _ACK else 'a'} {MsgType(hdr.type).name}"
    if hdr.type != _ACK:
        words += f" of {length} bytes"
    words += f" from {hdr.src_nid}"
    if hdr.dest_nid != ni.nid:
        words += f" for {hdr.dest_nid}"
    if hdr.type in (_PUT, _GET):
        words += f" to portal {hdr.portal}, match bits {hdr.match_bits:#x}"
    return words
