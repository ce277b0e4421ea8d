"""A console's session: its nodes, groups and batches, and what is said to the nodes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from ulnet.core.status import LNetError, errno_text
from ulnet.dlc.documents_selftest import GroupView
from ulnet.dlc.model_selftest import Brw, TestAdd
from ulnet.nid import Nid
from ulnet.node.turns import Turns
from ulnet.selftest.exchange import Bulk, Exchange
from ulnet.selftest.members import (
    LONGEST_SILENCE,
    Batch,
    Group,
    Member,
    Test,
    plain_name,
    server_loop,
    span_of,
    why_of,
)
from ulnet.selftest.sessions import ASK_AT_ONCE
from ulnet.selftest.targets import pack_targets
from ulnet.wire.selftest import PAGE
from ulnet.wire.selftest_bodies import (
    DebugRequest,
    MakeSessionReply,
    MakeSessionRequest,
    RemoveSessionRequest,
    Reply,
    Request,
    TestRequest,
)
from ulnet.wire.selftest_values import (
    BULK_LEN,
    RAILS_KNOWN,
    BulkBytes,
    BulkPages,
    Check,
    Direction,
    PingParameters,
    Service,
    SessionId,
)

__all__ = ["DEFAULT_BATCH", "Roster"]

DEFAULT_BATCH: Final = "batch"
_LEAVE_TIMEOUT: Final = 5.0
_ALL_LEAVE_TIMEOUT: Final = 15.0  # thousands may be silent, and their sessions expire
_WAKE_TIMEOUT: Final = 10.0
_MOST_AT_ONCE: Final = 256  # nodes that are asked at the same time
_SHORTEST_SILENCE: Final = 2.5  # seconds; who bears less than that loses the session
_U32: Final = 0xFFFFFFFF


class Roster:
    """What belongs to one session. `idle` is after how many seconds without commands it ends."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        key: int,
        name: str,
        features: int,
        idle: int,
        force: bool,
        sid: SessionId,
    ) -> None:
        self._exchange = exchange
        self.key = key
        self.name = name
        self.features = features
        self.idle = idle
        self.force = force
        self.sid = sid
        self.members: dict[Nid, Member] = {}
        self.groups: dict[str, Group] = {}
        self.batches: dict[str, Batch] = {}
        self._turns: Turns = Turns(asyncio.get_running_loop(), ASK_AT_ONCE)

    # What there is ---------------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        """The group of that name. Raises LNetError(ENOENT)."""
        if name not in self.groups:
            raise LNetError(errno.ENOENT, f"there is no group {name}: `lst list_group` tells all")
        return self.groups[name]

    def batch(self, name: str) -> Batch:
        """The batch of that name. Raises LNetError(ENOENT)."""
        if name not in self.batches:
            raise LNetError(errno.ENOENT, f"there is no batch {name}: make it with `lst add_batch {name}`")
        return self.batches[name]

    def member(self, nid: Nid) -> Member:
        """The node with that NID, for one group more."""
        member = self.members.setdefault(nid, Member(nid))
        member.refs += 1
        return member

    def known(self, nid: Nid) -> Member:
        """The node with that NID. Raises LNetError(ENOENT)."""
        if nid not in self.members:
            raise LNetError(errno.ENOENT, f"{nid} is in no group: add it with `lst add_group`")
        return self.members[nid]

    # What is said ----------------------------------------------------------------------------------

    async def ask(
        self,
        member: Member,
        make: Callable[[int], Request],
        timeout: float,
        bulk: Bulk | None = None,
    ) -> Reply:
        """The reply of a node; whether it is there is noted. Raises LNetError."""
        if not self._turns.take():
            await self._turns.wait(self)
        request = make(self._exchange.next_id())
        try:
            message = await self._exchange.call(
                member.nid, request, self.features, timeout=timeout, bulk=bulk
            )
        except LNetError as failed:
            member.state, member.error = "down", why_of(member.nid, failed)
            raise
        reply = message.body
        assert isinstance(reply, Reply)
        member.heard = asyncio.get_running_loop().time()
        if reply.status == errno.ESRCH and member.joined:
            member.joined = False
            member.state, member.error = "unknown", "it has lost the session"
        elif member.state == "down":  # it is there again
            member.state = "active" if member.joined else "unknown"
        return reply

    async def each(self, members: Sequence[Member], work: Callable[[Member], Awaitable[Any]]) -> list[Any]:
        """What work with each node gives; many nodes have their turn when others are done.

        No further one has it once the work with one has failed.
        """
        told: list[Any] = [None] * len(members)
        left = iter(enumerate(members))
        failed = False

        async def some() -> None:
            nonlocal failed
            for index, member in left:
                if failed:
                    return
                try:
                    told[index] = await work(member)
                except BaseException:
                    failed = True
                    raise

        await asyncio.gather(*(some() for _ in members[:_MOST_AT_ONCE]))
        return told

    async def join(self, members: Iterable[Member], timeout: float) -> None:
        """Make the session on nodes that have it not."""
        wanted = [member for member in members if member.state != "active"]
        await self.each(wanted, lambda member: self._join(member, timeout))

    async def _join(self, member: Member, timeout: float) -> None:
        try:
            reply = await self.ask(
                member,
                lambda bits: MakeSessionRequest(bits, self.sid, int(self.force), self.name),
                timeout,
            )
        except LNetError:
            return
        assert isinstance(reply, MakeSessionReply)
        if not reply.status:
            member.joined = True
            member.tells_rails = reply.mark == RAILS_KNOWN
            member.state, member.error = "active", ""
            if reply.timeout:
                member.silence = min(max(reply.timeout / 4, _SHORTEST_SILENCE), LONGEST_SILENCE)
        elif reply.status == errno.EBUSY:
            owner = Nid.from_nid4(reply.sid.nid)
            member.state, member.error = "busy", f"it has session {plain_name(reply.name)} of {owner}"
        elif reply.status == errno.EOPNOTSUPP:
            member.state = "unknown"
            member.error = "selftest is off there: switch it on with `lnetctl set selftest 1`"
        else:
            member.state, member.error = "unknown", errno_text(reply.status)

    async def release(self, members: Iterable[Member]) -> None:
        """One group less has these nodes; those in none leave the session."""
        gone = []
        for member in members:
            member.refs -= 1
            if not member.refs:
                del self.members[member.nid]
                gone.append(member)
        await self.leave(gone)

    async def leave(self, members: Iterable[Member]) -> None:
        """Remove the session from nodes that have it."""
        there = sorted((member for member in members if member.joined), key=lambda one: one.state == "down")
        with suppress(TimeoutError):
            async with asyncio.timeout(_ALL_LEAVE_TIMEOUT):
                await self.each(there, self._leave)
        for member in there:
            member.joined = False

    async def _leave(self, member: Member) -> None:
        try:
            await self.ask(member, lambda bits: RemoveSessionRequest(bits, self.sid), _LEAVE_TIMEOUT)
        except LNetError:
            return  # its session will expire
        finally:
            member.joined = False
        member.state = "unknown"

    async def keep_alive(self, spawn: Callable[[Coroutine[Any, Any, Any]], None]) -> None:
        """Ask those that have heard nothing for a while, so that their session does not expire.

        Their questions are work for `spawn`: who is silent does not delay those that are due later.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SHORTEST_SILENCE / 2)
            now = loop.time()
            there = [member for member in self.members.values() if member.joined and not member.wakes]
            quiet = [member for member in there if member.heard <= now - member.silence / 2]
            quiet.sort(key=lambda member: member.state == "down")  # who may be silent delays nobody
            for member in quiet:
                member.wakes = True
            if quiet:
                spawn(self.each(quiet, self._wake))

    async def _wake(self, member: Member) -> None:
        try:
            await self.ask(member, lambda bits: DebugRequest(bits, self.sid), _WAKE_TIMEOUT)
        except LNetError:
            return  # it counts as down now
        finally:
            member.wakes = False

    # Tests -----------------------------------------------------------------------------------------

    async def add_test(self, batch: Batch, command: TestAdd, timeout: float) -> list[GroupView]:
        """Add a test: to the servers first, then to the clients. Raises LNetError.

        It goes without the nodes that are not active: they are given back by groups.
        """
        parameters = self._parameters(command.brw)
        without = [self.group(name).without() for name in dict.fromkeys((command.source, command.sink))]
        clients, servers = (
            [member for member in self.group(name).members if member.state == "active"]
            for name in (command.source, command.sink)
        )
        for name, members in ((command.source, clients), (command.sink, servers)):
            if not members:
                raise LNetError(errno.ENODEV, f"group {name} has no active node: see `lst list_group {name}`")
        service = Service.PING if command.brw is None else Service.BRW
        loop = server_loop(len(clients), len(servers), command.distribute, command.span, command.concurrency)

        def request(bits: int, **more: int) -> TestRequest:
            fields = {"bulkid": 0, "loop": loop & _U32, **more}
            return TestRequest(
                rpyid=bits,
                sid=self.sid,
                batch=batch.id,
                service=service,
                concurrency=command.concurrency,
                stop_on_error=int(command.stop_on_error),
                parameters=parameters,
                **fields,
            )

        async def tell_server(member: Member) -> None:
            _must_be_good(member, await self.ask(member, request, timeout))

        indices = {member: index for index, member in enumerate(clients)}

        async def tell_client(member: Member) -> None:
            targets = span_of(indices[member], servers, command.distribute, command.span)
            packed = pack_targets(targets)
            bulk = Bulk(self._exchange.next_bulk_id(), packed, len(packed), source=True, optional=True)
            more = {
                "bulkid": bulk.bits, "loop": command.loop & _U32, "is_client": 1, "targets": len(targets)
            }  # fmt: skip
            _must_be_good(member, await self.ask(member, lambda bits: request(bits, **more), timeout, bulk))

        await self.each(servers, tell_server)
        await self.each(clients, tell_client)
        kind = "ping" if command.brw is None else "brw"
        batch.tests.append(Test(kind, command.loop, command.concurrency, clients, servers))
        return [group for group in without if group.nodes]

    def _parameters(self, brw: Brw | None) -> PingParameters | BulkBytes | BulkPages:
        if brw is None:
            return PingParameters()
        direction, check = Direction[brw.direction.upper()], Check[brw.check.upper()]
        if self.features & BULK_LEN:
            return BulkBytes(direction, check, brw.size, brw.offset)
        if brw.size % PAGE or brw.offset:
            raise LNetError(
                errno.EINVAL,
                f"brw of {brw.size} bytes at offset {brw.offset}: without feature 1 it is whole pages",
            )
        return BulkPages(direction, brw.size // PAGE, check)


def _must_be_good(member: Member, reply: Reply) -> None:
    if reply.status:
        raise LNetError(reply.status, f"{member.nid} does not take the test: {errno_text(reply.status)}")
