"""A client with types, as Python text, from what a service tells of its methods (`ulnet.types`).

What a service tells is not trusted: its texts come into the program as literals, or as names that are made
of them.
"""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any, Final

import msgspec

from ulnet.rpc.schema import BYTES, UNKNOWN

__all__ = ["Told", "generate"]

_DEEPEST: Final = 32
_MOST: Final = 20_000  # parts of types: those that name one another could double at each step
_NO_FIELD: Final = re.compile(r'[\\"\x00-\x1f]')  # what msgspec has in the name of no field
_SIMPLE: Final = {"null": "None", "boolean": "bool", "integer": "int", "number": "float", "string": "str"}
_FORMATS: Final = {
    "date-time": "datetime.datetime",
    "date": "datetime.date",
    "time": "datetime.time",
    "duration": "datetime.timedelta",
    "uuid": "uuid.UUID",
    "decimal": "decimal.Decimal",
}
_TYPES: Final = (
    "bool",
    "bytearray",
    "bytes",
    "dict",
    "float",
    "int",
    "list",
    "memoryview",
    "set",
    "str",
    "tuple",
)
_TAKEN: Final = ("Any", "Answer", "AsyncIterator", "Client", "Iterator", "Literal", "Memory", "SERVICE")


class Method(msgspec.Struct):
    """What a service tells of one method."""

    name: str
    kind: str
    takes: dict[str, Any] | str | None
    gives: dict[str, Any] | str


class Told(msgspec.Struct):
    """What a service tells."""

    service: str
    methods: list[Method]
    defs: dict[str, dict[str, Any]] = msgspec.field(name="$defs", default_factory=dict)


def generate(told: Told, *, sync: bool = False) -> str:
    """The program's text. `sync`: for `ulnet.sync`."""
    return _Program(told, sync).text()


