"""A simulation: nodes on a virtual network, with one clock and one seed (docs/design/simulator.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from heapq import heappop
from math import inf
from random import Random
from typing import TypeVar

from ulnet.core.event import Event
from ulnet.core.selection import Balance
from ulnet.host import Topology
from ulnet.nid import Nid
from ulnet.node.node import Recovery
from ulnet.sim.cables import Cut, Fabric, Host, LinkParams, Port
from ulnet.sim.errors import Broken, NotQuiet, PlanError, SimError
from ulnet.sim.foreign import ForeignNode, Heard, SingleRailNode
from ulnet.sim.garbage import SeldomCollected
from ulnet.sim.invariants import at_rest, credits_in_use, forgotten_memory, now_and_then, quickly
from ulnet.sim.ledger import Ledger
from ulnet.sim.node import SimNode
from ulnet.sim.places import Place, find_port, find_ports
from ulnet.sim.rdma_invariants import rdma_at_rest
from ulnet.sim.scheduler import Scheduler

__all__ = ["Simulation"]

F = TypeVar("F", bound=ForeignNode)
_LEAST_GAP = 1e-3  # seconds without an event: a good moment to see whether all is quiet
_LAN = "lan"  # the switch that all ports are on unless told otherwise
_BUGS = (
    "event handler failed",
    "driver finalized",
    "call failed",
)  # beginnings of log lines that are a failure
_EVERY, _MORE = 8, 4  # events between two looks at all that a node has: so many, and more for each thing


class Simulation:
    """Everything of one run follows from `seed` and from the calls that are made.

    `link` is what cables are like unless told otherwise; `lateness` how many seconds a node's next step may
    be late. With `trace`, all that happens is kept as lines. Invariants are looked at after every event,
    unless `check` is false; `thorough` looks at peers and memory each time too.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        link: LinkParams | None = None,
        lateness: float = 20e-6,
        trace: bool = False,
        check: bool = True,
        thorough: bool = False,
    ) -> None:
        self._seldom_collected = SeldomCollected()
        self.seed = seed
        self.link: LinkParams = link or LinkParams()
        self.lateness = lateness
        self.scheduler: Scheduler = Scheduler()
        self.fabric: Fabric = Fabric(self.scheduler, self.chance("fabric"), self.chance("reading"), lateness)
        self.nodes: dict[str, SimNode] = {}
        self.foreigners: dict[str, ForeignNode] = {}
        self.ledger: Ledger = Ledger()
        self.trace: list[str] = []
        self.checks: int = 0  # of invariants, on one node
        self.busy: list[Callable[[SimNode], bool]] = [lambda node: node.busy]
        self.properties: list[Callable[[SimNode], str]] = [
            _credits_in_use
        ]  # more to check, now and then and at rest
        # To check as a handler is told of a message.
        self.deliveries: list[Callable[[SimNode, Event], str]] = []
        self.allowed_reports: tuple[str, ...] = ()  # beginnings of log lines that are no failure after all
        self.most_events = 1 << 62  # a run that has more goes in circles
        self._check = check
        self.thorough = thorough
        self._touched: list[SimNode] = []
        self._numbers = 0
        self._broken = ""
        self.tracing = trace
        if trace:
            self.fabric.note = self.note

    # Making ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.scheduler.now

    def chance(self, use: str) -> Random:
        """A stream of random numbers for one use: what one use draws changes nothing for others."""
        return Random(f"{self.seed}/{use}")

    def next_number(self) -> int:
        """A number for an operation."""
        self._numbers += 1
        return self._numbers

    def foreign(
        self, name: str, *nids: Nid | str, on_message: Callable[[Heard], None] | None = None
    ) -> ForeignNode:
        """A scripted node that speaks bytes. Raises LNetError, NidError, PlanError."""
        host, known = self._host(name, nids)
        return self._keep(ForeignNode(name, host, known, on_message))

    def single_rail(self, name: str, *nids: Nid | str) -> SingleRailNode:
        """A node of the generation before multi-rail. Raises LNetError, NidError, PlanError."""
        host, known = self._host(name, nids)

        def took(heard: Heard) -> None:
            self.ledger.delivered(heard.hdr.hdr_data, heard.payload)

        return self._keep(SingleRailNode(name, host, known, took))

    def _keep(self, node: F) -> F:
        self.foreigners[node.name] = node
        return node

    def _host(self, name: str, nids: Iterable[Nid | str]) -> tuple[Host, list[Nid]]:
        """A host with a port for each address."""
        if name in self.fabric.hosts:
            raise PlanError(f"there is a node {name} already: choose another name")
        host = Host(self.fabric, name)
        known = [nid if isinstance(nid, Nid) else Nid.parse(nid) for nid in nids]
        for nid in known:
            if host.port_of(nid) is None:
                self.add_port(host, nid)
        return host, known

    def node(
        self,
        name: str,
        *nids: Nid | str,
        config: str = "",
        link: LinkParams | None = None,
        topology: Topology | None = None,
        balance: Balance = "expected",
        recovery: Recovery = "backoff",
    ) -> SimNode:
        """A started node with these NIs, each on an interface of its own for its address.

        `config` is lnetctl YAML, applied after that; `topology` are its NUMA nodes, by default one;
        `balance` and `recovery` are those of `ulnet.Node`. Raises LNetError, NidError, PlanError.
        """
        host, _ = self._host(name, ())
        made = self.nodes[name] = SimNode(self, name, host, topology, balance, recovery)
        host.touch = lambda: self.touch(made)
        for nid in nids:
            nid = nid if isinstance(nid, Nid) else Nid.parse(nid)
            if host.port_of(nid) is None:
                self.add_port(host, nid, link)
            made.add_ni(nid)
        if config:
            errors = made.configure(config)
            if errors:
                raise PlanError("; ".join(error.descr for error in errors))
        return made

    def add_port(
        self,
        node: SimNode | Host,
        nid: Nid | str,
        link: LinkParams | None = None,
        switch: str | None = None,
        name: str | None = None,
    ) -> Port:
        """An interface for a NID's address: eth0, eth1… Without `switch` it is on the one of all."""
        nid = nid if isinstance(nid, Nid) else Nid.parse(nid)
        host = node.host if isinstance(node, SimNode) else node
        name = name or f"eth{len(host.ports)}"
        address = str(nid).partition("@")[0]
        return host.add_port(name, switch or _LAN, [address], link or self.link)

    # Running --------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One event; False when there is none left. Raises Broken, NotQuiet."""
        if not self.scheduler.heap:
            return False
        self._step()
        return True

    def _step(self) -> None:
        scheduler = self.scheduler
        scheduler.now, _, call, args = heappop(scheduler.heap)
        scheduler.events += 1
        try:
            call(*args)
        except SimError:
            raise
        except Exception as error:
            error.add_note(self._where())
            raise
        if self._touched:
            self._look()
        if self._broken:
            raise Broken(f"{self._broken} ({self._where()})")
        if scheduler.events > self.most_events:
            raise NotQuiet(f"no end after {self.most_events} events ({self._where()})")

    def run(self, seconds: float) -> None:
        """Let that much virtual time pass."""
        self.run_until(lambda: False, seconds, must=False)

    def run_until(self, done: Callable[[], bool], limit: float = 1000.0, must: bool = True) -> None:
        """Run until done() or for `limit` virtual seconds; NotQuiet if it `must` have been done by then."""
        until = self.now + limit
        scheduler, heap, step = self.scheduler, self.scheduler.heap, self._step
        while not done():
            if not heap or heap[0][0] > until:
                scheduler.now = max(scheduler.now, until)
                if must and not done():
                    raise NotQuiet(f"not done after {limit:g} virtual seconds ({self._where()})")
                return
            step()

    def run_until_quiet(self, limit: float = 1000.0) -> None:
        """Run until no message is under way or awaited, anywhere; then check all invariants.

        Raises NotQuiet after `limit` virtual seconds, and Broken.
        """
        until = self.now + limit
        scheduler, heap, step = self.scheduler, self.scheduler.heap, self._step
        while True:
            following = heap[0][0] if heap else inf
            calm = following > scheduler.now + _LEAST_GAP
            if calm and not self.fabric.under_way and not self._busy_node():
                break
            if following > until or not heap:
                raise NotQuiet(f"not quiet after {limit:g} virtual seconds: {self._what_is_busy()}")
            step()
        self.check_at_rest()

    def is_busy(self, node: SimNode) -> bool:
        """Whether something is under way or awaited on a node."""
        for busy in self.busy:  # noqa: SIM110 - asked of each node whenever all may be quiet
            if busy(node):
                return True
        return False

    def _busy_node(self) -> bool:
        for node in self.nodes.values():  # noqa: SIM110 - a generator is Python, whatever is compiled
            if self.is_busy(node):
                return True
        return False

    def _what_is_busy(self) -> str:
        busy = ", ".join(str(node) for node in self.nodes.values() if self.is_busy(node)) or "none"
        return f"{self.fabric.under_way} frames under way, busy nodes: {busy} ({self._where()})"

    # Faults ---------------------------------------------------------------------------------------------

    def port(self, where: str | Nid | Port) -> Port:
        """A port by name (`a.eth0`) or NID. Raises PlanError."""
        return find_port(self.fabric, where)

    def link_down(self, where: str | Nid | Port) -> None:
        """Pull a cable: its host notices, others only miss what came that way."""
        self._set_link(self.port(where), False)

    def link_up(self, where: str | Nid | Port) -> None:
        """Put the cable back."""
        self._set_link(self.port(where), True)

    def _set_link(self, port: Port, up: bool) -> None:
        self.note(f"link {port} {'up' if up else 'down'}")
        port.host.set_link(port, up)
        if self._touched:
            self._look()

    def partition(
        self,
        src: Iterable[Place],
        dst: Iterable[Place],
        *,
        both: bool = True,
    ) -> list[Cut]:
        """Nothing passes from src to dst (nor back, if `both`), and nobody is told. `heal` ends it."""
        a, b = find_ports(self.fabric, src), find_ports(self.fabric, dst)
        self.note(f"partition {[str(port) for port in a]} {[str(port) for port in b]} both={both}")
        cuts = [self.fabric.cut(a, b)]
        if both:
            cuts.append(self.fabric.cut(b, a))
        return cuts

    def heal(self, cuts: Iterable[Cut] | None = None) -> None:
        """End these partitions, or all."""
        self.note("heal")
        for cut in list(self.fabric.cuts) if cuts is None else cuts:
            self.fabric.heal(cut)

    # Judging --------------------------------------------------------------------------------------------

    def touch(self, node: SimNode) -> None:
        """A node did something: it is looked at after this event."""
        if not node.touched:
            node.touched = True
            self._touched.append(node)

    def _look(self) -> None:
        touched, self._touched = self._touched, []
        for node in touched:
            node.touched = False
            if not node.alive or not self._check:
                continue
            self.checks += 1
            core = node.core
            resent = core.stats.resend_count
            if resent < node.resent:
                node.counters_reset()
            node.resent = resent
            wrong = quickly(core)
            due = node.looks_due
            if due or wrong:
                node.looks_due = due - 1
            else:
                # A look at all costs as much as there is: so it comes the more seldom, the more there is.
                if not self.thorough:
                    node.looks_due = _EVERY + _MORE * (len(core.peers) + len(core.memory.mds))
                wrong = now_and_then(core) or self._own_properties(node)
            if wrong:
                self.broken(node, wrong)

    def _own_properties(self, node: SimNode) -> str:
        for look in self.properties:
            wrong = look(node)
            if wrong:
                return wrong
        return ""

    def check(self) -> None:
        """Look at all nodes now. Raises Broken."""
        for node in self.nodes.values():
            if node.alive:
                core = node.core
                wrong = quickly(core) or now_and_then(core) or self._own_properties(node)
                if wrong:
                    self.broken(node, wrong)
        if self._broken:
            raise Broken(f"{self._broken} ({self._where()})")

    def check_at_rest(self) -> None:
        """What must hold when nothing is under way: everything is back where it began. Raises Broken."""
        self.check()
        for node in self.nodes.values():
            if not node.alive:
                continue
            core = node.core
            wrong = at_rest(core)
            if not wrong and node.operations:
                wrong = f"{next(iter(node.operations))} never ended"
            if not wrong and node.streams:
                wrong = f"{next(iter(node.streams))} never ended"
            wrong = wrong or forgotten_memory(core) or rdma_at_rest(node.o2ib)
            if wrong:
                self.broken(node, f"at rest: {wrong}")
        wrong = self.ledger.check()
        if wrong and not self._broken:
            self._broken = wrong
        if self._broken:
            raise Broken(f"{self._broken} ({self._where()})")

    def broken(self, node: SimNode, what: str) -> None:
        """An invariant does not hold: the run ends after this event."""
        if not self._broken:
            self._broken = f"node {node}: {what}"

    def reported(self, node: SimNode, line: str) -> None:
        """A node wrote a line to its log. A failed handler or driver is a failed run."""
        self.note(f"log {node} {line}")
        if line.startswith(_BUGS) and not line.startswith(self.allowed_reports):
            self.broken(node, line)

    def _where(self) -> str:
        return f"seed {self.seed!r}, {self.now:.6f} s, event {self.scheduler.events}"

    # The trace ------------------------------------------------------------------------------------------

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        if self.tracing:
            self.trace.append(f"{self.scheduler.now:.9f} {line}")

    @property
    def digest(self) -> str:
        """A hash of the whole trace: equal if and only if the same things happened."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def _credits_in_use(node: SimNode) -> str:
    return credits_in_use(node.core, node.in_hand)
