"""The console: one session over many nodes, driven by commands (spec selftest.md §7)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec import Struct

from ulnet.core.status import LNetError, errno_text
from ulnet.dlc import model_selftest as ask
from ulnet.dlc.documents_selftest import (
    ActiveDocument,
    ActiveView,
    BatchDocument,
    CountersDocument,
    CountersView,
    GroupDocument,
    NodeCounters,
    PingedDocument,
    PingedView,
    SessionDocument,
    SessionView,
)
from ulnet.nid import ANY_NID, Nid, NidError
from ulnet.selftest.exchange import Exchange
from ulnet.selftest.members import RUNNING, Batch, Group, Member, plain_name, read_ids, why_of
from ulnet.selftest.roster import DEFAULT_BATCH, Roster
from ulnet.wire.selftest_bodies import (
    BatchReply,
    BatchRequest,
    DebugReply,
    DebugRequest,
    RailsReply,
    RailsRequest,
    StatReply,
    StatRequest,
)
from ulnet.wire.selftest_values import FEATURES, BatchOp, SessionId

__all__ = ["Console"]

_ORDER_TIMEOUT: Final = 10.0  # seconds for an answer to an order
_MOST_RAILS: Final = 64  # of a node


class Console:
    """One session at a time. `reach` is told of NIDs before they are asked, so that an NI can be added.

    `ended` is called when a session is over.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        reach: Callable[[Nid], None] | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self._exchange = exchange
        self._reach = reach
        self._ended = ended
        self._last_batch = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._idle: asyncio.TimerHandle | None = None
        self.roster: Roster | None = None
        self._does: Mapping[type[Any], Callable[[Any], Awaitable[Struct | None]]] = {
            ask.SessionShow: self._show_session,
            ask.SessionEnd: self._end_session,
            ask.GroupAdd: self._add_group,
            ask.GroupDel: self._del_group,
            ask.GroupUpdate: self._update_group,
            ask.GroupList: self._list_groups,
            ask.NodesPing: self._ping,
            ask.Counters: self._counters,
            ask.BatchAdd: self._add_batch,
            ask.BatchRun: self._run,
            ask.BatchStop: self._stop,
            ask.BatchList: self._list_batches,
            ask.BatchQuery: self._query,
            ask.TestAdd: self._add_test,
        }

    async def do(self, request: ask.Lst) -> Struct | None:
        """Execute a command. Raises LNetError."""
        command = request.command
        try:
            if isinstance(command, ask.SessionNew):
                return await self._new_session(request.key, command)
            roster = self._roster()
            if request.key != roster.key:
                raise LNetError(
                    errno.EACCES,
                    f"session {roster.name} has another key: set LST_SESSION to {roster.key}, "
                    "or take its place with `lst new_session --force`",
                )
            self._restart_idle(roster)
            return await self._does[type(command)](command)
        except NidError as bad:
            raise LNetError(errno.EINVAL, str(bad)) from None

    def _roster(self) -> Roster:
        if self.roster is None:
            raise LNetError(errno.ESRCH, "there is no session: begin one with `lst new_session`")
        return self.roster

    # The session -----------------------------------------------------------------------------------

    async def _new_session(self, key: int, command: ask.SessionNew) -> SessionDocument:
        if command.features & ~FEATURES:
            known = f"{FEATURES:#x}"
            raise LNetError(
                errno.EPROTO, f"features {command.features:#x}: only {known} is known; set LST_FEATURES so"
            )
        if self.roster is not None:
            if not command.force:
                raise LNetError(
                    errno.EBUSY,
                    f"there is a session already, {self.roster.name} with key {self.roster.key}: end it "
                    "with `lst end_session`, or take its place with --force",
                )
            await self.close()
        sid = SessionId(self._own_nid().truncated_nid4(), self._exchange.wall() // 10**6)
        self.roster = roster = Roster(
            self._exchange,
            key=key,
            name=command.name,
            features=command.features,
            idle=command.idle,
            force=command.force,
            sid=sid,
        )
        roster.batches[DEFAULT_BATCH] = Batch(DEFAULT_BATCH, self._next_batch())
        self._spawn(roster.keep_alive(self._spawn))
        self._restart_idle(roster)
        return await self._show_session(ask.SessionShow())

    def _own_nid(self) -> Nid:
        """The first NID of this node that a session can be named by."""
        own = [nid for nid in self._exchange.node.core.nis if not nid.is_lo]
        return next((nid for nid in own if not nid.is_large), own[0] if own else ANY_NID)

    def _restart_idle(self, roster: Roster) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if roster.idle:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(roster.idle, lambda: self._spawn(self._expire(roster)))

    async def _expire(self, roster: Roster) -> None:
        if self.roster is roster:
            await self._close(asyncio.current_task())

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def close(self) -> None:
        """End the session on all nodes, if there is one."""
        await self._close(None)

    async def _close(self, beside: asyncio.Task[Any] | None) -> None:
        roster, self.roster = self.roster, None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        for task in list(self._tasks):
            if task is not beside:
                task.cancel()
        if roster is not None:
            await roster.leave([*roster.members.values()])
            if self._ended is not None:
                self._ended()

    async def _end_session(self, command: ask.SessionEnd) -> None:
        await self.close()

    async def _show_session(self, command: ask.SessionShow) -> SessionDocument:
        roster = self._roster()
        owner = str(Nid.from_nid4(roster.sid.nid)) if roster.members else str(self._own_nid())
        # fmt: off
        view = SessionView(
            roster.name, owner, roster.key, roster.features, roster.idle, len(roster.members), roster.force
        )
        # fmt: on
        return SessionDocument(view)

    # Groups ----------------------------------------------------------------------------------------

    async def _add_group(self, command: ask.GroupAdd) -> GroupDocument:
        roster = self._roster()
        if command.name in roster.groups:
            raise LNetError(errno.EEXIST, f"group {command.name} exists: delete or update it")
        nids = read_ids(command.ids)
        self._must_reach(nids)
        if roster.sid.nid == ANY_NID.nid4:  # the first NI came with these nodes
            roster.sid = SessionId(self._own_nid().truncated_nid4(), roster.sid.stamp)
        group = roster.groups[command.name] = Group(command.name, [roster.member(nid) for nid in nids])
        await roster.join(group.members, command.timeout)
        return GroupDocument([group.view()])

    def _must_reach(self, nids: Sequence[Nid]) -> None:
        if self._reach is not None:
            for nid in nids:
                self._reach(nid)

    async def _del_group(self, command: ask.GroupDel) -> None:
        roster = self._roster()
        group = roster.group(command.name)
        _must_be_unused(roster, group.members)
        del roster.groups[command.name]
        await roster.release(group.members)

    async def _update_group(self, command: ask.GroupUpdate) -> GroupDocument:
        roster = self._roster()
        group = roster.group(command.name)
        if command.refresh:
            await roster.join([one for one in group.members if one.state != "active"], command.timeout)
        removed = set(read_ids(command.remove)) if command.remove else set()
        gone = [one for one in group.members if one.nid in removed or one.state in command.clean]
        _must_be_unused(roster, gone)
        group.members = [one for one in group.members if one not in gone]
        if not group.members:
            del roster.groups[command.name]
        await roster.release(gone)
        return GroupDocument([group.view()])

    async def _list_groups(self, command: ask.GroupList) -> GroupDocument:
        roster = self._roster()
        names = command.names or list(roster.groups)
        return GroupDocument([roster.group(name).view() for name in names])

    # Nodes -----------------------------------------------------------------------------------------

    async def _ping(self, command: ask.NodesPing) -> PingedDocument:
        roster = self._roster()
        if command.group is not None:
            members = roster.group(command.group).members
        elif command.batch is not None:
            batch = roster.batch(command.batch)
            members = batch.servers if command.server else batch.members
        elif command.ids:
            nids = read_ids(command.ids)
            self._must_reach(nids)
            members = [roster.members.get(nid) or Member(nid) for nid in nids]
        else:
            members = list(roster.members.values())
        return PingedDocument(await roster.each(members, lambda one: self._ping_one(one, command.timeout)))

    async def _ping_one(self, member: Member, timeout: float) -> PingedView:
        roster = self._roster()
        try:
            reply = await roster.ask(member, lambda bits: DebugRequest(bits, roster.sid), timeout)
        except LNetError as failed:
            return PingedView(str(member.nid), "down", error=why_of(member.nid, failed))
        assert isinstance(reply, DebugReply)
        if reply.status:
            return PingedView(str(member.nid), "unknown", error=errno_text(reply.status))
        state = "active" if reply.sid == roster.sid else "busy"
        owner = str(Nid.from_nid4(reply.sid.nid))
        return PingedView(str(member.nid), state, plain_name(reply.name), owner)

    async def _counters(self, command: ask.Counters) -> CountersDocument:
        roster = self._roster()
        found: list[tuple[str, list[Member]]] = []
        for text in command.of:
            group = roster.groups.get(text)
            members = group.members if group is not None else [roster.known(nid) for nid in read_ids([text])]
            found.append((text, members))
        if not command.of:
            found.append((roster.name, list(roster.members.values())))
        each = list(dict.fromkeys(member for _, members in found for member in members))
        told = await roster.each(each, lambda one: self._counters_of(one, command))
        by_member = dict(zip(each, told, strict=True))
        return CountersDocument(
            [CountersView(name, [by_member[one] for one in members]) for name, members in found]
        )

    async def _counters_of(self, member: Member, command: ask.Counters) -> NodeCounters:
        roster = self._roster()
        try:
            reply = await roster.ask(member, lambda bits: StatRequest(bits, roster.sid), command.timeout)
        except LNetError as failed:
            return NodeCounters(str(member.nid), error=why_of(member.nid, failed))
        assert isinstance(reply, StatReply)
        if reply.status:
            return NodeCounters(str(member.nid), error=errno_text(reply.status))
        now = asyncio.get_running_loop().time()
        framework, rpc, lnet = (part._asdict() for part in (reply.framework, reply.rpc, reply.lnet))
        rails = await self._rails_of(member, command.timeout) if command.rails else {}
        return NodeCounters(str(member.nid), now, "", framework, rpc, lnet, rails)

    async def _rails_of(self, member: Member, timeout: float) -> dict[str, dict[str, int]]:
        """What each rail of a node has carried, if that is told within the time for all of them.

        None where the node does not tell, as those of the kernel.
        """
        roster = self._roster()
        end = asyncio.get_running_loop().time() + timeout
        found: dict[str, dict[str, int]] = {}
        wanted = _MOST_RAILS if member.tells_rails else 0
        for index in range(_MOST_RAILS):
            if index >= wanted:
                break
            request = partial(RailsRequest, sid=roster.sid, index=index)
            try:
                async with asyncio.timeout_at(end):  # who is late, and answers, is not down
                    reply = await roster.ask(member, request, timeout)
            except (LNetError, TimeoutError):
                return {}
            assert isinstance(reply, RailsReply)
            if reply.status:
                break
            wanted = reply.rails
            counted = {name: getattr(reply, name) for name in ("bulk_get", "bulk_put", "answered")}
            found[str(Nid.from_nid4(reply.nid))] = {**counted, "errors": reply.failed}
        return found

    # Batches ---------------------------------------------------------------------------------------

    def _next_batch(self) -> int:
        self._last_batch += 1
        return self._last_batch

    async def _add_batch(self, command: ask.BatchAdd) -> None:
        roster = self._roster()
        if command.name in roster.batches:
            raise LNetError(errno.EEXIST, f"batch {command.name} exists: choose another name")
        roster.batches[command.name] = Batch(command.name, self._next_batch())

    async def _add_test(self, command: ask.TestAdd) -> GroupDocument:
        roster = self._roster()
        return GroupDocument(await roster.add_test(roster.batch(command.batch), command, _ORDER_TIMEOUT))

    async def _run(self, command: ask.BatchRun) -> None:
        roster = self._roster()
        batch = roster.batch(command.name)
        if not batch.tests:
            raise LNetError(errno.EINVAL, f"batch {batch.name} has no test: add one with `lst add_test`")
        failed = await self._order(roster, batch, BatchOp.RUN, 0)
        batch.state = RUNNING
        if command.seconds:
            self._spawn(self._stop_later(roster, batch, command.seconds))
        if failed:
            raise LNetError(errno.EIO, f"batch {batch.name} does not run everywhere: {failed[0]}")

    async def _stop_later(self, roster: Roster, batch: Batch, seconds: int) -> None:
        await asyncio.sleep(seconds)
        if self.roster is roster:
            await self._order(roster, batch, BatchOp.STOP, 0)

    async def _order(self, roster: Roster, batch: Batch, op: BatchOp, arg: int) -> list[str]:
        """Send an order to all active nodes of a batch; what went wrong, in words."""

        async def order(member: Member) -> str:
            try:
                reply = await roster.ask(
                    member,
                    lambda bits: BatchRequest(bits, roster.sid, batch.id, op, 0, arg),
                    _ORDER_TIMEOUT,
                )
            except LNetError as failed:
                return f"{member.nid}: {why_of(member.nid, failed)}"
            return f"{member.nid}: {errno_text(reply.status)}" if reply.status else ""

        joined = [member for member in batch.members if member.joined]
        return [text for text in await roster.each(joined, order) if text]

    async def _stop(self, command: ask.BatchStop) -> ActiveDocument:
        roster = self._roster()
        batch = roster.batch(command.name)
        before = await self._active(roster, batch.clients, batch, 0, _ORDER_TIMEOUT)
        await self._order(roster, batch, BatchOp.STOP, int(command.force))
        return ActiveDocument([view for view in before if view.active])

    async def _query(self, command: ask.BatchQuery) -> ActiveDocument:
        roster = self._roster()
        batch = roster.batch(command.name)
        if command.test > len(batch.tests):
            raise LNetError(errno.ENOENT, f"batch {batch.name} has {len(batch.tests)} tests")
        of = batch.tests[command.test - 1] if command.test else batch
        members = of.servers if command.server else of.clients
        # fmt: off
        views = await self._active(
            roster, members, batch, command.test, command.timeout, server=command.server
        )
        # fmt: on
        return ActiveDocument(views)

    async def _active(
        self,
        roster: Roster,
        members: Sequence[Member],
        batch: Batch,
        test: int,
        timeout: float,
        server: bool = False,
    ) -> list[ActiveView]:
        async def one(member: Member) -> ActiveView:
            index = _index_on(member, batch, test, server)
            try:
                reply = await roster.ask(
                    member,
                    lambda bits: BatchRequest(bits, roster.sid, batch.id, BatchOp.QUERY, index),
                    timeout,
                )
            except LNetError as failed:
                return ActiveView(str(member.nid), 0, why_of(member.nid, failed))
            assert isinstance(reply, BatchReply)
            return ActiveView(str(member.nid), reply.active, errno_text(reply.status) if reply.status else "")

        views: list[ActiveView] = await roster.each(members, one)
        if not test and members == batch.clients and not any(view.active for view in views):
            batch.stopped()
        return views

    async def _list_batches(self, command: ask.BatchList) -> BatchDocument:
        roster = self._roster()
        batches = [roster.batch(command.name)] if command.name else list(roster.batches.values())
        for batch in batches:
            if batch.state == RUNNING:
                with suppress(LNetError):
                    await self._active(roster, batch.clients, batch, 0, _ORDER_TIMEOUT)
        return BatchDocument([batch.view() for batch in batches])


def _must_be_unused(roster: Roster, members: Sequence[Member]) -> None:
    used = {one for batch in roster.batches.values() for one in batch.members}
    for member in members:
        if member in used and member.refs == 1:
            raise LNetError(errno.EBUSY, f"{member.nid} is part of a test: end the session first")


def _index_on(member: Member, batch: Batch, test: int, server: bool) -> int:
    """Which of a node's tests is the test-th of a batch: it has one for each part that it plays."""
    index = 0
    for number, one in enumerate(batch.tests[:test], start=1):
        index += member in one.servers
        index += member in one.clients and not (server and number == test)
    return index
