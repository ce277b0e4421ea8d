"""What the console knows: nodes in groups, batches with tests, and how clients share servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ulnet.core.status import LNetError
from ulnet.dlc.documents_selftest import BatchView, GroupView, NodeView, TestView
from ulnet.nid import Nid, NidError, NidList

__all__ = [
    "IDLE",
    "LONGEST_SILENCE",
    "RUNNING",
    "Batch",
    "Group",
    "Member",
    "State",
    "Test",
    "plain_name",
    "read_ids",
    "server_loop",
    "span_of",
    "why_of",
]

State = Literal["active", "busy", "down", "unknown"]
IDLE: Final = 0xB0
RUNNING: Final = 0xB1
LONGEST_SILENCE: Final = 25.0  # seconds; a quarter of what kernel nodes bear
_MOST_IDS: Final = 4096
_PID: Final = re.compile(r"\A\d+-")


def read_ids(texts: Sequence[str]) -> list[Nid]:
    """NIDs of IDs such as `12345-10.0.0.[1-4]@tcp`, each once. Raises NidError."""
    found: dict[Nid, None] = {}
    for text in texts:
        plain = " ".join(_PID.sub("", word) for word in text.split())
        found.update(dict.fromkeys(NidList.parse(plain).expand(_MOST_IDS)))
    if len(found) > _MOST_IDS:
        raise NidError(f"{len(found)} nodes are more than the {_MOST_IDS} of one command: split it")
    return list(found)


def plain_name(name: str) -> str:
    """A name that came by the wire, as text to be shown: UTF-8, and nothing that terminals obey."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join([one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text])


def why_of(nid: Nid, failed: LNetError) -> str:
    """What went wrong with a node, for a line that names it already."""
    text, name = failed.text, str(nid)
    while text.startswith((f"{name}: ", f"{name} ")):
        text = text[len(name) :].lstrip(": ")
    return text


@dataclass(slots=True, eq=False)
class Member:
    """A node. `heard` is when it last answered, by the loop's clock; `refs` how many groups have it.

    It has `joined` while it has the session, as far as is known; it may be down then. `silence` is for how
    many seconds it may hear nothing; it `wakes` while it is asked for that reason. `tells_rails` is whether
    it can be asked for its rails.
    """

    nid: Nid
    state: State = "unknown"
    error: str = ""
    joined: bool = False
    heard: float = 0.0
    silence: float = LONGEST_SILENCE
    wakes: bool = False
    refs: int = 0
    tells_rails: bool = False

    def view(self) -> NodeView:
        """As documents show it."""
        return NodeView(str(self.nid), self.state, "" if self.state == "active" else self.error)


@dataclass(slots=True, eq=False)
class Group:
    """Nodes under one name. Tests use it as it was when they were added."""

    name: str
    members: list[Member] = field(default_factory=list)

    def view(self) -> GroupView:
        """As documents show it."""
        return GroupView(self.name, [member.view() for member in self.members])

    def without(self) -> GroupView:
        """Those nodes of it that are not active."""
        return GroupView(self.name, [member.view() for member in self.members if member.state != "active"])


@dataclass(slots=True, eq=False)
class Test:
    """One test."""

    __test__ = False

    kind: str
    loop: int
    concurrency: int
    clients: list[Member]
    servers: list[Member]

    def view(self) -> TestView:
        """As documents show it."""
        clients, servers = ([one.view() for one in some] for some in (self.clients, self.servers))
        return TestView(self.kind, self.loop, self.concurrency, clients, servers)


@dataclass(slots=True, eq=False)
class Batch:
    """Tests that run together."""

    name: str
    id: int
    state: int = IDLE
    tests: list[Test] = field(default_factory=list)

    @property
    def clients(self) -> list[Member]:
        """All clients of its tests, each once."""
        return list(dict.fromkeys(member for test in self.tests for member in test.clients))

    @property
    def servers(self) -> list[Member]:
        """All servers of its tests, each once."""
        return list(dict.fromkeys(member for test in self.tests for member in test.servers))

    @property
    def members(self) -> list[Member]:
        """All nodes of its tests, each once."""
        return list(dict.fromkeys([*self.clients, *self.servers]))

    def stopped(self) -> None:
        """None of its clients is active."""
        self.state = IDLE

    def view(self) -> BatchView:
        """As documents show it."""
        clients, servers = ([one.view() for one in some] for some in (self.clients, self.servers))
        return BatchView(self.name, self.state, [test.view() for test in self.tests], clients, servers)


def server_loop(clients: int, servers: int, distribute: int, span: int, concurrency: int) -> int:
    """For how many requests at once a server is to have room (spec selftest.md §4)."""
    shared = -(-clients // distribute)
    return -(-shared // -(-servers // span)) * distribute * concurrency


def span_of(index: int, servers: Sequence[Member], distribute: int, span: int) -> list[Nid]:
    """The servers of the index-th client: `span` in a row, in a circle."""
    start = index // distribute * span
    return [servers[(start + step) % len(servers)].nid for step in range(span)]
