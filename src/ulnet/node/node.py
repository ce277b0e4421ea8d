"""A node on asyncio: owns one LNet core, its drivers and its clock."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, Self, get_args

from ulnet.control.access import access_of
from ulnet.control.instance import LNet
from ulnet.core.access import Access
from ulnet.core.lnd import Lnd
from ulnet.core.md import INFINITE, OP_GET, OP_PUT, TRUNCATE, Buffer, EventHandler
from ulnet.core.ni import NI
from ulnet.core.selection import Balance
from ulnet.core.status import LNetError
from ulnet.core.tunables import LndTunables, NetTunables
from ulnet.host import Topology
from ulnet.lnd.forks import forked, in_forks, let_go
from ulnet.nid import ANY_NID, PID_ANY, Nid
from ulnet.nid.errors import shown
from ulnet.node.attachment import Attachment
from ulnet.node.drivers import DriverCalls, carriers, everywhere, parameters_of
from ulnet.node.inbox import Inbox, Message
from ulnet.node.machine import Machine
from ulnet.node.messages import MessageCalls
from ulnet.node.operations import Operations
from ulnet.node.peers import PeerCalls, as_nid
from ulnet.node.watching import WatchCalls

__all__ = ["Node"]

Recovery = Literal["backoff", "documents"]

_log = logging.getLogger("ulnet")
_COOKIE = partial(secrets.randbits, 64)
_SECRET = partial(secrets.token_bytes, 32)


class Node(MessageCalls, PeerCalls, DriverCalls, WatchCalls):
    """One LNet node in this process.

    Use it as `async with Node() as node:`, or call `start` and `close`. NIDs are given as `Nid` or text.
    Everything runs in the thread of the event loop; nothing here is thread-safe. A process that is forked has
    no node: all calls raise LNetError(ENETDOWN) there. `topology` stands in for
    the machine's NUMA nodes; `cpu_pattern` or `cpu_npartitions` divides them into CPTs, by default one a
    node. `balance` tells how path selection weighs load, `recovery` how those that failed get well.
    `allow` and `deny` say who may connect, ping, push, and reach which portals: rules `[WHAT=]WHO`, as lnetd
    has them (docs/security.md).
    `drivers` makes the drivers of a core, in the place of those that there are; `parameters` are those of
    these, by the names of drivers. `cookie` gives a number that no
    earlier life of the node used and nobody can guess, `secret` up to 64 bytes that nobody is told; `report`
    takes lines for the log (by default
    warnings, and errors where an NI changes or a message switches paths); `chance` gives random numbers,
    for fault rules.
    Raises LNetError(EINVAL) for a division or a rule that cannot be, and for words that are not known.
    """

    def __init__(
        self,
        *,
        topology: Topology | None = None,
        cpu_pattern: str = "",
        cpu_npartitions: int = 0,
        balance: Balance = "expected",
        recovery: Recovery = "backoff",
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        drivers: Callable[[LNet], Sequence[Lnd]] | None = None,
        cookie: Callable[[], int] = _COOKIE,
        secret: Callable[[], bytes] = _SECRET,
        report: Callable[[str], None] = _log.warning,
        chance: Callable[[], float] = random.random,
        **parameters: object,
    ) -> None:
        _must_be_known("balance", balance, get_args(Balance))
        _must_be_known("recovery", recovery, get_args(Recovery))
        self.machine: Machine = Machine(topology, pattern=cpu_pattern, partitions=cpu_npartitions)
        self._parameters = parameters_of(parameters)
        self._start_access = access_of(allow, deny)
        self._given_drivers = drivers
        self._cookie = cookie
        self._secret = secret
        self._balance = balance
        self._recovery = recovery
        self._report = report
        self._chance = chance
        self._timer: asyncio.TimerHandle | None = None
        self._tick_soon = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._core: LNet | None = None
        self._operations: Operations | None = None
        self._drivers: list[Lnd] = []
        self._own_drivers: list[Lnd] = []  # those of them to be closed
        self._elsewhere: LNet | None = None  # what runs in the process of which this is a fork

    @property
    def core(self) -> LNet:
        """The LNet instance. Raises LNetError(ENETDOWN) before `start`, after `close`, and in a fork."""
        if self._core is None:
            if self._elsewhere is not None:
                raise forked("the node")
            raise LNetError(errno.ENETDOWN, "LNet is not configured on this node: start it first")
        return self._core

    @property
    def running(self) -> bool:
        """Whether the node is started."""
        return self._core is not None

    # Life ------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Bring up LNet with `0@lo` alone; a second call changes nothing."""
        if self._elsewhere is not None:
            raise forked("the node")
        if self._core is not None:
            return self
        loop = self._loop = asyncio.get_running_loop()
        machine = self.machine
        if machine.unreadable:
            _log.warning("one CPT is assumed: %s", machine.unreadable)
        logs = self._report == _log.warning
        core = LNet(
            clock=_clock_of(loop),
            cookie=self._cookie(),
            secret=self._secret(),
            wake=self._wake,
            report=self._report,
            alarm=_log.error if logs else None,
            notice=_log.info if logs else None,
            cpts=machine.cpts,
            current_cpu=machine.current_cpu,
            node_of_memory=machine.node_of_memory,
            chance=self._chance,
            access=self._start_access,
        )
        core.selector.balance = self._balance
        if self._recovery == "documents":
            core.health.follow_documents()
        if self._given_drivers is not None:
            given = [*self._given_drivers(core)]
        else:
            given = self._own_drivers = carriers(core, loop, self._parameters, self._report)
        self._drivers = [*given, *everywhere(core)]
        for driver in self._drivers:
            core.register_lnd(driver)
        self._core = core
        self._operations = Operations(core, loop)
        in_forks(self)
        core.start()
        return self

    async def close(self, drain: float = 5.0) -> None:
        """Shut down. Messages under way get up to `drain` seconds to finish and be answered; the rest fail.

        Cancelled, it fails them at once.
        """
        core, loop = self._core, self._loop
        if core is None or loop is None:
            return
        give_up = loop.time() + drain
        try:
            while self._core is core and _busy(core) and loop.time() < give_up:  # noqa: ASYNC110 - bounded
                await asyncio.sleep(0.005)
        finally:
            if self._core is core:  # nobody else closed it meanwhile
                self._shut_down(core)

    def forked(self) -> None:
        """In a child of the process: it is the parent's, and nothing is done with it here."""
        core, loop = self._core, self._loop
        if core is None or loop is None:
            return
        self._elsewhere = core
        core.state.running = False  # tasks and calls that end here, too, send nothing
        self._core = self._operations = None
        if self._timer is not None:
            self._timer.cancel()
        for driver in self._drivers:
            getattr(driver, "forked", _nothing)()
        let_go(loop)

    def _shut_down(self, core: LNet) -> None:
        self._core = self._operations = None
        try:
            core.shutdown()
        finally:  # a handler may end the program
            for driver in self._own_drivers:
                getattr(driver, "close", _nothing)()
            self._own_drivers = []
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _wake(self) -> None:
        if not self._tick_soon and self._loop is not None:
            self._tick_soon = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._tick_soon = False
        core, loop = self._core, self._loop
        if self._elsewhere is not None:  # the fork was made by a handler, which may end it, too
            self._elsewhere.state.let_end()
        if core is None or loop is None:
            return
        try:
            core.tick(loop.time())
        finally:  # a handler may end the program, which closes the node in its own time
            self._arm(core, loop)

    def _arm(self, core: LNet, loop: asyncio.AbstractEventLoop) -> None:
        deadline = core.next_deadline()
        if self._timer is not None:
            if deadline is not None and self._timer.when() <= deadline and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = loop.call_at(deadline, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._tick()

    # Configuration ---------------------------------------------------------------------------------

    def add_ni(
        self,
        nid: Nid | str,
        *,
        interface: str | None = None,
        tunables: NetTunables | None = None,
        lnd_tunables: LndTunables | None = None,
        cpts: Iterable[int] | None = None,
        device_node: int | None = None,
    ) -> NI:
        """Add the NI of one address: `add_ni("10.0.0.1@tcp")`. Raises LNetError (ENODEV: no such interface).

        It uses all CPTs unless `cpts` are given. `interface` is the device whose link tells whether the NI is
        up; `device_node` its NUMA node, by default as the system tells.
        """
        nid = as_nid(nid)
        return self.core.add_ni(
            nid.net,
            nid,
            interface=interface,
            tunables=tunables,
            lnd_tunables=lnd_tunables,
            cpts=cpts,
            device_node=self.machine.node_of(interface) if device_node is None else device_node,
        )

    @property
    def start_access(self) -> Access:
        """The access lists that the node has from its start on; `lnetctl` may have changed them since."""
        return self._start_access

    @property
    def access(self) -> Access:
        """Who may do what here now: `access.allow` and `access.deny` are the rules."""
        return self._start_access if self._core is None else self._core.access

    def set_access(self, *, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        """Make these the access lists, in place of those there are; see `Node`.

        Connections of who may not connect any more end. To add a rule: `set_access(allow=node.access.allow,
        deny=[*node.access.deny, "10.0.0.66@tcp"])`. Raises LNetError: EINVAL for a rule that is none, ENOSPC
        for too many; nothing has changed then.
        """
        self._start_access = access_of(allow, deny)
        if self._core is not None:
            self._core.set_access(self._start_access)

    def del_ni(self, nid: Nid | str) -> None:
        """Remove an NI; messages that it sends or receives fail.

        Raises LNetError: EBUSY (messages that came in by it wait for memory), ENOENT, EINVAL (0@lo).
        """
        nid = as_nid(nid)
        ni = self.core.nis.get(nid)
        waiting = self.core.leaving.waiting(ni) if ni is not None else 0
        if waiting:
            text = f"{nid} is in use: {waiting} messages that it received wait for memory on a lazy portal"
            raise LNetError(errno.EBUSY, f"{text}; attach it, or 'memory.set_lazy(portal, False)'")
        self.core.del_ni(nid)

    # Messages --------------------------------------------------------------------------------------

    def attach(
        self,
        portal: int,
        match_bits: int,
        buffer: Buffer | list[Buffer],
        *,
        ignore_bits: int = 0,
        nid: Nid | str = ANY_NID,
        pid: int = PID_ANY,
        options: int = OP_PUT | OP_GET | TRUNCATE,
        threshold: int = INFINITE,
        max_size: int = 0,
        handler: EventHandler | None = None,
    ) -> Attachment:
        """Open memory to peers. Events go to `handler` if given, else to the attachment's queue.

        Options are MdOption bits: OP_PUT and OP_GET let peers write and read; TRUNCATE cuts what is longer
        than the room left, which is dropped without it; with MANAGE_REMOTE the sender's offset decides, else
        each PUT or GET begins behind the one before it. It ends after `threshold` operations (INFINITE, -1:
        no limit), and with MAX_SIZE when less than `max_size` bytes are left; the last event is `unlinked`
        then. Otherwise memory that is used up stays attached: with TRUNCATE its events have `mlength` 0. For
        messages without end take `inbox`.
        Raises LNetError: EINVAL, EPERM (portal of the other kind).
        """
        memory = self.core.memory
        attachment = Attachment(memory)
        me = attachment.me = memory.me_attach(
            portal, match_bits=match_bits, ignore_bits=ignore_bits, nid=as_nid(nid), pid=pid
        )
        try:
            attachment.md = memory.md_attach(
                me,
                buffer,
                attachment.put_event if handler is None else handler,
                options=options,
                threshold=threshold,
                max_size=max_size,
            )
        except TypeError:  # the compiled build looks at arguments before the call that would take it away
            memory.me_unlink(me)
            raise
        return attachment

    def inbox(
        self,
        portal: int,
        match_bits: int,
        *,
        ignore_bits: int = 0,
        slots: int = 256,
        size: int = 4096,
        handler: Callable[[Message], None] | None = None,
    ) -> Inbox:
        """Memory for messages that never fills up for good: `async for message in node.inbox(30, 7)`.

        There is room for at least `slots` messages of up to `size` bytes that are not read or are still held;
        messages that find none are counted, and their senders told. Raises LNetError: EINVAL, EPERM (portal
        of the other kind).
        """
        return Inbox(
            self.core,
            portal,
            match_bits,
            ignore_bits=ignore_bits,
            slots=slots,
            size=size,
            handler=handler,
        )


def _nothing() -> None:
    """A driver need not have anything to close, or to leave alone in forks."""


def _must_be_known(name: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise LNetError(errno.EINVAL, f"{name} {shown(word)}: it is {' or '.join(map(repr, words))}")


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's clock; asyncio's own is a call around another one, and read for every message."""
    return time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time


def _busy(core: LNet) -> bool:
    core.settle()
    return core.stats.msgs_alloc > 0 or core.memory.awaits_any
