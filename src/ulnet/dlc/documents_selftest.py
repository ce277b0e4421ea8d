"""What the console of selftest answers."""

from __future__ import annotations

from msgspec import Struct

__all__ = [
    "ActiveDocument",
    "ActiveView",
    "BatchDocument",
    "BatchView",
    "CountersDocument",
    "CountersView",
    "GroupDocument",
    "GroupView",
    "NodeCounters",
    "NodeView",
    "PingedDocument",
    "PingedView",
    "SessionDocument",
    "SessionView",
    "TestView",
]


class NodeView(Struct, omit_defaults=True):
    """A node and its state: active, busy, down or unknown; `error` says why it is not active."""

    id: str
    state: str
    error: str = ""


class GroupView(Struct):
    """A group."""

    name: str
    nodes: list[NodeView]


class GroupDocument(Struct):
    """`lst list_group`, what became of nodes in `lst add_group`, and whom a test of `lst add_test` lacks."""

    groups: list[GroupView]


class SessionView(Struct):
    """The session: `id` is the NID that made it."""

    name: str
    id: str
    key: int
    features: int
    timeout: int
    nodes: int
    force: bool = False


class SessionDocument(Struct):
    """`lst show_session`."""

    session: SessionView


class PingedView(Struct, omit_defaults=True):
    """A node that was pinged, and its session."""

    id: str
    state: str
    session: str = ""
    owner: str = ""
    error: str = ""


class PingedDocument(Struct):
    """`lst ping`."""

    nodes: list[PingedView]


class NodeCounters(Struct, omit_defaults=True):
    """Counters of one node, named as in ulnet.wire.selftest_bodies; they came at `at` seconds.

    `rails` are those of the node's NIDs: bulk_get and bulk_put in bytes, requests answered, and the errors
    that LNet counted there. Kernel nodes do not tell them.
    """

    id: str
    at: float = 0.0
    error: str = ""
    framework: dict[str, int] = {}
    rpc: dict[str, int] = {}
    lnet: dict[str, int] = {}
    rails: dict[str, dict[str, int]] = {}


class CountersView(Struct):
    """Counters of the nodes of a group, or of those that a text names."""

    name: str
    nodes: list[NodeCounters]


class CountersDocument(Struct):
    """`lst stat`, `lst show_error`."""

    of: list[CountersView]


class TestView(Struct):
    """One test of a batch."""

    __test__ = False

    kind: str
    loop: int
    concurrency: int
    clients: list[NodeView]
    servers: list[NodeView]


class BatchView(Struct):
    """A batch: `state` is 177 while it runs, else 176."""

    name: str
    state: int
    tests: list[TestView]
    clients: list[NodeView]
    servers: list[NodeView]


class BatchDocument(Struct):
    """`lst list_batch`."""

    batches: list[BatchView]


class ActiveView(Struct, omit_defaults=True):
    """How many tests, or units, are active on a node."""

    id: str
    active: int = 0
    error: str = ""


class ActiveDocument(Struct):
    """`lst query`; after `lst stop` those that are still active."""

    nodes: list[ActiveView]
