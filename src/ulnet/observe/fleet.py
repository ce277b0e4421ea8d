"""Many nodes by name, from a file: who they are, and how each is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ulnet.observe.reading import read_text
from ulnet.observe.source import FileSource, SocketSource, Source
from ulnet.observe.tool import ToolSource

__all__ = ["FleetError", "read_fleet"]

_MOST: Final = 4096
_WAYS: Final = ("tool", "socket", "file")


class FleetError(Exception):
    """The file names no nodes, or one that cannot be asked, and why."""


def read_fleet(text: str) -> list[tuple[str, Source]]:
    """`nodes:` with names; beneath each `tool: COMMAND`, `socket: PATH` or `file: FILE`. Raises FleetError.

    A name with a text alone is a tool: `oss1: ssh oss1 lnetctl`.
    """
    try:
        document = read_text(text.encode())
    except ValueError as bad:
        raise FleetError(str(bad)) from None
    nodes = document.get("nodes")
    if not isinstance(nodes, Mapping) or not nodes:
        raise FleetError("it names no nodes: write 'nodes:', and beneath '  oss1: ssh oss1 lnetctl'")
    if len(nodes) > _MOST:
        raise FleetError(f"it names {len(nodes)} nodes; {_MOST} at most are watched")
    return list(_sources(nodes))


def _sources(nodes: Mapping[Any, Any]) -> Iterator[tuple[str, Source]]:
    for name, way in nodes.items():
        given = {"tool": way} if isinstance(way, str) else way
        if not isinstance(given, Mapping) or len(given) != 1 or next(iter(given)) not in _WAYS:
            raise FleetError(f"node {name}: how is it asked? One of tool: COMMAND, socket: PATH, file: FILE")
        ((how, what),) = given.items()
        if not isinstance(what, str) or not what.strip():
            raise FleetError(f"node {name}: '{how}' is a text, such as 'ssh {name} lnetctl'")
        try:
            yield str(name), _source(how, what)
        except ValueError as bad:
            raise FleetError(f"node {name}: {bad}") from None


def _source(how: str, what: str) -> Source:
    if how == "socket":
        return SocketSource(what)
    return FileSource(what) if how == "file" else ToolSource(what)
