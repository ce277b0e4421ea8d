"""The section `access:` of configuration files (docs/security.md)."""

from __future__ import annotations

from collections.abc import Iterator

from ulnet.dlc import model
from ulnet.dlc.schema import Schema
from ulnet.dlc.steps import Step, Verb
from ulnet.dlc.yaml_in import Node

__all__ = ["read_access"]

_LISTS = ("allow", "deny")


def read_access(schema: Schema, node: Node, verb: Verb) -> Iterator[Step]:
    """`access:`, two lists of rules. They are one request: half of a list might shut out the wrong ones."""
    mark = schema.mark()
    fields = schema.fields(node, "access", (*_LISTS, "seq_no"))
    allow, deny = (schema.texts(fields, name) for name in _LISTS)
    seq_no = schema.integer(fields, "seq_no")
    if not schema.good(mark):
        return
    if verb == "show":
        yield Step(model.AccessShow(), node.line, seq_no)
    elif allow or deny:
        kind = model.AccessDel if verb == "del" else model.AccessAdd
        yield Step(kind(allow, deny), node.line, seq_no)
