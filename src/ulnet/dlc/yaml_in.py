"""YAML files as nodes that know their lines (spec lnetctl.md §4).

Read from the parser's events: so that a section may occur twice, errors can name a line, nothing grows
without bound, and `on`, `010` and `12:30` mean what they look like (text, ten, text).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

__all__ = ["MapNode", "Node", "ScalarNode", "SeqNode", "Value", "YamlError", "read_sections"]

Value = str | int | bool | None

_INTEGER = re.compile(r"[-+]?(?:[0-9]{1,18}|0[xX][0-9a-fA-F]{1,15})\Z")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_STRING_TAG = "tag:yaml.org,2002:str"
_DEEPEST = 16
_TOO_DEEP = f"nested deeper than {_DEEPEST} levels"
_LONGEST = 1 << 24  # characters
_MOST = 250_000  # events: each becomes a value of a few hundred bytes
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(Exception):
    """The text is not YAML that can be read here: names the line; 0 is the whole of it."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {text}" if line else text)
        self.line = line


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """One value."""

    value: Value
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class SeqNode:
    """A sequence."""

    items: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True)
class MapNode:
    """A mapping, in its order, repeated keys included."""

    items: tuple[tuple[ScalarNode, Node], ...]
    line: int


Node = ScalarNode | SeqNode | MapNode


def read_sections(text: str) -> list[tuple[ScalarNode, Node]]:
    """The top-level keys of all documents with what stands under them. Raises YamlError."""
    if len(text) > _LONGEST:
        raise YamlError(f"the file has {len(text)} characters, {_LONGEST} are allowed: split it")
    sections: list[tuple[ScalarNode, Node]] = []
    try:
        events = _bounded(yaml.parse(text, Loader=_LOADER))
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                node = _read(next(events), events, 0)
                if isinstance(node, MapNode):
                    sections += node.items
                elif not (isinstance(node, ScalarNode) and node.value is None):
                    raise YamlError(_no_sections(node), node.line)
    except yaml.YAMLError as bad:
        raise _not_yaml(bad, text) from None
    except UnicodeEncodeError as bad:  # bytes that Python took in as they were
        line = text.count("\n", 0, bad.start) + 1
        byte = ord(text[bad.start]) & 0xFF
        raise YamlError(f"this is not UTF-8 text: byte 0x{byte:02x}", line) from None
    return sections


def _bounded(events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    for number, event in enumerate(events):
        if number >= _MOST:
            line = event.start_mark.line + 1 if event.start_mark is not None else 0
            raise YamlError(f"the file has more than {_MOST} values: split it before that line", line)
        yield event


def _no_sections(node: Node) -> str:
    if isinstance(node, ScalarNode) and node.text.startswith("options "):
        return "these are module parameters: make YAML of them with `ulnet convert`"
    return "a file holds sections such as 'net:', one below another"


def _read(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Node:
    line = event.start_mark.line + 1 if event.start_mark is not None else 0
    if depth > _DEEPEST:
        raise YamlError(_TOO_DEEP, line)
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event, line)
    if isinstance(event, yaml.SequenceStartEvent):
        _check_tag(event, line)
        items = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_read(event, events, depth + 1))
        return SeqNode(tuple(items), line)
    if isinstance(event, yaml.MappingStartEvent):
        _check_tag(event, line)
        return MapNode(tuple(_pairs(events, depth)), line)
    raise YamlError("aliases (*name) are not supported here: write the value out", line)


def _pairs(events: Iterator[yaml.Event], depth: int) -> Iterator[tuple[ScalarNode, Node]]:
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _read(event, events, depth + 1)
        if not isinstance(key, ScalarNode):
            raise YamlError("a key must be a word, not a list or a mapping", key.line)
        yield key, _read(next(events), events, depth + 1)


def _check_tag(event: yaml.CollectionStartEvent, line: int) -> None:
    if event.tag not in (None, "!"):
        raise YamlError(f"tags such as {event.tag} are not supported here: leave them out", line)


def _scalar(event: yaml.ScalarEvent, line: int) -> ScalarNode:
    text: str = event.value
    if event.tag is not None and event.tag not in ("!", _STRING_TAG):
        raise YamlError(f"tags such as {event.tag} are not supported here: leave them out", line)
    plain = event.tag is None and event.implicit[0]
    return ScalarNode(_plain_value(text) if plain else text, text, line)


def _plain_value(text: str) -> Value:
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.match(text):
        return int(text, 16 if "x" in text.lower() else 10)
    return text


def _not_yaml(bad: yaml.YAMLError, text: str) -> YamlError:
    if isinstance(bad, yaml.MarkedYAMLError) and bad.problem_mark is not None:
        line = bad.problem_mark.line + 1
        if bad.problem == "exceeded maximum nesting depth":  # libyaml's, met first where that is less
            return YamlError(_TOO_DEEP, line)
        return YamlError(f"this is not YAML: {bad.problem}", line)
    if isinstance(bad, yaml.reader.ReaderError):
        line = text.count("\n", 0, bad.position) + 1
        return YamlError(f"this is not YAML: character {bad.character!r} is not allowed in a file", line)
    return YamlError(f"this is not YAML: {bad}")
