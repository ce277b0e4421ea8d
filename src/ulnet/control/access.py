"""Access lists as they are written: rules are `[WHAT=]WHO`.

WHAT is connect (unless given), ping, push, or portals by number (`portal4`, `portal[4-8]`). WHO are NID
ranges, and names of local interfaces for all that comes by these.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from typing import Final

from ulnet.core.access import CONNECT, PING, PORTAL, PUSH, Access, AccessRule, Who
from ulnet.core.portal import PORTALS
from ulnet.core.status import LNetError
from ulnet.nid import NidError, NidRange, NumberSet, split_list
from ulnet.nid.errors import shown
from ulnet.wire.lnet import PING_PORTAL

__all__ = ["MOST", "access_of", "rule_text", "with_rules", "without"]

MOST: Final = 1024  # NID ranges and interfaces of one list
_NAME: Final = re.compile(r"[A-Za-z][^@:,\s]*")  # of an interface: NIDs have a digit, a wildcard or a net


def access_of(allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Access:
    """Lists of these rules. Raises LNetError: EINVAL for a rule that is none, ENOSPC for too many."""
    allowed, denied = _rules("allow", allow), _rules("deny", deny)
    allow, deny = [rule.text for rule in allowed], [rule.text for rule in denied]
    return Access(allow, deny, _by_what(allowed), _by_what(denied))


def with_rules(access: Access, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Access:
    """These lists and more. Raises LNetError(EINVAL, ENOSPC)."""
    return access_of([*access.allow, *_texts(allow)], [*access.deny, *_texts(deny)])


def without(access: Access, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Access:
    """These lists without some rules. Raises LNetError: EINVAL, ENOENT for one that is not there."""
    return access_of(_less("allow", access.allow, allow), _less("deny", access.deny, deny))


def rule_text(name: str, text: str) -> str:
    """A rule of that list in its one form. Raises LNetError(EINVAL)."""
    return _rule(name, text).text


def _rule(name: str, text: str) -> AccessRule:
    try:
        return _parsed(text)
    except NidError as bad:
        raise LNetError(errno.EINVAL, f"{name} {shown(text)}: {bad}") from None


def _parsed(text: str) -> AccessRule:
    what, is_named, who = text.rpartition("=")
    items = split_list(who)
    if not items:
        raise NidError("a list of NIDs is empty; name at least one, such as 10.0.0.1@tcp")
    interfaces: list[str] = []
    ranges: list[NidRange] = []
    names = []
    for item in items:
        if _NAME.fullmatch(item):
            interfaces.append(item)
            names.append(item)
        else:
            found = NidRange.parse(item)
            ranges.append(found)
            names.append(str(found))
    named, meant = _what(what.strip() if is_named else CONNECT)
    everybody = ",".join(names)
    return AccessRule(
        everybody if named == CONNECT else f"{named}={everybody}", meant, everybody, ranges, interfaces
    )


def _texts(texts: Sequence[str]) -> Sequence[str]:
    """Rules; one text is a sequence, too."""
    return (texts,) if isinstance(texts, str) else texts


def _rules(name: str, texts: Sequence[str]) -> list[AccessRule]:
    """The rules of a list, each once."""
    found: dict[str, AccessRule] = {}
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


def _by_what(rules: Sequence[AccessRule]) -> dict[str, Who]:
    """Who is named for what."""
    found: dict[str, list[AccessRule]] = {}
    for rule in rules:
        for what in rule.what:
            found.setdefault(what, []).append(rule)
    made: dict[tuple[str, ...], Who] = {}  # portal* is one for 63 portals
    who: dict[str, Who] = {}
    for what, some in found.items():
        texts = tuple([rule.text for rule in some])
        if texts not in made:
            made[texts] = Who(some)
        who[what] = made[texts]
    return who


def _what(text: str) -> tuple[str, list[str]]:
    """How it is written, and all that is meant."""
    if text in (CONNECT, PING, PUSH):
        return text, [text]
    if not text.startswith(PORTAL):
        raise NidError(f"{shown(text)} is none of connect, ping, push and portalN, before the =")
    portals = NumberSet.parse(text.removeprefix(PORTAL), PORTALS - 1, "portal")
    numbers = list(portals)
    if PING_PORTAL in numbers and not text.endswith("*"):
        raise NidError(f"portal {PING_PORTAL} is LNet's own: use ping and push")
    return f"{PORTAL}{portals}", [f"{PORTAL}{number}" for number in numbers]
