"""The strings of module parameters: networks=, ip2nets=, routes= (Multi-Rail design; bonding §2.2.3).

networks="tcp0(eth0[0,1], eth1, credits=512), o2ib(ib0)[0]"
ip2nets="tcp(eth0) 192.168.0.[1-4]; tcp1 10.*.*.* # the others"
routes="o2ib 2 192.168.0.[1-2]@tcp:1; tcp[1-3] 10.0.0.9@tcp"

Requests have nets as the text has them.
"""

from __future__ import annotations

import re

from ulnet.dlc.legacy_bond import BondSpecError, bond_from_words, is_bond
from ulnet.dlc.model import Ip2netsRule, NetAdd, RouteAdd, Tunables
from ulnet.dlc.model_bond import BondAdd
from ulnet.dlc.model_files import NetMatch
from ulnet.dlc.tunables import TUNABLES
from ulnet.nid import AddressPattern, InterfacePattern, Net, NetPattern, NidError, NidList
from ulnet.nid.errors import shown
from ulnet.nid.expr import split_list

__all__ = ["LegacyError", "read_ip2nets", "read_networks", "read_routes"]

_LONGEST = 65536
_MOST_NETS = 64
_NET = re.compile(r"[A-Za-z0-9]+(?:\[[^\]]*\])?")
_CPTS = re.compile(r"\[[^\]]*\]\Z")
_HEAD = re.compile(r"\s*([A-Za-z0-9]+\s*(?:\([^()]*\))?\s*(?:\[[^\]]*\])?)(?:\s+(.*))?\Z", re.DOTALL)
_OPTION = re.compile(r"\s*([A-Za-z_]+)\s*=")
_HOPS = re.compile(r"([0-9]{1,3})(?::([0-9]{1,9}))?\Z")  # and a priority
_LIKE_NUMBER = re.compile(r"[-+]?[0-9]")
_PLAIN_NET = re.compile(r"[A-Za-z0-9]+\Z")


class LegacyError(Exception):
    """The string cannot be read: one sentence that names the part, the rule and the way out.

    `kind` names what is wrong in two or three words, for scripts.
    """

    def __init__(self, text: str, kind: str = "bad text") -> None:
        super().__init__(text)
        self.kind = kind


def read_networks(text: str, tunables: Tunables | None = None) -> list[NetAdd | NetMatch | BondAdd]:
    """`networks=`: a net without interface gets the host's first. `tunables` are those of the module."""
    requests: list[NetAdd | NetMatch | BondAdd] = []
    bonds: list[BondAdd] = []  # after their slaves
    for part in _split(_uncommented(text), ",\n"):
        bond = _bond(part)
        if bond is not None:
            bonds.append(bond)
            continue
        net, interfaces, given, cpts = _spec(part, tunables or {})
        if interfaces:
            request = NetAdd(net=net, interfaces=interfaces, in_file=True, tunables=given, cpts=cpts)
            requests.append(request)
        else:
            requests.append(NetMatch([Ip2netsRule(net, tunables=given, cpts=cpts)]))
    requests += bonds
    if not requests:
        raise LegacyError("networks= names no net: write one, such as networks=tcp0(eth0)")
    return requests


def read_ip2nets(text: str, tunables: Tunables | None = None, cpts: str | None = None) -> list[Ip2netsRule]:
    """`ip2nets=`, also --ip2net: rules in their order; `tunables` and `cpts` are for those that give none."""
    rules: list[Ip2netsRule] = []
    for line in re.split(r"[;\n]", _uncommented(text)):
        if not line.strip():
            continue
        head = _HEAD.match(line)
        if head is None:
            raise LegacyError(
                f"{shown(line.strip())} is no ip2nets rule: write a net, its interfaces and address ranges, "
                "such as tcp(eth0) 192.168.0.*"
            )
        ranges = split_list(head[2] or "")
        for one in ranges:
            _range(one)
        bond = _bond(head[1])
        if bond is not None:
            rules.append(Ip2netsRule(bond.net, ranges=ranges, bond=bond))
            continue
        net, interfaces, given, own = _spec(head[1], tunables or {})
        rules.append(Ip2netsRule(net, interfaces, ranges, given, own or cpts))
    if not rules:
        raise LegacyError("ip2nets holds no rule: write one, such as tcp(eth0) 192.168.0.*")
    return rules


def read_routes(text: str) -> list[RouteAdd]:
    """`routes=`: nets, hops if known, gateways; `:PRIORITY` behind hops is that of gateways without one."""
    routes: list[RouteAdd] = []
    for line in re.split(r"[;\n]", _uncommented(text)):
        words = split_list(line)
        if words:
            routes += _route(words, line.strip())
    return routes


def _route(words: list[str], line: str) -> list[RouteAdd]:
    nets: list[str] = []
    hop, usual = -1, 0
    gateways: list[tuple[str, int | None]] = []
    for word in words:
        if "@" in word or (nets and "." in word):  # without a net it is on tcp
            gateways.append(_gateway(word, line))
        elif found := _HOPS.match(word):
            hop, usual = int(found[1]), int(found[2] or 0)
            if not 1 <= hop <= 255:
                text = f"route {shown(line)}: {found[1]} hops are out of range: write 1 to 255"
                raise LegacyError(text, "bad hop count")
        elif nets and _LIKE_NUMBER.match(word):
            text = f"route {shown(line)}: {shown(word)} is no hop count: write 1 to 255"
            raise LegacyError(text, "bad hop count")
        else:
            nets += _nets(word, line)
    if not nets or not gateways:
        raise LegacyError(
            f"route {shown(line)} is not complete: write a net and a gateway, such as tcp1 192.168.0.1@tcp",
            "bad route",
        )
    return [
        RouteAdd(net, gateway, hop, usual if priority is None else priority)
        for net in nets
        for gateway, priority in gateways
    ]


