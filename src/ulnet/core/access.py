"""Who may connect, ping, push, and reach which portals: lists of NIDs and interfaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ulnet.nid import NidError, NidIndex, NidRange, places_of
from ulnet.nid.errors import shown
from ulnet.wire.lnet import PING_PORTAL, Header, MsgType

if TYPE_CHECKING:
    from ulnet.core.ni import NI
    from ulnet.nid import Nid

__all__ = ["CONNECT", "DENIED", "EVERYBODY", "PING", "PORTAL", "PUSH", "Access", "AccessRule", "Who"]

DENIED: Final = "the access lists here do not let its sender"
CONNECT: Final = "connect"
PING: Final = "ping"
PUSH: Final = "push"
PORTAL: Final = "portal"  # and its number
_MOST_JUDGED: Final = 4096  # answers that are kept
_SOME: Final = 4  # rules that a refusal names


class AccessRule(NamedTuple):
    """One rule: `who` is how its ranges and interfaces are written, `text` the rule as a whole.

    Rules that mean the same in that order have the same text.
    """

    text: str
    what: Sequence[str]
    who: str
    ranges: Sequence[NidRange]
    interfaces: Sequence[str]


class Who:
    """All who are named for one thing, each with the rule that names them."""

    __slots__ = ("_by_range", "_interfaces", "_nids", "_ranges", "rules")

    def __init__(self, rules: list[AccessRule]) -> None:
        self.rules: list[AccessRule] = rules
        self._interfaces: dict[str, AccessRule] = {}
        self._nids: dict[Nid, AccessRule] = {}
        self._by_range: list[AccessRule] = []
        many: list[NidRange] = []
        for rule in rules:
            for name in rule.interfaces:
                self._interfaces.setdefault(name, rule)
            for some in rule.ranges:
                try:
                    for nid in some.expand(1):
                        self._nids.setdefault(nid, rule)
                except NidError:
                    many.append(some)
                    self._by_range.append(rule)
        self._ranges: NidIndex = NidIndex([(some.nets, some.addresses) for some in many])

    def rule_for(self, nid: Nid, ni: NI) -> AccessRule | None:
        """A rule that names a node with that NID, at our NI."""
        found = self._nids.get(nid)
        if found is not None:
            return found
        for at in places_of(self._ranges.match(nid)):
            return self._by_range[at]
        if self._interfaces:
            for name in (ni.interface, *[place.interface for place in ni.also]):
                if name is not None and name in self._interfaces:
                    return self._interfaces[name]
        return None


class Access:
    """The lists of one node: who is denied, or not among those allowed, may not. They never change.

    What has no rule is open to all. `may` and `may_not` have who is named for what by these rules.
    """

    __slots__ = ("_allow", "_deny", "_judged", "allow", "deny")

    def __init__(
        self, allow: Sequence[str], deny: Sequence[str], may: dict[str, Who], may_not: dict[str, Who]
    ) -> None:
        self.allow: tuple[str, ...] = tuple(allow)
        self.deny: tuple[str, ...] = tuple(deny)
        self._allow = may
        self._deny = may_not
        self._judged: dict[tuple[Nid, str, str | None, tuple[object, ...]], bool] = {}

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return bool(self.allow or self.deny)

    def opened_by(self, after: Access) -> list[str]:
        """What only those on the list may now, and everybody who is not denied with the lists `after`."""
        return [what for what in self._allow if what not in after._allow]

    def interfaces(self) -> set[str]:
        """The interfaces that rules name."""
        tables = (self._allow, self._deny)
        rules = [rule for table in tables for who in table.values() for rule in who.rules]
        return {name for rule in rules for name in rule.interfaces}

    def why_denied(self, nid: Nid, ni: NI, what: str = CONNECT) -> str:
        """Why a node with that NID, at our NI, may not; "" if it may."""
        denied = self._deny.get(what)
        by = denied.rule_for(nid, ni) if denied is not None else None
        if by is not None:
            return f"{nid} is denied {what} by {shown(by.who)}: to let it, change the deny list of this node"
        allowed = self._allow.get(what)
        if allowed is None or allowed.rule_for(nid, ni) is not None:
            return ""
        some = shown(", ".join([rule.who for rule in allowed.rules[:_SOME]]))
        return f"{nid} is not among those who are allowed {what} ({some}): add it to this node's allow list"

    def admits(self, hdr: Header, ni: NI) -> bool:
        """Whether the sender of a PUT or GET that came by ni may do that."""
        if not (self._allow or self._deny):
            return True
        what = _wanted(hdr)
        key = (hdr.src_nid, what, ni.interface, ni.also)
        may = self._judged.get(key)
        if may is None:
            if len(self._judged) >= _MOST_JUDGED:  # senders decide how many there are
                self._judged.clear()
            may = self._judged[key] = not self.why_denied(hdr.src_nid, ni, what)
        return may

    def denies_by_name(self, nid: Nid, hdr: Header, ni: NI) -> bool:
        """Whether a node is on the deny list for that, which it sent for another node by ni."""
        denied = self._deny.get(_wanted(hdr)) if self._deny else None
        return denied is not None and denied.rule_for(nid, ni) is not None


def _wanted(hdr: Header) -> str:
    """What the sender of a PUT or GET wants to do."""
    if hdr.portal != PING_PORTAL:
        return f"{PORTAL}{hdr.portal}"
    return PING if hdr.type == MsgType.GET else PUSH


EVERYBODY: Final = Access((), (), {}, {})
