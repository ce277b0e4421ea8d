"""A host's interfaces as a file tells them, where the host itself is not at hand."""

from __future__ import annotations

from ipaddress import ip_interface
from socket import AF_INET, AF_INET6

from ulnet.dlc.schema import Schema
from ulnet.dlc.yaml_in import MapNode, Node, ScalarNode, SeqNode, YamlError, read_sections
from ulnet.host import Address, Link

__all__ = ["FactsError", "read_facts"]


class FactsError(Exception):
    """The file cannot be used: one sentence a line."""


def read_facts(text: str) -> list[Link]:
    """`interfaces: {eth0: 10.0.0.1/24, eth1: [10.1.0.1/24, fd00::1/64], eth2: down}`. Raises FactsError."""
    schema = Schema()
    links = [Link("lo", 1, addresses=(Address("127.0.0.1", 8),), loopback=True)]
    try:
        sections = read_sections(text)
    except YamlError as bad:
        raise FactsError(str(bad)) from None
    for key, node in sections:
        if key.text != "interfaces":
            schema.unknown(key, "a file about a host", ("interfaces",))
        elif isinstance(node, MapNode):
            links += [_link(schema, name, value, at) for at, (name, value) in enumerate(node.items, 2)]
        else:
            schema.refuse(node.line, "'interfaces' holds names with addresses: write 'eth0: 10.0.0.1/24'")
    if schema.errors:
        raise FactsError("\n".join(item.descr for item in schema.errors))
    return links


def _link(schema: Schema, name: ScalarNode, node: Node, index: int) -> Link:
    values = list(node.items) if isinstance(node, SeqNode) else [node]
    addresses: list[Address] = []
    up = True
    for value in values:
        text = value.text if isinstance(value, ScalarNode) else ""
        if text == "down":
            up = False
            continue
        try:
            one = ip_interface(text)
        except ValueError:
            schema.refuse(
                node.line,
                f"{name.text}: {text!r} is no address: write 10.0.0.1/24, or 'down' where it is off",
            )
            continue
        family = AF_INET if one.version == 4 else AF_INET6
        addresses.append(Address(str(one.ip), one.network.prefixlen, family))
    return Link(name.text, index, up=up, addresses=tuple(addresses))
