"""Bonding NIs in configuration files: a local NI with `slaves`, and what it is to be like under `bond`."""

from __future__ import annotations

from typing import Any

from ulnet.dlc.model_bond import BondAdd, BondOptions
from ulnet.dlc.schema import Schema
from ulnet.dlc.yaml_in import MapNode, Node, ScalarNode
from ulnet.nid.expr import split_list

__all__ = ["BOND_KEYS", "bond_item", "read_bond"]

BOND_KEYS = ("slaves", "bond")
_OPTIONS = ("mode", "policy", "failback", "weights", "keepalive", "bds")
_STATE = (
    *("active", "slave_status", "server_status", "incarnation", "failovers"),
    *("keepalives", "lookups", "registered", "lookups_served"),
)


def read_bond(
    schema: Schema, net: str, slaves: list[str], fields: dict[str, Node], item: MapNode
) -> BondAdd | None:
    """The request for a bonding NI; None, and errors are noted, if something is wrong."""
    mark = schema.mark()
    if not slaves:
        schema.refuse(
            item.line, f"an NI of net {net} has no 'slaves': name local NIs, such as '0: \"*@tcp\"'"
        )
    given = schema.fields(fields["bond"], "bond", _OPTIONS, _STATE) if "bond" in fields else {}
    weights = _weights(schema, given, item)
    options = BondOptions(
        mode=schema.text(given, "mode", item),
        policy=schema.text(given, "policy", item),
        failback=schema.text(given, "failback", item),
        weights=weights,
        servers=_servers(schema, given.get("bds")),
        keepalive=_seconds(schema, given.get("keepalive")),
    )
    return BondAdd(net, slaves, options) if schema.good(mark) else None


def _weights(schema: Schema, given: dict[str, Node], item: MapNode) -> list[int] | None:
    text = schema.text(given, "weights", item)
    if text is None:
        return None
    words = split_list(text)
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        schema.refuse(given["weights"].line, f"weights '{text}': write numbers apart by commas, such as 3,1")
        return None
    return [int(word) for word in words]


def _servers(schema: Schema, node: Node | None) -> list[str] | None:
    if node is None:
        return None
    if not isinstance(node, MapNode):
        schema.refuse(node.line, "'bds' holds numbered NIDs, such as '0: 10.0.0.9@tcp' on a line of its own")
        return None
    return [value.text for _, value in node.items if isinstance(value, ScalarNode)]


def _seconds(schema: Schema, node: Node | None) -> float | None:
    if node is None:
        return None
    if isinstance(node, ScalarNode):
        try:
            return float(node.text)
        except ValueError:
            pass
    schema.refuse(node.line, "'keepalive' is a number of seconds, such as 2.0")
    return None


def bond_item(request: BondAdd) -> dict[str, Any]:
    """The other way round: a local NI as it is written in a file."""
    options = request.options
    given: dict[str, Any] = {
        "mode": options.mode,
        "policy": options.policy,
        "failback": options.failback,
        "weights": ",".join(map(str, options.weights)) if options.weights is not None else None,
        "keepalive": options.keepalive,
        "bds": dict(enumerate(options.servers)) if options.servers else None,
    }
    bond = {name: value for name, value in given.items() if value is not None}
    return {"slaves": dict(enumerate(request.slaves)), **({"bond": bond} if bond else {})}
