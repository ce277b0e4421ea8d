"""YAML as today's lnetctl lays it out (spec lnetctl.md §3, §5).

The real tool has three producers with three layouts; which section comes from which is fixed here,
so that its users' eyes and `diff`s find what they know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ulnet.dlc.errors import ErrorItem

__all__ = ["LIBRARY", "NETLINK", "PING", "Layout", "emit", "emit_document", "emit_errors", "layout_of"]


class Layout(NamedTuple):
    """Columns of one producer, and how it writes a `descr`."""

    step: int  # a mapping inside a mapping
    sequence: int  # a dash below its key
    dash: int  # from a dash to what it marks
    tag: str  # before a description
    quote: str


NETLINK = Layout(step=6, sequence=0, dash=6, tag="! ", quote='"')
PING = Layout(step=2, sequence=0, dash=2, tag="! ", quote="'")
LIBRARY = Layout(step=4, sequence=4, dash=2, tag="", quote='"')

_NETLINK_SECTIONS = frozenset({"net", "peer", "peer list", "route", "Local NI recovery", "Peer NI recovery"})
_PING_SECTIONS = frozenset({"ping", "discover", "manage", "cpt-of-nid"})
_NETLINK_ERRORS = frozenset({"net", "peer", "route", "ping", "discover", "import"})

_PLAIN = r"(?:[\w./(<]|[:-](?=[\w.:]))(?:[\w./()<>@\[\]{},;+=*%&!?|~^$'-]|:(?=\S)| (?=[^\s#]))*\Z"
# Plain text that YAML 1.1 or 1.2 reads as something else than text.
_NOT_TEXT = (
    r"(?i:<<|null|true|false|yes|no|on|off|y|n|\.inf|\.nan|[-+]\.inf"
    r"|-?(?:0x[\da-f_]+|0b[01_]+|0o[0-7_]+|[\d.][\d_.,]*(?:e[-+]?\d+)?)"
    r"|-?\d[\d_]*(?::[\d.]+)+|\d{4}-\d\d?-\d\d?.*)\Z"
)
# Most text needs neither pattern, and to compile them takes longer than all else here.
_SIMPLE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./@()")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def layout_of(section: str) -> Layout:
    """How the real tool lays out a top-level section."""
    if section in _NETLINK_SECTIONS:
        return NETLINK
    return PING if section in _PING_SECTIONS else LIBRARY


def emit_document(document: Mapping[str, Any]) -> str:
    """All sections, each in its own layout; empty ones are left out, as the real tool does."""
    return "".join(
        emit({section: value}, layout_of(section))
        for section, value in document.items()
        if value not in ([], {})
    )


def emit(value: Mapping[str, Any], layout: Layout) -> str:
    """Mappings, sequences, str, int, bool and None as block YAML in that layout, keys in their order."""
    lines: list[str] = []
    _mapping(lines, value, "", "", layout)
    return "".join(lines)


def _mapping(lines: list[str], value: Mapping[str, Any], first: str, indent: str, layout: Layout) -> None:
    """`first` stands before the first key (a dash), `indent` before the others."""
    before = first or indent
    for key, item in value.items():
        head = f"{before}{_key(key)}:"
        before = indent
        if type(item) is int:  # most are
            lines.append(f"{head} {item}\n")
        elif isinstance(item, dict) and item:
            lines.append(f"{head}\n")
            _mapping(lines, item, "", indent + " " * layout.step, layout)
        elif isinstance(item, (list, tuple)) and item:
            lines.append(f"{head}\n")
            _sequence(lines, item, indent + " " * layout.sequence, layout)
        elif item is None:
            lines.append(f"{head}\n")
        elif key == "descr" and isinstance(item, str):
            lines.append(f"{head} {layout.tag}{_quoted(item, layout.quote)}\n")
        else:
            lines.append(f"{head} {_scalar(item)}\n")


def _sequence(lines: list[str], items: Iterable[Any], indent: str, layout: Layout) -> None:
    dash = f"{indent}-".ljust(len(indent) + layout.dash)
    inner = " " * len(dash)
    for item in items:
        if isinstance(item, dict) and item:
            _mapping(lines, item, dash, inner, layout)
        else:
            lines.append(f"{dash}{_scalar(item)}\n")


@lru_cache(maxsize=1024, typed=True)
def _key(key: object) -> str:
    text = str(key)
    if text.isascii() and text.isdigit() and (text[0] != "0" or text == "0"):
        return text  # of `interfaces`: JSON has made it text
    return _scalar(text)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    text = str(value)
    return text if _is_plain(text) else _quoted(text, '"')


def _is_plain(text: str) -> bool:
    """Whether text needs no quotes."""
    first = text[:1]
    if first == "[":
        return False
    if _SIMPLE.issuperset(text.replace(" ", "_")):
        if first.isalpha():
            if " " not in text:
                return text.lower() not in _WORDS
            if "  " not in text and text[-1] != " ":
                return True
        elif first.isdigit() and "@" in text and " " not in text:
            return True
    return re.match(_PLAIN, text) is not None and not re.match(_NOT_TEXT, text)


def _quoted(text: str, quote: str) -> str:
    if quote == "'" and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    number = ord(char)
    if number < 0x100:
        return f"\\x{number:02X}"
    return f"\\u{number:04X}" if number < 0x10000 else f"\\U{number:08X}"


def emit_errors(items: Iterable[ErrorItem]) -> str:
    """Errors in the form of the producer that prints them today."""
    text = ""
    library: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        if item.entity in _NETLINK_ERRORS and item.verb != "debug":
            text += _flush(library)
            fields = {item.entity: None, **_fields(item)}
            text += f"---\n{emit({item.verb: [fields]}, NETLINK)}...\n"
        else:
            library.setdefault(item.verb, []).append({item.entity: _fields(item)})
    return text + _flush(library)


def _flush(library: dict[str, list[dict[str, Any]]]) -> str:
    text = emit(library, LIBRARY)
    library.clear()
    return text


def _fields(item: ErrorItem) -> dict[str, Any]:
    numbered = {} if item.seq_no is None else {"seq_no": item.seq_no}
    return {**numbered, "errno": item.errno, "descr": item.descr}
