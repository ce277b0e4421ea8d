"""A simulated node: the very Node that runs on real sockets, on a virtual host, clock and network."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from ulnet.bond.bondni import BondNi
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.lnd import Lnd
from ulnet.core.md import INFINITE, MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE, EventHandler
from ulnet.core.ni import NI
from ulnet.core.peer_rules import named
from ulnet.core.selection import Balance
from ulnet.core.status import LNetError
from ulnet.core.tunables import LndTunables, NetTunables
from ulnet.dlc.config import read_config
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import LnetConfigure, Request
from ulnet.dlc.protocol import Answer
from ulnet.host import NumaNode, Topology
from ulnet.lnd.o2ib import NiState as O2ibState
from ulnet.lnd.o2ib import O2ibLnd
from ulnet.lnd.sim import SimLnd, SimStation
from ulnet.nid import LO_NID, Nid
from ulnet.node import Node
from ulnet.node.admin import Admin
from ulnet.node.node import Recovery
from ulnet.sim.awaited import await_call, count_nids
from ulnet.sim.cables import Host
from ulnet.sim.clock import NodeLoop
from ulnet.sim.streaming import Streaming
from ulnet.sim.traffic import Inbox, Operation
from ulnet.sim.verbs import SimVerbs
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL
from ulnet.wire.ping import MIN_INFO_SIZE

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.sim.simulation import Simulation

__all__ = ["SimNode"]

T = TypeVar("T")
_FIRST_COOKIE = 1_700_000_000_000_000_000
_ONE_CPU = Topology((NumaNode(0, (0,), (10,)),), {})


class SimNode:
    """One node of a simulation. All it needs to come up again after `kill` is remembered.

    `core` is its LNet, `node` the Node around it, `admin` what answers requests. NIDs may be text.
    """

    def __init__(
        self,
        sim: Simulation,
        name: str,
        host: Host,
        topology: Topology | None = None,
        balance: Balance = "expected",
        recovery: Recovery = "backoff",
    ) -> None:
        self.sim = sim
        self.name = name
        self.host = host
        self.index: int = len(sim.nodes)
        self.topology: Topology = topology or _ONE_CPU
        self._balance = balance
        self._recovery = recovery
        self.cpu: int = min(cpu for node in self.topology.nodes for cpu in node.cpus)  # where its thread runs
        self.memory_node = -1  # the NUMA node where its memory is; -1: not known
        self.lives: int = 0
        self.alive: bool = False
        self.looks_due = 0  # events until the simulation looks at all that it has
        self.touched = False  # it did something in this event
        self._resends: list[int] = []
        self.resent: int = 0  # how many messages it had sent again by its counter, when it was last looked at
        self.reports: list[str] = []  # lines for the log
        self.operations: dict[Operation, None] = {}  # of this life, not ended
        self.streams: dict[Streaming, None] = {}  # the same
        self.inboxes: list[Inbox] = []
        self.names: list[tuple[Nid, int]] = []  # that were locked in this life, and when
        self._startup: list[Callable[[], object]] = []
        self._configuration: list[Callable[[], object]] = []  # the steps of it that may be done again
        self.past: list[NodeLoop] = []  # of earlier lives: what was under way in them must never go on
        self.loop: NodeLoop
        self.node: Node
        self.admin: Admin
        self.o2ib: O2ibLnd
        self.core: LNet  # while that is shut down, the last one
        self._boot()

    def __str__(self) -> str:
        return self.name

    # Life ---------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        sim = self.sim
        self.lives += 1
        self.names.clear()
        rng = sim.chance(f"{self.name}/{self.lives}")
        self.loop = NodeLoop(  # type: ignore[abstract]  # what asyncio has for sockets is not used
            sim.scheduler,
            self.name,
            rng,
            offset=float(rng.randrange(1000, 100_000)),
            lateness=sim.lateness,
            ran=lambda: sim.touch(self),
            failed=self._report,
        )
        self.node = Node(
            topology=self.topology,
            drivers=self._drivers,
            balance=self._balance,
            recovery=self._recovery,
            cookie=self._cookie,
            secret=bytes,
            report=self._report,
            chance=sim.chance(f"{self.name}/{self.lives}/faults").random,
        )
        self.node.machine.current_cpu = lambda: self.cpu
        if len(self.topology.nodes) > 1:
            self.node.machine.node_of_memory = lambda memory: self.memory_node
        self.admin = Admin(self.node, host=self.host.links)
        self._now(self.admin.handle(LnetConfigure()))
        self.alive = True

    def _drivers(self, core: LNet) -> Sequence[Lnd]:
        """The drivers of a new LNet, which is this node's from now on."""
        if self.alive:  # it was unconfigured, and is configured again, in one life
            self._resends.append(self.core.stats.resend_count)
            self.resent = 0
        self.core = core
        self.o2ib = O2ibLnd(
            core, self.loop, SimVerbs(self.host), realtime_ns=self._cookie, report=self._report
        )
        return [SimLnd(core, self.host), self.o2ib]

    def _cookie(self) -> int:
        return _FIRST_COOKIE + int(self.sim.now * 1e9) + (self.index << 20) + self.lives

    def _report(self, line: str) -> None:
        self.reports.append(line)
        self.sim.reported(self, line)

    def kill(self, silent: bool = False) -> None:
        """End the node at once: its host resets its connections or, if silent, has no power."""
        if not self.alive:
            return
        self.alive = False
        self._resends.append(self.core.stats.resend_count)
        self.resent = 0
        self.loop.kill()
        self.past.append(self.loop)
        self.host.die(silent)
        self.operations.clear()
        self.streams.clear()
        self.sim.note(f"kill {self.name} silent={silent}")

    def restart(self) -> None:
        """Start the node anew, with a new cookie and nothing remembered but its configuration."""
        self.kill()
        self.host.power_on()
        self.sim.note(f"start {self.name}")
        self._boot()
        for step in list(self._startup):
            self.loop.enter(step)

    def _now(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run what needs no time."""
        try:
            while self.loop.enter(coro.send, None) is None:  # a turn for others, of whom there are none now
                pass
        except StopIteration as end:
            result: T = end.value
            return result
        coro.close()
        raise RuntimeError("that takes virtual time: use call()")

    def sleep(self, seconds: float) -> None:
        """Its process does not run for so long: nothing is read, nothing sent is told, no timer fires."""
        until = max(self.sim.now + seconds, self.host.awake_at)
        self.host.awake_at = self.loop.awake_at = until
        self.sim.fabric.faults["sleeps"] += 1
        self.sim.scheduler.at(until, self._woke, self.loop, seconds)

    def _woke(self, loop: NodeLoop, seconds: float) -> None:
        """The driver's timer finds out."""
        if loop.alive and self.busy:  # else no timer was running
            loop.enter(self.core.slept, seconds)

    # Configuration ------------------------------------------------------------------------------------

    def add_ni(
        self,
        nid: Nid | str,
        *,
        tunables: NetTunables | None = None,
        lnd_tunables: LndTunables | None = None,
    ) -> NI:
        """Add an NI, with an interface for its address if the host has none. Raises LNetError."""
        nid = _nid(nid)
        port = self.host.port_of(nid) or self.sim.add_port(self, nid)

        def add() -> NI:
            return self.node.add_ni(nid, interface=port.name, tunables=tunables, lnd_tunables=lnd_tunables)

        def add_again() -> None:
            if nid not in self.core.nis:  # it may have come and gone several times in a former life
                add()

        ni = self.loop.enter(add)
        self._startup.append(add_again)
        self._configuration.append(add_again)
        return ni

    def each_life(self, begin: Callable[[], None]) -> None:
        """Have a program begin now, and again in each later life."""
        self.loop.enter(begin)
        self._startup.append(begin)

    def del_ni(self, nid: Nid | str) -> None:
        """Remove an NI at once, whatever waits on it. Raises LNetError."""
        self.loop.enter(self.core.del_ni, _nid(nid))

    def add_peer(self, primary: Nid | str, *nids: Nid | str, multi_rail: bool = True) -> None:
        """Configure a peer. Raises LNetError."""

        def add() -> None:
            self.node.add_peer(primary, nids, multi_rail=multi_rail)

        self.loop.enter(add)
        self._startup.append(add)

    def name_peer(self, *nids: Nid | str) -> Nid:
        """Name a peer, as an upper layer does; its primary NID. Raises LNetError."""
        primary: Nid = self.loop.enter(self.node.name_peer, nids)
        peer = self.core.peers.find(primary)
        if peer is not None and named(peer):
            self.names.append((primary, peer.locked_at))
        return primary

    def configure(self, yaml: str) -> list[ErrorItem]:
        """Apply lnetctl YAML; the errors, if any. It is applied again after a restart."""
        config = read_config(yaml)
        if config.errors:
            return config.errors

        def apply() -> list[ErrorItem]:
            return self._now(self.admin.apply(config.steps))

        self._startup.append(apply)
        self._configuration.append(apply)
        return apply()

    def configure_again(self) -> None:
        """Apply all NIs and YAML again that it was given: what was taken away since is back."""
        for step in list(self._configuration):
            with suppress(LNetError):
                self.loop.enter(step)

    def request(self, request: Request, limit: float = 1000.0) -> Answer:
        """Have a request answered, however much virtual time that takes. Raises DlcError, SimError."""
        return self.call(self.admin.handle(request), limit)

    def call(self, coro: Coroutine[Any, Any, T], limit: float = 1000.0) -> T:
        """Run a coroutine on this node, and the simulation with it until it is done."""
        task = self.spawn(coro)
        self.sim.run_until(task.done, limit)
        result: T = task.result()
        return result

    def spawn(self, coro: Coroutine[Any, Any, T]) -> Any:
        """Begin a coroutine on this node: an asyncio task."""
        return self.loop.enter(self.loop.create_task, coro)

    @property
    def nids(self) -> list[Nid]:
        """Its NIDs without `0@lo`, in the order they were added."""
        return [nid for nid in self.core.nis if nid != LO_NID]

    @property
    def nid(self) -> Nid:
        """The first of them."""
        return self.nids[0]

    @property
    def in_hand(self) -> list[Msg]:
        """The messages that its drivers have."""
        found: list[Msg] = []
        for ni in self.core.nis.values():
            station = ni.lnd_data
            if isinstance(station, SimStation):
                found += station.flying.values()
            elif isinstance(station, O2ibState):
                found += [tx.msg for tx in station.in_hand if tx.msg is not None]
                found += station.failures.msgs
            elif isinstance(station, BondNi):
                found += station.in_hand
        return found

    @property
    def resends(self) -> list[int]:
        """How many messages it has sent again: in each of its lives, and up to each reset of its counters."""
        return [*self._resends, self.core.stats.resend_count]

    def counters_reset(self) -> None:
        """The counter of resends begins anew."""
        self._resends.append(self.resent)

    @property
    def busy(self) -> bool:
        """Whether anything is under way or awaited."""
        core = self.core
        stats = core.stats
        asked = stats.msgs_alloc > 0 or core.memory.awaits_any or len(self.streams) > 0
        return self.alive and (asked or core.state.work_pending or self.loop.sleeps)

    # Messages -----------------------------------------------------------------------------------------

    def attach(
        self,
        portal: int,
        match_bits: int = 0,
        *,
        ignore_bits: int = (1 << 64) - 1,
        size: int = 1 << 20,
        keep_data: bool = True,
        lazy: bool = False,
        mistaken: bool = False,
    ) -> Inbox:
        """Memory for PUTs and GETs, all of which begin at its start; by default for all match bits.

        Where it is `mistaken`, the program's handler raises an exception at the end of each event.
        """
        inbox = Inbox(keep_data)
        self.inboxes.append(inbox)

        def handle(event: Event) -> None:
            self._delivered(inbox, event)
            if mistaken:
                raise ValueError(f"the program does not like {copy(event)!r}")

        def attach() -> None:
            memory = self.core.memory
            if lazy:
                memory.set_lazy(portal)
            me = memory.me_attach(portal, match_bits=match_bits, ignore_bits=ignore_bits)
            inbox.md = memory.md_attach(
                me,
                bytearray(size),
                handle,
                options=OP_PUT | OP_GET | TRUNCATE | MANAGE_REMOTE,
                threshold=INFINITE,
            )

        self.loop.enter(attach)
        self._startup.append(attach)
        return inbox

    def _delivered(self, inbox: Inbox, event: Event) -> None:
        inbox.take(event, self.sim.now)
        for look in self.sim.deliveries:
            wrong = look(self, event)
            if wrong:
                self.sim.broken(self, wrong)
        if event.kind is EventKind.PUT and not event.status:
            memory = event.md.fragments[0].obj if event.md.fragments else None
            self.sim.ledger.arrived(event, self.host.landed.get(id(memory), ()))

    def put(
        self,
        target: Nid | str,
        portal: int,
        match_bits: int = 0,
        data: bytes = b"",
        *,
        ack: bool = True,
        source: Nid | str | None = None,
        timeout: float | None = None,
        cpt: int | None = None,
    ) -> Operation:
        """Send data. Raises LNetError for what cannot even begin."""
        target = _nid(target)
        wanted = EventKind.ACK if ack else EventKind.SEND
        operation = Operation("put", target, wanted, self.sim.next_number(), len(data))
        self.sim.ledger.sent(self, operation, data, (portal, match_bits))

        def begin() -> None:
            md = operation.md = self.core.memory.md_bind(
                data, self._handler(operation), threshold=2 if ack else 1, timeout=timeout, cpt=cpt
            )
            self.core.put(
                md,
                target,
                portal,
                match_bits,
                ack=ack,
                hdr_data=operation.number,
                source=_nid(source) if source is not None else None,
            )

        return self._begin(operation, begin)

    def get(
        self,
        target: Nid | str,
        portal: int,
        match_bits: int = 0,
        size: int = 0,
        *,
        source: Nid | str | None = None,
        timeout: float | None = None,
        cpt: int | None = None,
    ) -> Operation:
        """Fetch `size` bytes into `Operation.buffer`. Raises LNetError for what cannot even begin."""
        target = _nid(target)
        operation = Operation("get", target, EventKind.REPLY, self.sim.next_number(), size)
        operation.buffer = bytearray(size)

        def begin() -> None:
            md = operation.md = self.core.memory.md_bind(
                operation.buffer,
                self._handler(operation),
                threshold=2,
                options=TRUNCATE,
                timeout=timeout,
                cpt=cpt,
            )
            source_nid = _nid(source) if source is not None else None
            self.core.get(md, target, portal, match_bits, source=source_nid)

        return self._begin(operation, begin)

    def stream(
        self,
        target: Nid | str,
        portal: int,
        match_bits: int = 0,
        *,
        kind: str = "put",
        size: int = 0,
        count: int = 100,
        window: int = 8,
        ack: bool = True,
        begun: Callable[[Operation], None] = lambda operation: None,
    ) -> Streaming:
        """Keep a window of PUTs or GETs of one memory descriptor under way; `begun` is told of each.

        Raises LNetError for what cannot even begin.
        """
        data = bytearray(self.sim.next_number().to_bytes(8, "big") * (size // 8 + 1))[:size]
        made = Streaming(
            self,
            _nid(target),
            portal,
            match_bits,
            data,
            kind=kind,
            count=count,
            window=window,
            ack=ack,
            begun=begun,
        )
        self.streams[made] = None
        try:
            self.loop.enter(made.begin)
        except LNetError:
            self.streams.pop(made, None)
            raise
        return made

    def await_put(
        self,
        target: Nid | str,
        portal: int,
        match_bits: int = 0,
        data: bytes = b"",
        *,
        ack: bool = True,
        timeout: float | None = None,
        cpt: int | None = None,
    ) -> Operation:
        """Send data as a program does, by `Node.put` in a task of its own."""
        target = _nid(target)
        operation = Operation(
            "put", target, EventKind.ACK if ack else EventKind.SEND, self.sim.next_number(), len(data)
        )
        self.sim.ledger.sent(self, operation, data, (portal, match_bits))
        put, number = self.node.put, operation.number
        return await_call(
            self,
            operation,
            lambda: put(target, portal, match_bits, data, ack=ack, hdr_data=number, timeout=timeout, cpt=cpt),
        )

    def await_get(
        self,
        target: Nid | str,
        portal: int,
        match_bits: int = 0,
        size: int = 0,
        *,
        timeout: float | None = None,
        cpt: int | None = None,
    ) -> Operation:
        """Fetch `size` bytes as a program does, by `Node.get` in a task of its own."""
        target = _nid(target)
        operation = Operation("get", target, EventKind.REPLY, self.sim.next_number(), size)
        operation.buffer = bytearray(size)
        get, buffer = self.node.get, operation.buffer
        return await_call(
            self, operation, lambda: get(target, portal, match_bits, buffer, timeout=timeout, cpt=cpt)
        )

    def await_ping(self, target: Nid | str, timeout: float = 10.0) -> Operation:
        """Ask for NIDs as a program does, by `Node.ping` in a task of its own."""
        target = _nid(target)
        operation = Operation("ping", target, EventKind.REPLY, self.sim.next_number(), 0)
        return await_call(self, operation, lambda: count_nids(self, target, timeout))

    def ping(self, target: Nid | str, size: int = MIN_INFO_SIZE, timeout: float = 10.0) -> Operation:
        """A bare ping: GET of the ping buffer."""
        operation = self.get(target, PING_PORTAL, PING_MATCH_BITS, size, timeout=timeout)
        operation.kind = "ping"
        return operation

    def _begin(self, operation: Operation, begin: Callable[[], None]) -> Operation:
        self.operations[operation] = None
        try:
            self.loop.enter(begin)
        except Exception:
            self.operations.pop(operation, None)
            if operation.md is not None:
                self.loop.enter(self.core.memory.md_unlink, operation.md)
            raise
        return operation

    def _handler(self, operation: Operation) -> EventHandler:
        """What takes the events of an operation, as long as this life lasts."""
        loop, memory = self.loop, self.core.memory

        def handle(event: Event) -> None:
            if not loop.alive:
                return
            operation.handle(event)
            if operation.broken:
                self.sim.broken(self, operation.broken)
            if operation.ended:
                self.operations.pop(operation, None)
            elif operation.status and operation.md is not None:  # as Node.put does: nothing more is wanted
                memory.md_unlink(operation.md)

        return handle


def _nid(nid: Nid | str) -> Nid:
    return nid if isinstance(nid, Nid) else Nid.parse(nid)
