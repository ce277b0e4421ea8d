"""The sections `udsp:` and `selection:` of configuration files (spec udsp.md §6, §7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ulnet.dlc.model import SelectionAdd, SelectionDel, UdspAdd
from ulnet.dlc.schema import Schema
from ulnet.dlc.steps import Verb
from ulnet.dlc.yaml_in import MapNode, Node

__all__ = ["read_selection", "read_udsp"]

_UDSP = ("idx", "src", "dst", "rte", "action", "priority", "weight", "seq_no")
_NONE = "NA"  # what 2.15 writes where there is no pattern
_ACTIONS = ("priority", "weight")
_PATTERNS = {"net": ("net",), "nid": ("nid",), "peer": ("local", "remote")}


def read_udsp(schema: Schema, node: Node) -> Iterator[tuple[UdspAdd, MapNode, int | None]]:
    """Rules in their order; one without `idx` comes at the end.

    `priority` and `weight` may stand in `action`, or beside it as in older files.
    """
    for item in schema.items(node, "udsp"):
        fields = schema.fields(item, "a udsp rule", _UDSP, ("effect", "matches", "overridden"))
        action = schema.fields(fields["action"], "action", _ACTIONS) if "action" in fields else {}
        for name in _ACTIONS:
            if name in action and name in fields:
                schema.refuse(item.line, f"'{name}' is given twice, also in 'action': leave one")
        priority, weight = (schema.integer({**fields, **action}, name) for name in _ACTIONS)
        patterns = {name: schema.text(fields, name, item) for name in ("src", "dst", "rte")}
        rule = UdspAdd(
            **{name: text for name, text in patterns.items() if text != _NONE},
            priority=priority,
            weight=weight,
            idx=schema.integer(fields, "idx"),
        )
        yield rule, item, schema.integer(fields, "seq_no")


def read_selection(
    schema: Schema, node: Node, verb: Verb
) -> Iterator[tuple[SelectionAdd | SelectionDel, MapNode, int | None]]:
    """Rules in the documents' form; IDs that a node once gave them are passed over beside a pattern."""
    for item in schema.items(node, "selection"):
        names = ("type", "net", "nid", "local", "remote", "priority", "weight", "side", "seq_no")
        if verb == "del":
            fields = schema.fields(item, "a selection rule", (*names, "id"))
        else:
            fields = schema.fields(item, "a selection rule", names, ("id",))
        kind = schema.text(fields, "type", item, required=True)
        side = schema.text(fields, "side", item) or "both"
        if kind is None:
            continue
        if kind not in _PATTERNS:
            schema.refuse(item.line, f"type '{kind}' of a selection rule is none of net, nid, peer")
            continue
        if side not in ("both", "local", "remote"):
            schema.refuse(item.line, f"side '{side}' of a selection rule is none of local, remote, both")
            continue
        foreign = [
            name
            for name in ("net", "nid", "local", "remote")
            if name in fields and name not in _PATTERNS[kind]
        ]
        if foreign:
            schema.refuse(item.line, f"'{foreign[0]}' has no place in a rule of type {kind}")
            continue
        if verb == "del" and "id" in fields and not any(name in fields for name in _PATTERNS[kind]):
            by_id = SelectionDel(kind=cast(Any, kind), id=schema.integer(fields, "id"))
            yield by_id, item, schema.integer(fields, "seq_no")
            continue
        patterns: dict[str, Any] = {
            name: schema.text(fields, name, item, required=True) for name in _PATTERNS[kind]
        }
        rule = SelectionAdd(
            kind=cast(Any, kind),
            **patterns,
            priority=schema.integer(fields, "priority"),
            weight=schema.integer(fields, "weight"),
            side=cast(Any, side),
        )
        yield rule, item, schema.integer(fields, "seq_no")
