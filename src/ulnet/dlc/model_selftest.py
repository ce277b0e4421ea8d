"""What the console of selftest can be asked: one request, which holds a command (spec selftest.md §7)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ulnet.dlc.request import BaseRequest, Seconds

__all__ = [
    "BatchAdd",
    "BatchList",
    "BatchQuery",
    "BatchRun",
    "BatchStop",
    "Brw",
    "Command",
    "Counters",
    "GroupAdd",
    "GroupDel",
    "GroupList",
    "GroupUpdate",
    "Lst",
    "NodesPing",
    "SessionEnd",
    "SessionNew",
    "SessionShow",
    "TestAdd",
]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=31)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 30)]


class _Command(msgspec.Struct, tag_field="do", forbid_unknown_fields=True, omit_defaults=True):
    """One command of `lst`; `timeout` is for each node's answer."""


class SessionNew(_Command, tag="session.new"):
    """Begin a session; it ends when no command came for `idle` seconds (0: never)."""

    name: Name = "session"
    idle: Count = 300
    force: bool = False
    features: Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)] = 1


class SessionEnd(_Command, tag="session.end"):
    """End the session on all nodes."""


class SessionShow(_Command, tag="session.show"):
    """Which session there is."""


class GroupAdd(_Command, tag="group.add"):
    """Take nodes into the session, and into a group; `ids` may hold ranges."""

    name: Name
    ids: list[str]
    timeout: Seconds = 10.0


class GroupDel(_Command, tag="group.del"):
    """Forget a group; nodes in no other one leave the session."""

    name: Name


class GroupUpdate(_Command, tag="group.update"):
    """Remove nodes in some states, or by `ids`, from a group; or try again those that are not active."""

    name: Name
    clean: list[str] = []
    remove: list[str] = []
    refresh: bool = False
    timeout: Seconds = 10.0


class GroupList(_Command, tag="group.list"):
    """Groups with their nodes, all of them unless some are named."""

    names: list[str] = []


class NodesPing(_Command, tag="ping"):
    """Ask nodes for their session: those of a group, a batch (or its servers), the session, or by `ids`."""

    group: str | None = None
    batch: str | None = None
    server: bool = False
    ids: list[str] = []
    timeout: Seconds = 5.0


class Counters(_Command, tag="stat"):
    """Counters of nodes: of groups, of nodes by ID, or (with none named) of the session's.

    `rails` asks those that tell them for their rails, too.
    """

    of: list[str] = []
    timeout: Seconds = 5.0
    rails: bool = False


class BatchAdd(_Command, tag="batch.add"):
    """Make a batch."""

    name: Name


class BatchRun(_Command, tag="batch.run"):
    """Begin a batch; it stops after so many seconds (0: never)."""

    name: Name = "batch"
    seconds: Count = 0


class BatchStop(_Command, tag="batch.stop"):
    """Stop a batch, with `force` without waiting for what is under way."""

    name: Name = "batch"
    force: bool = False


class BatchList(_Command, tag="batch.list"):
    """Batches with their tests, all of them unless one is named."""

    name: str | None = None


class BatchQuery(_Command, tag="batch.query"):
    """How many tests of a batch (or units of its n-th test) are active on each client, or each server."""

    name: Name = "batch"
    test: Count = 0
    server: bool = False
    timeout: Seconds = 5.0


class Brw(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a brw test does."""

    direction: Literal["read", "write"] = "read"
    size: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 4096
    check: Literal["none", "simple", "full", "discard"] = "none"
    offset: Annotated[int, msgspec.Meta(ge=0, lt=4096, multiple_of=8)] = 0


class TestAdd(_Command, tag="test.add"):
    """Add a test to a batch: a ping, or a brw. `loop` -1 is for ever.

    So many clients (`distribute`) have the same `span` servers.
    """

    __test__ = False

    source: Name
    sink: Name
    batch: Name = "batch"
    loop: Annotated[int, msgspec.Meta(ge=-1, le=(1 << 31) - 1)] = -1
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    distribute: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 1
    span: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 1
    brw: Brw | None = None
    stop_on_error: bool = True


Command = (
    SessionNew
    | SessionEnd
    | SessionShow
    | GroupAdd
    | GroupDel
    | GroupUpdate
    | GroupList
    | NodesPing
    | Counters
    | BatchAdd
    | BatchRun
    | BatchStop
    | BatchList
    | BatchQuery
    | TestAdd
)


class Lst(BaseRequest, tag="lst"):
    """A command to the console; `key` is that of its session (LST_SESSION)."""

    verb = "lst"
    entity = "selftest"
    key: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    command: Command

    @property
    def looks(self) -> bool:
        """Whether the command only asks."""
        return isinstance(
            self.command, SessionShow | GroupList | NodesPing | Counters | BatchList | BatchQuery
        )
