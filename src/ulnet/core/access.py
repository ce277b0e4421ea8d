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
from ulnet.nid import NidError, NidRange, NumberSet, split_list
from ulnet.nid.errors import shown
from ulnet.wire.lnet import PING_PORTAL, Header, MsgType

if TYPE_CHECKING:
    from ulnet.core.ni import NI
    from ulnet.nid import Nid

__all__ = ["DENIED", "EVERYBODY", "MOST", "Access", "rule_text"]

DENIED: Final = "the access lists here do not let its sender"
MOST: Final = 1024  # NID ranges and interfaces of one list
_CONNECT: Final = "connect"
_PING: Final = "ping"
_PUSH: Final = "push"
_PORTAL: Final = "portal"
_NAME: Final = re.compile(r"[A-Za-z][^@:,\s]*")  # of an interface: NIDs have a digit, a wildcard or a net
_MOST_JUDGED: Final = 4096  # answers that are kept
_SOME: Final = 4  # rules that a refusal names


class _Rule:
    """One rule, and its text in the one form that all have who mean the same in that order."""

    __slots__ = ("interfaces", "ranges", "text", "what", "who")

    def __init__(self, text: str) -> None:
        what, is_named, who = text.rpartition("=")
        items = split_list(who)
        if not items:
            raise NidError("a list of NIDs is empty; name at least one, such as 10.0.0.1@tcp")
        self.interfaces: list[str] = []
        self.ranges: list[NidRange] = []
        names = []
        for item in items:
            if _NAME.fullmatch(item):
                self.interfaces.append(item)
                names.append(item)
            else:
                found = NidRange.parse(item)
                self.ranges.append(found)
                names.append(str(found))
        named, self.what = _what(what.strip() if is_named else _CONNECT)
        self.who: str = ",".join(names)
        self.text: str = self.who if named == _CONNECT else f"{named}={self.who}"


class _Who:
    """All who are named for one thing, each with the rule that names them."""

    __slots__ = ("_interfaces", "_nids", "_ranges", "rules")

    def __init__(self, rules: list[_Rule]) -> None:
        self.rules: list[_Rule] = rules
        self._interfaces: dict[str, _Rule] = {}
        self._nids: dict[Nid, _Rule] = {}
        self._ranges: list[tuple[NidRange, _Rule]] = []
        for rule in rules:
            for name in rule.interfaces:
                self._interfaces.setdefault(name, rule)
            for some in rule.ranges:
                try:
                    for nid in some.expand(1):
                        self._nids.setdefault(nid, rule)
                except NidError:  # they are many
                    self._ranges.append((some, rule))

    def rule_for(self, nid: Nid, ni: NI) -> _Rule | None:
        """A rule that names a node with that NID, at our NI."""
        found = self._nids.get(nid)
        if found is not None:
            return found
        for some, rule in self._ranges:
            if some.match(nid):
                return rule
        if self._interfaces:
            for name in (ni.interface, *[place.interface for place in ni.also]):
                if name is not None and name in self._interfaces:
                    return self._interfaces[name]
        return None


