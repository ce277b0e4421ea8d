"""What `lnetctl` prints, as documents: YAML, and quickly where it is as plain as the tool writes it.

A node of a thousand peers prints more than 100000 lines, which take a general YAML parser seconds.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

__all__ = ["MAX_TEXT", "read_text"]

MAX_TEXT: Final = 64 << 20  # bytes of what a tool prints, or of a file
_MOST_KNOWN: Final = 1 << 16  # lines that are kept: most are printed again and again
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HEAD: Final = re.compile(r"( *)(- +)?(0|[1-9]\d{0,8}|[A-Za-z](?:[\w ()\[\]./-]{0,99}[\w)\]])?)", re.ASCII)
_INT: Final = re.compile(r"-?(?:0|[1-9]\d{0,17})", re.ASCII)
_NID: Final = re.compile(r"[0-9a-f.:]+@[a-z]+\d*", re.ASCII)
_WORD: Final = re.compile(r'[\w./][\w./@: -]*|"[\w./@:\[\],+ -]*"', re.ASCII)

_Head = tuple[int, int, Any]  # columns of a dash (-1: none) and of the key behind it; the key


class _NotPlainError(Exception):
    """A general parser must read it."""


def read_text(text: bytes) -> dict[str, Any]:
    """YAML as `lnetctl` prints it; {} of nothing. Raises ValueError, with what is wrong and where."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"longer than {MAX_TEXT} bytes")
    try:
        return _plain(text.decode("ascii"))
    except (_NotPlainError, UnicodeDecodeError):
        pass
    try:
        if b"&" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, _LOADER)):
            raise ValueError("aliases (*name) are not read: write the values out")  # they may be gigabytes
        document = yaml.load(text, _LOADER)
    except yaml.MarkedYAMLError as bad:
        where = f" in line {bad.problem_mark.line + 1}" if bad.problem_mark is not None else ""
        raise ValueError(f"no YAML{where}: {bad.problem or 'it cannot be read'}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as bad:
        raise ValueError(f"no YAML: {str(bad).splitlines()[0]}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError("no mapping at its top, as lnetctl prints")
    return document


def _plain(text: str) -> dict[Any, Any]:
    """Mappings, and lists of them, in block style, of words whose meaning is plain. Raises _NotPlainError."""
    top: dict[Any, Any] = {}
    inner: Any = top
    column = 0
    stack: list[tuple[int, Any]] = [(0, top)]  # what is open: columns, mappings and lists
    holder: tuple[int, dict[Any, Any], Any] | None = None  # a key that has no value so far
    known: dict[str, tuple[int, int, Any, Any]] = {}  # lines
    heads: dict[str, _Head] = {}
    for line in text.split("\n"):
        found = known.get(line)
        if found is None:
            if not line:
                continue
            found = _line(line, heads)
            if len(known) < _MOST_KNOWN:
                known[line] = found
        dash, at, key, value = found
        if at != column or dash >= 0 or holder is not None:
            kind: Any = dict if dash < 0 else list
            here = at if dash < 0 else dash
            if holder is not None and here >= holder[0] + (dash < 0):  # this is its value
                stack.append((here, kind()))
                holder[1][holder[2]] = stack[-1][1]
            holder = None
            column, inner = stack[-1]
            while column > here or (column == here and type(inner) is not kind):
                stack.pop()
                if not stack:
                    raise _NotPlainError
                column, inner = stack[-1]
            if column != here or type(inner) is not kind:
                raise _NotPlainError
            if dash >= 0:
                item: dict[Any, Any] = {}
                inner.append(item)
                stack.append((at, item))
                column, inner = at, item
        inner[key] = value
        if value is None:
            holder = (at, inner, key)
    return top


def _line(line: str, heads: dict[str, _Head]) -> tuple[int, int, Any, Any]:
    """Its head, and its value (None: there is none). Raises _NotPlainError."""
    head, colon, word = line.partition(": ")
    if colon and head.endswith(":"):
        raise _NotPlainError
    known = heads.get(head)
    if known is None:
        known = heads[head] = _head(head if colon else head.rstrip(" "), bool(colon))
    if word.isdecimal() and word[0] != "0" and len(word) < 19:
        return *known, int(word)
    word = word.strip(" ")
    return *known, _value(word) if word else None


def _head(text: str, has_value: bool) -> _Head:
    if not has_value:
        if not text.endswith(":"):
            raise _NotPlainError
        text = text[:-1]
    match = _HEAD.fullmatch(text)
    if match is None:
        raise _NotPlainError
    before, dash, key = match.groups()
    name = key if key.endswith((")", "]")) else _value(key)  # local NI(s), cpt[0]
    return (len(before) if dash else -1), len(before) + len(dash or ""), name


def _value(word: str) -> Any:
    """A number, or a word, as YAML takes it; never None. Raises _NotPlainError."""
    if _INT.fullmatch(word):
        return int(word)
    if _NID.fullmatch(word):
        return word
    if _WORD.fullmatch(word):
        try:
            found = yaml.load(word, _LOADER)
        except (yaml.YAMLError, ValueError):
            raise _NotPlainError from None
        if isinstance(found, str | int | float):
            return found
    raise _NotPlainError