def _nets(word: str, line: str) -> list[str]:
    try:
        pattern = NetPattern.parse(word)
        if pattern.numbers.is_all:
            raise NidError(f"net {shown(word)} stands for all numbers: name them, such as tcp[1-3]")
        nets = [str(net) for net, _ in zip(pattern, range(_MOST_NETS + 1), strict=False)]
    except NidError as bad:
        raise LegacyError(f"route {shown(line)}: {bad}", "bad net") from None
    if len(nets) > _MOST_NETS:
        text = f"route {shown(line)}: {word} are more than {_MOST_NETS} nets: write fewer"
        raise LegacyError(text, "bad net")
    return [word] if _PLAIN_NET.match(word) else nets


def _gateway(word: str, line: str) -> tuple[str, int | None]:
    if "@" not in word:
        address, colon, digits = word.partition(":")
        word = f"{address}@tcp{colon}{digits}"
    nid, colon, digits = word.partition("@")[2].partition(":")
    text = f"{word.partition('@')[0]}@{nid}"
    if colon and not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        told = f"route {shown(line)}: after ':' comes a priority, such as {text}:1"
        raise LegacyError(told, "bad priority")
    try:
        NidList.parse(text)
    except NidError as bad:
        raise LegacyError(f"route {shown(line)}: {bad}", "bad gateway") from None
    return text, int(digits) if colon else None


# Parts ---------------------------------------------------------------------------------------------------


def _uncommented(text: str) -> str:
    """Without comments: from # to the end of the rule."""
    if len(text) > _LONGEST:
        raise LegacyError(f"the string has {len(text)} characters: {_LONGEST} are the most")
    return re.sub(r"#[^;\n]*", "", text)


def _split(text: str, separators: str) -> list[str]:
    """Parts between separators outside brackets, none of them empty."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char in separators and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    if depth != 0:
        raise LegacyError(f"{shown(text)}: a bracket is not closed, or not opened: write tcp0(eth0,eth1)")
    return [part.strip() for part in (*parts, text[begin:]) if part.strip()]


def _bond(text: str) -> BondAdd | None:
    """`bond0(*@tcp0, *@tcp1, mode=loadbalance)`; None: another net."""
    parts = _parts(text)
    if parts is None or not is_bond(parts[0]):
        return None
    try:
        return bond_from_words(parts[0], _split(parts[1], ","))
    except BondSpecError as bad:
        raise LegacyError(str(bad), "bad bond") from None


def _parts(text: str) -> tuple[str, str, str | None] | None:
    """A net, what stands in its parentheses, its CPTs; None: it has another form."""
    text = text.strip()
    net = _NET.match(text)
    if net is None:
        return None
    inside, rest = "", text[net.end() :].lstrip()
    if rest.startswith("("):
        end = rest.rfind(")")
        if end < 0:
            return None
        inside, rest = rest[1:end], rest[end + 1 :].lstrip()
    if rest and not _CPTS.match(rest):
        return None
    return net[0], inside, rest or None


def _spec(text: str, tunables: Tunables) -> tuple[str, list[str], Tunables, str | None]:
    """`tcp0(eth0[0,1], eth1, credits=256)[0-3]`: net, interfaces, tunables, CPTs."""
    parts = _parts(text)
    if parts is None:
        raise LegacyError(f"{shown(text.strip())} is no net with interfaces: write tcp0 or tcp0(eth0,eth1)")
    net, inside, cpts = parts
    try:
        Net.parse(net)
    except NidError as bad:
        raise LegacyError(str(bad), "bad net") from None
    interfaces: list[str] = []
    options: Tunables = {}
    for part in _split(inside, ","):
        option = _OPTION.match(part)
        if option is None:
            interfaces.append(_interface(part, net))
        else:
            options[option[1]] = _option(option[1], part[option.end() :].strip(), net)
    return net, interfaces, {**tunables, **options}, cpts


def _interface(text: str, net: str) -> str:
    try:
        return str(InterfacePattern.parse(text))
    except NidError as bad:
        raise LegacyError(f"net {net}: {bad}", "bad interface") from None


def _option(name: str, value: str, net: str) -> int:
    if name not in TUNABLES:
        known = ", ".join(sorted(TUNABLES))
        raise LegacyError(f"net {net}: no option is called {name!r}: known are {known}", "bad option")
    if not re.fullmatch(r"-?[0-9]{1,9}", value):
        text = f"net {net}: {name}={value} is not a number: write digits, such as {name}=8"
        raise LegacyError(text, "bad option")
    return int(value)


def _range(text: str) -> None:
    try:
        AddressPattern.parse(text)
    except NidError as bad:
        raise LegacyError(f"{bad}", "bad pattern") from None