class _Program:
    def __init__(self, told: Told, sync: bool) -> None:
        self._told = told
        self._sync = sync
        self._names = {*_TAKEN, *dir(builtins), "datetime", "decimal", "uuid", "msgspec"}
        self._class = self._name(_camel(told.service) + "Client", self._names)
        self._classes = {
            name: self._name(_camel(name), self._names)
            for name, schema in told.defs.items()
            if _has_fields(schema.get("properties"))
        }
        self._inner = {*_TYPES, *_TAKEN, *self._classes.values()}  # what would hide types in a class
        self._left = _MOST
        self._modules: set[str] = set()
        self._typing: set[str] = set()

    @staticmethod
    def _name(wanted: str, taken: set[str]) -> str:
        """A name that is not taken yet; now it is."""
        base = re.sub(r"[^0-9A-Za-z_]", "_", wanted).strip("_") or "unnamed"
        base = base if base[0].isalpha() else f"n{base}"
        name, number = base, 2
        while name in taken or keyword.iskeyword(name):
            name, number = (f"{base}_", 2) if name == base else (f"{base}_{number}", number + 1)
        taken.add(name)
        return name

    def text(self) -> str:
        types = [self._struct(name, self._told.defs[name]) for name in self._classes]
        methods = self._methods()
        iterator = "Iterator" if self._sync else "AsyncIterator"
        streams = any(method.kind == "stream" for method in self._told.methods)
        answer = "Answer, " if any("Answer" in line for one in methods for line in one) else ""
        lines = [
            '"""A client of a service, by `ulnet rpc client`: generate it anew rather than change it."""',
            "",
            "from __future__ import annotations",
            "",
            *(f"import {module}" for module in sorted(self._modules)),
            *([f"from collections.abc import {iterator}"] if streams else []),
            *([f"from typing import {', '.join(sorted(self._typing))}"] if self._typing else []),
            *(["", "import msgspec"] if types else []),
            "",
            f"from ulnet.{'sync' if self._sync else 'rpc'} import {answer}Client",
            "",
            f"SERVICE = {self._told.service!r}",
            "Memory = bytes | bytearray | memoryview",
            *(line for one in types for line in ["", "", *one]),
            "",
            "",
            f"class {self._class}:",
            f'    """Calls the service: `{self._class}(Client(node, nid, SERVICE))`."""',
            "",
            "    def __init__(self, client: Client) -> None:",
            "        self.client = client",
            *(line for one in methods for line in ["", *(f"    {text}" for text in one)]),
        ]
        return "\n".join(lines) + "\n"

    # Types -----------------------------------------------------------------------------------------

    def _struct(self, name: str, schema: dict[str, Any]) -> list[str]:
        fields: dict[str, Any] = schema["properties"]
        required = schema.get("required") or []
        options = "kw_only=True"
        first = next(iter(fields), None)
        if first is not None and first in required and (tag := _tag(fields[first])) is not None:
            options += f", tag_field={first!r}, tag={tag!r}"
            fields = {field: one for field, one in fields.items() if field != first}
        lines = [f"class {self._classes[name]}(msgspec.Struct, {options}):"]
        taken = set(self._inner)
        for field, one in fields.items():
            lines.append(f"    {self._field(field, one, field in required, taken)}")
        return lines if fields else [*lines, "    pass"]

    def _field(self, field: str, schema: Any, required: bool, taken: set[str]) -> str:
        name = self._name(field, taken)
        kind = self._type(schema)
        options = [] if name == field else [f"name={field!r}"]
        if not required:
            default = schema.get("default", msgspec.UNSET) if isinstance(schema, dict) else msgspec.UNSET
            if default is None or (
                isinstance(default, bool | int | float | str) and kind in _SIMPLE.values()
            ):
                options.append(f"default={default!r}")
            else:
                kind += " | msgspec.UnsetType"
                options.append("default=msgspec.UNSET")
        return f"{name}: {kind}" + (f" = msgspec.field({', '.join(options)})" if options else "")

    def _type(self, schema: Any, depth: int = 0) -> str:
        """A JSON Schema as a type. What is not understood is Any."""
        self._left -= 1
        if not isinstance(schema, dict) or depth > _DEEPEST or self._left < 0:
            return self._any()
        reference = schema.get("$ref")
        if isinstance(reference, str):
            name = reference.rsplit("/", 1)[-1]
            if name in self._classes:
                return self._classes[name]
            return self._type(self._told.defs.get(name), depth + 1)
        if isinstance(choices := schema.get("anyOf"), list) and choices:
            kinds = [self._type(one, depth + 1) for one in choices]
            return " | ".join(dict.fromkeys(kinds))
        if isinstance(values := schema.get("enum"), list) and values:
            if not all(value is None or isinstance(value, bool | int | str) for value in values):
                return self._any()
            self._typing.add("Literal")
            return f"Literal[{', '.join(map(repr, values))}]"
        kind = schema.get("type")
        if kind == "array":
            return self._array(schema, depth)
        if kind == "object":
            inner = self._type(schema.get("additionalProperties"), depth + 1)
            return f"dict[{self._any()}, {inner}]"  # in msgpack keys may be numbers
        if kind == "string":
            if schema.get("contentEncoding") == "base64":
                return "bytes"
            known = _FORMATS.get(str(schema.get("format")), "str")
            if "." in known:
                self._modules.add(known.split(".")[0])
            return known
        return _SIMPLE.get(str(kind)) or self._any()

    def _array(self, schema: dict[str, Any], depth: int) -> str:
        first = schema.get("prefixItems")
        if isinstance(first, list) and first:
            return f"tuple[{', '.join(self._type(one, depth + 1) for one in first)}]"
        kind = "set" if schema.get("uniqueItems") is True else "list"
        return f"{kind}[{self._type(schema.get('items'), depth + 1)}]"

    def _any(self) -> str:
        self._typing.add("Any")
        return "Any"

    def _of(self, told: dict[str, Any] | str, unknown: str) -> str:
        if isinstance(told, dict):
            return self._type(told)
        return "bytes" if told == BYTES else unknown

    # Methods ---------------------------------------------------------------------------------------

    def _methods(self) -> list[list[str]]:
        taken = {"client", *self._inner}
        made = []
        for method in self._told.methods:
            name = self._name(method.name, taken)
            made.append(self._stream(method, name) if method.kind == "stream" else self._call(method, name))
        return made

    def _takes(self, method: Method) -> str:
        if method.takes is None:
            return "data: Memory | None = None"
        if method.takes == BYTES:
            return "data: Memory"
        kind = self._any() if method.takes == UNKNOWN else self._of(method.takes, "Any")
        return f"data: {kind}"

    def _call(self, method: Method, name: str) -> list[str]:
        gives = self._of(method.gives, "Answer")
        a, w = ("", "") if self._sync else ("async ", "await ")
        if gives == "None":
            end = []
        elif gives == "Answer":
            end = ["    return answer"]
        elif method.gives == BYTES:
            end = ["    return answer.data"]
        else:
            end = [f"    result: {gives} = answer.as_type({gives})", "    return result"]
        return [
            f"{a}def {name}(",
            "    self,",
            f"    {self._takes(method)},",
            "    *,",
            "    into: bytearray | memoryview | None = None,",
            "    bulk: Memory | None = None,",
            "    timeout: float | None = None,",
            "    idempotent: bool = False,",
            "    check: bool = False,",
            f") -> {gives}:",
            f"    {'answer = ' if end else ''}{w}self.client.call(",
            f"        {method.name!r},",
            "        data,",
            "        into=into,",
            "        bulk=bulk,",
            "        timeout=timeout,",
            "        idempotent=idempotent,",
            "        check=check,",
            "    )",
            *end,
        ]

    def _stream(self, method: Method, name: str) -> list[str]:
        gives = self._of(method.gives, "bytes")
        a, iterator = ("", "Iterator") if self._sync else ("async ", "AsyncIterator")
        plain = method.gives in (BYTES, UNKNOWN)
        chunk = (
            ["yield chunk"] if plain else [f"value: {gives} = Answer(chunk).as_type({gives})", "yield value"]
        )
        return [
            f"{a}def {name}(",
            "    self,",
            f"    {self._takes(method)},",
            "    *,",
            "    timeout: float | None = None,",
            f") -> {iterator}[{gives}]:",
            f"    {a}with self.client.stream({method.name!r}, data, timeout=timeout) as chunks:",
            f"        {a}for chunk in chunks:",
            *(f"            {line}" for line in chunk),
        ]


def _has_fields(properties: Any) -> bool:
    """Whether these can be the fields of a Struct."""
    return isinstance(properties, dict) and not any(_NO_FIELD.search(name) for name in properties)


def _tag(schema: Any) -> str | int | None:
    values = schema.get("enum") if isinstance(schema, dict) else None
    if isinstance(values, list) and len(values) == 1 and type(values[0]) in (str, int):
        tag: str | int = values[0]
        return tag
    return None


def _camel(text: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^0-9A-Za-z]+", text))
