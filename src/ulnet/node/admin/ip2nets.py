"""ip2nets: address patterns choose among this host's interfaces (Multi-Rail design; spec lnetctl.md §4).

A rule is for this host if some interface has an address in its ranges. An interface that such a rule names,
and whose address does not match, is refused: the rule and the host contradict each other.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Sequence
from socket import AF_INET
from typing import NamedTuple

from ulnet.control.instance import LNet
from ulnet.core.status import LNetError
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import Ip2netsRule, NetAdd, NetDel, NetMatch
from ulnet.dlc.model_bond import BondAdd
from ulnet.dlc.protocol import Answer
from ulnet.host import Address, HostError, Link, first_address, link_named
from ulnet.nid import AddressPattern, InterfacePattern, Net, Nid, NidError
from ulnet.nid.address import parse_ipv4, parse_ipv6
from ulnet.node.admin.bonded_nets import is_to_be_bonded
from ulnet.node.admin.bonds import add_bond
from ulnet.node.admin.draining import drain_and_delete
from ulnet.node.admin.names import NO_MATCH, must_be_few, read_net
from ulnet.node.admin.nets import add_nis, delete_nis
from ulnet.node.admin.state import AdminState

__all__ = ["Chosen", "choose", "match_nets"]

_MOST_RULES = 256
_WITH_CPTS = re.compile(r"(.+?)(\[[^\[\]]*\])\Z")


class Chosen(NamedTuple):
    """An interface that a rule takes, with the address that makes its NID."""

    link: Link
    address: Address
    cpts: str | None


async def match_nets(state: AdminState, request: NetMatch) -> Answer:
    """Add or delete what the rules choose, each all or none; the errors of those that were refused.

    Bonding NIs come after all others, and go before them. Raises LNetError(ERANGE) before the first rule.
    """
    must_be_few(len(request.rules), "rules of ip2nets", _MOST_RULES)
    for rule in request.rules:
        must_be_few(len(rule.interfaces), "interfaces of a rule")
        must_be_few(len(rule.ranges), "ranges of a rule")
    state.tune(request)
    core, host = state.core, state.links()
    errors: list[ErrorItem] = []
    done: dict[Net, set[str]] = {}  # interfaces that earlier rules chose
    matched = False
    for index, rule in sorted(
        enumerate(request.rules), key=lambda one: (one[1].bond is not None) != request.delete
    ):
        await asyncio.sleep(0)  # each rule may add NIs: whatever else this node does comes between them
        try:
            net = read_net(rule.net, errno.EINVAL)
            if request.first_wins and net in done:
                continue
            chosen = choose(rule, host, state.large)
            if not chosen:
                continue
            matched = True
            before = done.setdefault(net, set())
            chosen = [one for one in chosen if one.link.name not in before]
            if not chosen and rule.bond is None:
                continue
            before |= {one.link.name for one in chosen}
            if rule.bond is not None:
                await _bond(state, rule.bond, net, request.delete)
            elif request.delete:
                await _delete(core, net, chosen, state.drain)
            else:
                _add(core, rule, net, chosen, host, state.large)
        except LNetError as refused:
            matched = True
            where = f"rule {index}: " if len(request.rules) > 1 else ""
            entity = "import" if refused.errno == NO_MATCH else request.entity
            verb = "del" if request.delete else request.verb
            errors.append(ErrorItem(verb, entity, -refused.errno, where + refused.text))
    if not matched:
        errors.append(ErrorItem(request.verb, "import", -NO_MATCH, _nothing(request.rules, host)))
    return Answer(errors=errors)


def _nothing(rules: Sequence[Ip2netsRule], host: Sequence[Link]) -> str:
    patterns = ", ".join(one for rule in rules for one in rule.ranges) or "any address"
    has = ", ".join(f"{link.name} {address.ip}" for link in _usable(host) for address in link.addresses)
    return f"no interface of this host matches {patterns}: it has {has or 'none that is up with an address'}"


def _usable(host: Sequence[Link]) -> list[Link]:
    return [link for link in host if link.up and not link.loopback]


def choose(rule: Ip2netsRule, host: Sequence[Link], large: bool = False) -> list[Chosen]:
    """The interfaces that a rule is for, in the host's order; none if it is not for this host.

    An IPv6 range chooses the interface only: its NID is that of its first IPv4 address, unless `large`.
    Raises LNetError: NO_MATCH (no such interface), EINVAL (it has no matching address, no pattern).
    """
    ranges = _ranges(rule)
    matching = {
        link.name: address if large or address.family == AF_INET else first_address(link)
        for link in _usable(host)
        if (address := _matching(link, ranges)) is not None
    }
    if ranges and not matching:
        return []
    if not rule.interfaces:
        return [Chosen(link, matching[link.name], None) for link in host if link.name in matching][
            : None if ranges else 1
        ]
    chosen: dict[str, Chosen] = {}
    for text in rule.interfaces:
        for link, cpts in _named(text, host, matching, ranges, rule):
            chosen.setdefault(link.name, Chosen(link, matching[link.name], cpts))
    return list(chosen.values())


def _ranges(rule: Ip2netsRule) -> list[AddressPattern]:
    try:
        return [AddressPattern.parse(text) for text in rule.ranges]
    except NidError as bad:
        raise LNetError(errno.EINVAL, str(bad)) from None


def _matching(link: Link, ranges: Sequence[AddressPattern]) -> Address | None:
    """The address of a link that is in one of the ranges; without ranges its first."""
    if not ranges:
        try:
            return first_address(link)
        except HostError:
            return None
    for address in link.addresses:
        binary = parse_ipv6(address.ip) if ":" in address.ip else parse_ipv4(address.ip)
        if address.usable and binary is not None and any(one.match(binary) for one in ranges):
            return address
    return None


def _named(
    text: str,
    host: Sequence[Link],
    matching: dict[str, Address],
    ranges: Sequence[AddressPattern],
    rule: Ip2netsRule,
) -> list[tuple[Link, str | None]]:
    """The links that one name or pattern of a rule means, with their CPTs.

    `eth0[0-1]` are CPTs of eth0 where the host has an eth0, else eth0 to eth1 without the first 0.
    """
    names = {link.name: link for link in host}
    bare = _WITH_CPTS.match(text)
    cpts = None
    if text not in names and bare is not None and (bare[1] in names or "[" in bare[1] or ":" in bare[1]):
        text, cpts = bare[1], bare[2]
    if text in names:
        if text not in matching:
            raise LNetError(errno.EINVAL, _contradiction(names[text], rule))
        return [(names[text], cpts)]
    if labelled := _labelled(text, host):
        address = _matching(labelled, ranges)
        if address is None or not labelled.up:
            raise LNetError(errno.EINVAL, _contradiction(labelled, rule))
        matching[labelled.name] = address
        return [(labelled, cpts)]
    try:
        pattern = InterfacePattern.parse(text)
    except NidError as bad:
        raise LNetError(errno.EINVAL, str(bad)) from None
    meant = [link for link in host if pattern.match(link.name)]
    if not meant:
        has = ", ".join(names) or "none"
        raise LNetError(NO_MATCH, f"no interface matches {text!r}: this host has {has}")
    found = [(link, cpts) for link in meant if link.name in matching]
    if not found:
        raise LNetError(errno.EINVAL, _contradiction(meant[0], rule))
    return found


def _labelled(name: str, host: Sequence[Link]) -> Link | None:
    """The link of an address label, such as eth0:1, with its addresses only."""
    try:
        return link_named(name, host) if ":" in name else None
    except HostError:
        return None


def _contradiction(link: Link, rule: Ip2netsRule) -> str:
    has = ", ".join(address.ip for address in link.addresses) or "no address"
    if not link.up:
        has += ", and is down"
    return (
        f"interface {link.name} has {has}: that does not match {', '.join(rule.ranges) or 'any'} of the rule "
        f"for net {rule.net}; name another interface or pattern"
    )


def _add(
    core: LNet, rule: Ip2netsRule, net: Net, chosen: Sequence[Chosen], host: Sequence[Link], large: bool
) -> None:
    added: list[str] = []
    if is_to_be_bonded(core, NetAdd(), net, len(chosen)):
        names = [one.link.name + (one.cpts or "") for one in chosen]
        prefer = str(Nid.of(net, chosen[0].address.ip))
        request = NetAdd(str(net), names, prefer=prefer, tunables=rule.tunables, cpts=rule.cpts)
        add_nis(core, request, host, large)
        return
    try:
        for one in chosen:
            nid = str(Nid.of(net, one.address.ip))
            request = NetAdd(
                net=str(net),
                interfaces=[one.link.name + (one.cpts or "")],
                prefer=nid,
                tunables=rule.tunables,
                cpts=rule.cpts,
            )
            add_nis(core, request, host, large)
            added.append(nid)
    except (LNetError, HostError) as refused:
        for nid in reversed(added):
            delete_nis(core, NetDel(nids=[nid]))
        raise LNetError(refused.errno, refused.text) from refused


async def _bond(state: AdminState, bond: BondAdd, net: Net, delete: bool) -> None:
    if delete:
        await drain_and_delete(state.core, NetDel(net=str(net)), state.drain)
    else:
        add_bond(state.core, state.bonds, bond)


async def _delete(core: LNet, net: Net, chosen: Sequence[Chosen], drain: float) -> None:
    """The NIs of the net that are on the chosen interfaces."""
    names = {one.link.name for one in chosen}
    local = core.nets.get(net)
    nids = [str(ni.nid) for ni in local.nis if ni.interface in names] if local is not None else []
    if not nids:
        raise LNetError(
            errno.ENOENT, f"net {net} has no NI on {', '.join(sorted(names))}: see 'lnetctl net show'"
        )
    await drain_and_delete(core, NetDel(nids=nids), drain)