class Access:
    """The lists of one node: who is denied, or not among those allowed, may not. They never change.

    Raises LNetError: EINVAL for a rule that is none, ENOSPC for too many. What has no rule is open to all.
    """

    __slots__ = ("_allow", "_deny", "_judged", "allow", "deny")

    def __init__(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        allowed, denied = _rules("allow", allow), _rules("deny", deny)
        self.allow: tuple[str, ...] = tuple([rule.text for rule in allowed])
        self.deny: tuple[str, ...] = tuple([rule.text for rule in denied])
        self._allow = _by_what(allowed)
        self._deny = _by_what(denied)
        self._judged: dict[tuple[Nid, str, str | None, tuple[object, ...]], bool] = {}

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return bool(self.allow or self.deny)

    def with_rules(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Access:
        """These lists and more. Raises LNetError(EINVAL, ENOSPC)."""
        return Access([*self.allow, *_texts(allow)], [*self.deny, *_texts(deny)])

    def without(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Access:
        """These lists without some rules. Raises LNetError: EINVAL, ENOENT for one that is not there."""
        return Access(_less("allow", self.allow, allow), _less("deny", self.deny, deny))

    def opened_by(self, after: Access) -> list[str]:
        """What only those on the list may now, and everybody who is not denied with the lists `after`."""
        return [what for what in self._allow if what not in after._allow]

    def interfaces(self) -> set[str]:
        """The interfaces that rules name."""
        tables = (self._allow, self._deny)
        rules = [rule for table in tables for who in table.values() for rule in who.rules]
        return {name for rule in rules for name in rule.interfaces}

    def why_denied(self, nid: Nid, ni: NI, what: str = _CONNECT) -> str:
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
        return f"{_PORTAL}{hdr.portal}"
    return _PING if hdr.type == MsgType.GET else _PUSH


def rule_text(name: str, text: str) -> str:
    """A rule of that list in its one form. Raises LNetError(EINVAL)."""
    return _rule(name, text).text


def _rule(name: str, text: str) -> _Rule:
    try:
        return _Rule(text)
    except NidError as bad:
        raise LNetError(errno.EINVAL, f"{name} {shown(text)}: {bad}") from None


def _texts(texts: Sequence[str]) -> Sequence[str]:
    """Rules; one text is a sequence, too."""
    return (texts,) if isinstance(texts, str) else texts


def _rules(name: str, texts: Sequence[str]) -> list[_Rule]:
    """The rules of a list, each once."""
    found: dict[str, _Rule] = {}
    for text in _texts(texts):
        rule = _rule(name, text)
        found.setdefault(rule.text, rule)
    count = sum([len(rule.ranges) + len(rule.interfaces) for rule in found.values()])
    if count > MOST:
        way_out = "write ranges, such as 10.0.[0-3].*@tcp"
        raise LNetError(
            errno.ENOSPC, f"{name}: {count} NID ranges and interfaces, of {MOST} at most: {way_out}"
        )
    return list(found.values())


def _less(name: str, there: tuple[str, ...], texts: Sequence[str]) -> list[str]:
    left = dict.fromkeys(there)
    for text in _texts(texts):
        wanted = rule_text(name, text)
        if wanted not in there:
            way_out = "'lnetctl access show' has those there are"
            raise LNetError(errno.ENOENT, f"{name} {shown(text)}: there is no such rule: {way_out}")
        left.pop(wanted, None)
    return list(left)


def _by_what(rules: list[_Rule]) -> dict[str, _Who]:
    """Who is named for what."""
    found: dict[str, list[_Rule]] = {}
    for rule in rules:
        for what in rule.what:
            found.setdefault(what, []).append(rule)
    made: dict[tuple[str, ...], _Who] = {}  # portal* is one for 63 portals
    who: dict[str, _Who] = {}
    for what, some in found.items():
        texts = tuple([rule.text for rule in some])
        if texts not in made:
            made[texts] = _Who(some)
        who[what] = made[texts]
    return who


def _what(text: str) -> tuple[str, list[str]]:
    """How it is written, and all that is meant."""
    if text in (_CONNECT, _PING, _PUSH):
        return text, [text]
    if not text.startswith(_PORTAL):
        raise NidError(f"{shown(text)} is none of connect, ping, push and portalN, before the =")
    portals = NumberSet.parse(text.removeprefix(_PORTAL), PORTALS - 1, "portal")
    numbers = list(portals)
    if PING_PORTAL in numbers and not text.endswith("*"):
        raise NidError(f"portal {PING_PORTAL} is LNet's own: use ping and push")
    return f"{_PORTAL}{portals}", [f"{_PORTAL}{number}" for number in numbers]


EVERYBODY: Final = Access()
