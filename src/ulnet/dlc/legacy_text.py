"""Legacy text: parameters as assignments, in no certain form, and files of `lustre_routes_config`.

ip2nets="tcp0 10.0.*.*" routes="o2ib 10.0.0.1@tcp"
tcp7: { gateway: 10.0.0.9@tcp0, hop: 8 }
"""

from __future__ import annotations

import re
import shlex

from ulnet.dlc.legacy import LegacyError, read_ip2nets, read_networks, read_routes
from ulnet.dlc.model import NetMatch, Request, RouteAdd
from ulnet.nid import Net, NidError, NidList
from ulnet.nid.errors import shown
from ulnet.nid.expr import split_list

__all__ = ["KINDS", "hop_count", "read_as", "read_text"]

KINDS = ("networks", "ip2nets", "routes")
_ASSIGNED = re.compile(rf"\s*(?:{'|'.join(KINDS)})\s*=")
_ASSIGNMENT = re.compile(rf"({'|'.join(KINDS)})\s*=\s*")
_BRACKETS = re.compile(r"\([^()]*\)")
_COMMENT = re.compile(r"#[^;\n]*")
_CONFIGURED = re.compile(r"^[^\S\n]*([A-Za-z0-9]+)\s*:\s*\{", re.MULTILINE)
_ROUTE = re.compile(r"\s*([^\s:{}]+)\s*:\s*\{([^{}]*)\}\s*", re.DOTALL)
_NAME = re.compile(r"(?:^|[\s,])([A-Za-z_]+)\s*:\s*")
_HOP = re.compile(r"[0-9]{1,3}\Z")
_PRIORITY = re.compile(r"[0-9]{1,9}\Z")


def read_text(text: str) -> list[Request]:
    """The requests of assignments, or of text whose form tells what it is. Raises LegacyError."""
    if _ASSIGNED.match(_COMMENT.sub("", text)):
        return [request for kind, value in _assignments(text) for request in _read_value(kind, value)]
    return _read_value(_kind_of(text), text) if _COMMENT.sub("", text).strip() else []


def read_as(kind: str, text: str) -> list[Request]:
    """The requests of the parameter `kind`, with its name before it or without. Raises LegacyError."""
    if not _ASSIGNED.match(_COMMENT.sub("", text)):
        return _read_value(kind, text)
    values = _assignments(text)
    for name, _ in values:
        if name != kind:
            raise LegacyError(f"{name}= stands where {kind}= is expected: use the option --{name}")
    return [request for _, value in values for request in _read_value(kind, value)]


def _read_value(kind: str, text: str) -> list[Request]:
    bare = _COMMENT.sub("", text)
    if again := _ASSIGNED.match(bare):
        raise LegacyError(f"{shown(again[0].strip())} stands in the value of {kind}=: write the name once")
    if not bare.strip(" \t\r\n;,"):
        return []
    if kind == "networks":
        return list(read_networks(text))
    if kind == "ip2nets":
        return [_with_ranges(NetMatch(read_ip2nets(text)))]
    return list(_read_routes_config(text) if _is_routes_config(text) else read_routes(text))


def _is_routes_config(text: str) -> bool:
    """Whether it is in the form of lustre_routes_config."""
    return _CONFIGURED.search(text) is not None


def hop_count(text: str, where: str) -> int:
    """A number of hops. Raises LegacyError."""
    if not _HOP.match(text) or not 1 <= int(text) <= 255:
        raise LegacyError(f"{where}: {shown(text)} is no hop count: write 1 to 255", "bad hop count")
    return int(text)


def _assignments(text: str) -> list[tuple[str, str]]:
    try:
        words = shlex.split(_ASSIGNMENT.sub(r"\1=", text), comments=True)
    except ValueError as bad:
        raise LegacyError(f"{shown(text)}: {bad}: close the quotation mark") from None
    found: list[tuple[str, list[str]]] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in KINDS:
            found.append((name, [value]))
        elif found:  # the value was not quoted
            found[-1][1].append(word)
    return [(name, " ".join(parts)) for name, parts in found]


def _kind_of(text: str) -> str:
    """A gateway makes routes, an address behind a net rules, else it is networks."""
    if _is_routes_config(text):
        return "routes"
    rest = _BRACKETS.sub("", _COMMENT.sub("", text))
    if "@" in rest:
        return "routes"
    rules = [split_list(rule) for rule in re.split(r"[;\n]", rest)]
    if any(len(words) > 1 and "," not in rest for words in rules):
        return "ip2nets"
    if rest == text and all(re.fullmatch(r"[A-Za-z0-9]+", word) for words in rules for word in words):
        raise _alone(text.strip())
    return "networks"


def _with_ranges(request: NetMatch) -> NetMatch:
    for rule in request.rules:
        if not rule.interfaces and not rule.ranges and rule.bond is None:
            raise _alone(rule.net)
    return request


def _alone(net: str) -> LegacyError:
    return LegacyError(
        f"{shown(net)} alone chooses no interface: write tcp0(eth0), tcp0 192.168.0.*, or networks={net}"
    )


# The form of lustre_routes_config -------------------------------------------------------------------------


def _read_routes_config(text: str) -> list[RouteAdd]:
    rest = _COMMENT.sub("", text).strip()
    routes: list[RouteAdd] = []
    at = 0
    while at < len(rest):
        route = _ROUTE.match(rest, at)
        if route is None:
            line = rest[at:].strip().partition("\n")[0]
            raise LegacyError(
                f"{shown(line)} is no route: write NET: {{ gateway: NID, hop: N }}", "bad route"
            )
        routes.append(_configured(route[1], route[2]))
        at = route.end()
    return routes


def _configured(net: str, inside: str) -> RouteAdd:
    where = f"route to {net}"
    try:
        Net.parse(net)
    except NidError as bad:
        raise LegacyError(f"{where}: {bad}", "bad net") from None
    values: dict[str, str] = {}
    for name, value in _pairs(where, inside):
        if name not in ("gateway", "hop", "priority"):
            raise LegacyError(f"{where}: {name!r} is none of gateway, hop, priority", "bad option")
        if name in values:
            raise LegacyError(f"{where} has two of {name!r}: write a route for each", "bad route")
        values[name] = value
    if "gateway" not in values:
        raise LegacyError(f"{where} has no gateway: write gateway: 192.168.0.1@tcp", "bad route")
    try:
        NidList.parse(values["gateway"])
    except NidError as bad:
        raise LegacyError(f"{where}: {bad}", "bad gateway") from None
    priority = values.get("priority", "0")
    if not _PRIORITY.match(priority):
        text = f"{where}: priority {shown(priority)} is not a number: write 0, the best, or more"
        raise LegacyError(text, "bad priority")
    hop = hop_count(values["hop"], where) if "hop" in values else -1
    return RouteAdd(net, values["gateway"], hop, int(priority))


def _pairs(where: str, inside: str) -> list[tuple[str, str]]:
    """`name: value`, apart by commas or blanks."""
    words = split_list(_NAME.sub(r" \1: ", inside))
    pairs: list[tuple[str, str]] = []
    for at, word in enumerate(words):
        if at % 2 == 0 and not word.endswith(":"):
            text = f"{where}: {shown(word)} is no name: a route has one gateway, or a range of them"
            raise LegacyError(text, "bad route")
        if at % 2:
            pairs.append((words[at - 1][:-1], word))
    if len(words) % 2:
        raise LegacyError(f"{where}: nothing stands behind {words[-1]!r}: write its value", "bad route")
    return pairs
