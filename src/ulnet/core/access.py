"""Who may connect, ping, push, and reach which portals: lists of NIDs and interfaces.

A rule is `[WHAT=]WHO`. WHAT is connect (unless given), ping, push, or portals by number (`portal4`,
`portal[4-8]`). WHO are NID ranges, and names of local interfaces for all that comes by these.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ulnet.core.portal import PORTALS
from ulnet.core.status import LNetError
from ulnet.nid import NidError, NidList, NumberSet, split_list
from ulnet.nid.errors import shown
from ulnet.wire.lnet import PING_PORTAL, Header, MsgType

if TYPE_CHECKING:
    from ulnet.core.ni import NI
    from ulnet.nid import Nid

__all__ = ["DENIED", "EVERYBODY", "Access"]

DENIED: Final = "the access lists here do not let its sender"
_CONNECT: Final = "connect"
_PING: Final = "ping"
_PUSH: Final = "push"
_PORTAL: Final = "portal"
_NAME: Final = re.compile(r"[A-Za-z][^@:,\s]*")  # of an interface: NIDs have a digit, a wildcard or a net


class _Who:
    """NIDs and interfaces of one rule."""

    __slots__ = ("interfaces", "nids", "text")

    def __init__(self, text: str) -> None:
        self.text: str = text
        items = split_list(text)
        self.interfaces: frozenset[str] = frozenset(one for one in items if _NAME.fullmatch(one))
        nids = ",".join(one for one in items if one not in self.interfaces)
        self.nids: NidList | None = NidList.parse(nids) if nids or not self.interfaces else None

    def has(self, nid: Nid, ni: NI) -> bool:
        """Whether a node with that NID, at our NI, is one of them."""
        if self.nids is not None and self.nids.match(nid):
            return True
        return not self.interfaces.isdisjoint((ni.interface, *(place.interface for place in ni.also)))


class Access:
    """The lists of one node, for its whole life: who is denied, or not among those allowed, may not.

    Raises LNetError(EINVAL) for a rule that is none. What has no rule is open to all.
    """

    __slots__ = ("_allow", "_deny")

    def __init__(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        self._allow = _rules("allow", allow)
        self._deny = _rules("deny", deny)

    def why_denied(self, nid: Nid, ni: NI, what: str = _CONNECT) -> str:
        """Why a node with that NID, at our NI, may not; "" if it may."""
        for who in self._deny.get(what, ()):
            if who.has(nid, ni):
                return f"{nid} is denied {what} by {who.text!r}: to let it, change the deny list of this node"
        allowed = self._allow.get(what)
        if not allowed or any(who.has(nid, ni) for who in allowed):
            return ""
        some = ", ".join(who.text for who in allowed)
        return f"{nid} is not among those who are allowed {what} ({some}): add it to this node's allow list"

    def admits(self, hdr: Header, ni: NI) -> bool:
        """Whether the sender of a PUT or GET that came by ni may do that."""
        if not (self._allow or self._deny):
            return True
        if hdr.portal != PING_PORTAL:
            what = f"{_PORTAL}{hdr.portal}"
        else:
            what = _PING if hdr.type == MsgType.GET else _PUSH
        return not self.why_denied(hdr.src_nid, ni, what)


def _rules(name: str, texts: Sequence[str]) -> dict[str, list[_Who]]:
    """What rules are for, with whom they name."""
    found: dict[str, list[_Who]] = {}
    for text in (texts,) if isinstance(texts, str) else texts:
        what, is_named, who = text.rpartition("=")
        try:
            some = _Who(who)
            for one in _what(what.strip()) if is_named else [_CONNECT]:
                found.setdefault(one, []).append(some)
        except NidError as bad:
            raise LNetError(errno.EINVAL, f"{name} {shown(text)}: {bad}") from None
    return found


def _what(text: str) -> list[str]:
    if text in (_CONNECT, _PING, _PUSH):
        return [text]
    if not text.startswith(_PORTAL):
        raise NidError(f"{shown(text)} is none of connect, ping, push and portalN, before the =")
    numbers = list(NumberSet.parse(text.removeprefix(_PORTAL), PORTALS - 1, "portal"))
    if PING_PORTAL in numbers and not text.endswith("*"):
        raise NidError(f"portal {PING_PORTAL} is LNet's own: use ping and push")
    return [f"{_PORTAL}{number}" for number in numbers]


EVERYBODY: Final = Access()
