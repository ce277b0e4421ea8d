"""Many nodes by name, from a file: who they are, how each is asked, and what all of them show at one time."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ulnet.observe.live import Live, Rates
from ulnet.observe.reading import read_text
from ulnet.observe.snapshot import Snapshot
from ulnet.observe.source import FileSource, SocketSource, Source
from ulnet.observe.tool import ToolError, ToolSource

__all__ = ["FleetError", "FleetNode", "Member", "Poll", "read_fleet"]

_MOST: Final = 4096
_MOST_THREADS: Final = 64
_WAYS: Final = ("tool", "socket", "file")


class FleetError(Exception):
    """The file names no nodes, or one that cannot be asked, and why."""


class FleetNode(NamedTuple):
    """A node: `host` is what leads to its host, before a command; None where nothing does."""

    name: str
    source: Source
    host: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """What a node showed; rates of its NIs by NID, MTUs of its host's interfaces by name, where known."""

    name: str
    snapshot: Snapshot
    rates: Mapping[str, Rates] = field(default_factory=dict)
    mtus: Mapping[str, int] = field(default_factory=dict)


def read_fleet(text: str) -> list[FleetNode]:
    """`nodes:` with names; beneath each `tool: COMMAND`, `socket: PATH` or `file: FILE`. Raises FleetError.

    A name with a text alone is a tool: `oss1: ssh oss1 lnetctl`. `host: COMMAND` leads to the node's host;
    of a tool that ends in lnetctl it is what stands before.
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
    return list(_nodes(nodes))


def _nodes(nodes: Mapping[Any, Any]) -> Iterator[FleetNode]:
    for name, way in nodes.items():
        given = {"tool": way} if isinstance(way, str) else way
        hows = [key for key in given if key != "host"] if isinstance(given, Mapping) else []
        if len(hows) != 1 or hows[0] not in _WAYS:
            raise FleetError(f"node {name}: how is it asked? One of tool: COMMAND, socket: PATH, file: FILE")
        for key, what in given.items():
            if not isinstance(what, str) or (key != "host" and not what.strip()):
                raise FleetError(f"node {name}: '{key}' is a text, such as 'ssh {name} lnetctl'")
        try:
            yield FleetNode(str(name), _source(hows[0], given[hows[0]]), _host(given))
        except ValueError as bad:
            raise FleetError(f"node {name}: {bad}") from None


def _source(how: str, what: str) -> Source:
    if how == "socket":
        return SocketSource(what)
    return FileSource(what) if how == "file" else ToolSource(what)


def _host(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Raises ValueError."""
    if "host" in given:
        return tuple(shlex.split(given["host"]))
    words = shlex.split(given.get("tool", ""))
    return tuple(words[:-1]) if words and words[-1].rpartition("/")[2] == "lnetctl" else None


class Poll:
    """Asks all nodes of a fleet at once, again and again."""

    def __init__(self, nodes: Sequence[FleetNode], now: Callable[[], float] = time.time) -> None:
        self._nodes = nodes
        self._now = now
        self._lives = [Live(node.name) for node in nodes]
        self._links = [None if node.host is None else ToolSource([*node.host, "ip"]) for node in nodes]
        self._pool = ThreadPoolExecutor(min(len(nodes), _MOST_THREADS), "fleet")

    def read(self, timeout: float) -> list[Member]:
        """What they show, with rates since the time before. `timeout` in seconds is that of each node."""
        return list(self._pool.map(lambda at: self._member(at, timeout), range(len(self._nodes))))

    def close(self) -> None:
        """Let go of all nodes."""
        self._pool.shutdown(cancel_futures=True)
        for node in self._nodes:
            node.source.close()
        for link in self._links:
            if link is not None:
                link.close()

    def _member(self, at: int, timeout: float) -> Member:
        began = time.monotonic()
        live = self._lives[at]
        snapshot = self._nodes[at].source.read(timeout)
        live.take(snapshot, self._now())
        left = began + timeout - time.monotonic()
        links = self._links[at]
        mtus = _mtus(links, left) if links is not None and snapshot.up and left > 0 else {}
        rates = {nid: rail.rates for nid, rail in live.rails.items()}
        return Member(live.name, snapshot, rates, mtus)


def _mtus(links: ToolSource, timeout: float) -> dict[str, int]:
    """By interface; none where the host does not tell."""
    try:
        document = json.loads(links.printed(("-j", "link", "show"), timeout))
    except (ToolError, ValueError, RecursionError):
        return {}
    rows = [one for one in document if isinstance(one, dict)] if isinstance(document, list) else []
    return {str(one["ifname"]): one["mtu"] for one in rows if "ifname" in one and type(one.get("mtu")) is int}
