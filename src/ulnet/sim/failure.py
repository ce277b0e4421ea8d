"""Which failure it is: its sentence without what differs from run to run, so that two can be compared."""

from __future__ import annotations

import re

__all__ = ["kind_of"]

_TAIL = re.compile(r"\. The first that did not:.*", re.DOTALL)
_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|<[^<>]*>")
_NODE = re.compile(r"\bnode \w+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBER = re.compile(r"[^\s#]*\d[^\s#]*")
_LIST = re.compile(r"#(?:[\s,;]*#)+")


def kind_of(failure: str) -> str:
    """The invariant or expectation that a sentence of failure tells of: no numbers, NIDs, names, details."""
    kind, more = _TAIL.sub("", failure), ""
    while kind != more:  # brackets within brackets
        kind, more = _BRACKETS.sub("#", kind), kind
    kind = _NUMBER.sub("#", _QUOTED.sub("#", _NODE.sub("node", kind)))
    return " ".join(_LIST.sub("#", kind).split())
