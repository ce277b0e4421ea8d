"""What the methods of a service take and give, as JSON Schema: what `ulnet.types` answers."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import suppress
from inspect import unwrap
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

import msgspec

if TYPE_CHECKING:
    from ulnet.rpc.service import Method

__all__ = ["BYTES", "UNKNOWN", "described", "given"]

BYTES: Final = "bytes"  # as they are, not in msgpack
UNKNOWN: Final = "any"
_PLAIN: Final = (bytes, bytearray, memoryview)
_MANY: Final = (AsyncIterator, AsyncGenerator, AsyncIterable, Iterator, Generator, Iterable)


def given(handler: Callable[..., Any], *, stream: bool) -> Any:
    """The type of what a handler returns, or of what it yields; Any if nothing tells."""
    try:
        hints = get_type_hints(unwrap(handler))
    except Exception:  # names that exist for type checkers only
        return Any
    wanted = hints.get("return", Any)
    if not stream:
        return wanted
    arguments = get_args(wanted)
    return arguments[0] if get_origin(wanted) in _MANY and arguments else Any


def described(methods: list[Method]) -> dict[str, Any]:
    """Of each method what it takes (None: nothing) and gives; and the types that these name.

    A type is a JSON Schema, BYTES or UNKNOWN.
    """
    wanted: list[Any] = []
    for method in methods:
        wanted += [one for one in (method.takes, method.gives) if _has_schema(one) and one not in wanted]
    schemas, components = msgspec.json.schema_components(wanted, ref_template="#/$defs/{name}")

    def schema_of(one: Any) -> Any:
        if one in _PLAIN:
            return BYTES
        return schemas[wanted.index(one)] if one in wanted else UNKNOWN

    told = [
        {
            "name": method.name,
            "kind": method.kind,
            "takes": None if method.takes is None else schema_of(method.takes),
            "gives": schema_of(type(None) if method.gives is None else method.gives),
        }
        for method in methods
    ]
    return {"methods": told, "$defs": components}


def _has_schema(one: Any) -> bool:
    if one is Any or one is None or one in _PLAIN:
        return False
    with suppress(Exception):  # what has no schema is known to msgspec only
        msgspec.json.schema(one)
        return True
    return False
