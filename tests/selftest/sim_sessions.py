"""Random sessions of selftest in the simulator: from a seed nodes, consoles that command, and faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from ulnet.core.faults.rule import Fault, FaultKind
from ulnet.core.status import LNetError
from ulnet.dlc import model_selftest as ask
from ulnet.dlc.documents_selftest import ActiveDocument, CountersDocument
from ulnet.nid import ANY_NID
from ulnet.selftest import Selftest
from ulnet.selftest.console import Console
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode
from ulnet.wire.selftest import BULK_PORTAL, FRAMEWORK_PORTAL, TEST_PORTAL

PORTALS = 1 << TEST_PORTAL | 1 << FRAMEWORK_PORTAL | 1 << BULK_PORTAL
SESSION, RPC = 30.0, 10.0  # time-outs in seconds
KINDS = ("link", "partition", "restart", "leave", "console dies", "drop", "delay", "sleep")


@dataclass
class World:
    """A run of one seed: node 0 has the console, and takes part in tests as the others do."""

    seed: int
    sim: Simulation = field(init=False)
    rng: Random = field(init=False)
    nodes: list[SimNode] = field(default_factory=list)
    tests: dict[SimNode, Selftest] = field(default_factory=dict)
    consoles: dict[SimNode, Console] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    moved: int = 0  # the most bulk that a node told of

    def __post_init__(self) -> None:
        self.rng = Random(f"selftest/{self.seed}")
        rate = self.rng.choice([1e8, 1e9])
        self.sim = Simulation(self.seed, link=LinkParams(rate, 0.01, loss=self.rng.choice([0.0, 0.002])))
        for number in range(self.rng.randint(2, 5)):
            nids = (f"10.0.0.{number + 1}@tcp", f"10.1.0.{number + 1}@tcp1")
            self.nodes.append(self.sim.node(f"n{number}", *nids))
            self.serve(self.nodes[-1])

    def serve(self, node: SimNode) -> None:
        """Take part in this life of the node."""
        wall = self.wall(node)
        test = Selftest(node.node, session_timeout=SESSION, rpc_timeout=RPC, wall=wall)
        node.loop.enter(test.start)
        self.tests[node] = test
        self.consoles[node] = Console(test.exchange)

    @staticmethod
    def wall(node: SimNode) -> Callable[[], int]:
        """The time of day in this life of the node, in nanoseconds."""
        loop = node.loop
        return lambda: int(loop.time() * 1e9)

    # The console -----------------------------------------------------------------------------------

    async def program(self, node: SimNode, rng: Random) -> None:
        """Some sessions, one after the other; what goes wrong is counted, and the next command comes."""
        console = self.consoles[node]
        for _ in range(rng.randint(1, 3)):
            await self.session(console, rng)

    async def session(self, console: Console, rng: Random) -> None:
        async def do(command: ask.Command) -> object:
            try:
                done = await console.do(ask.Lst(7, command))
                self.counts["done"] += 1
                return done
            except LNetError:
                self.counts["refused"] += 1
                return None

        ids = [str(node.nid) for node in self.nodes]
        await do(ask.SessionNew("s", rng.choice([0, 60]), rng.random() < 0.5, rng.choice([0, 1, 1])))
        half = rng.randint(1, len(ids) - 1)
        await do(ask.GroupAdd("c", ids[:half]))
        await do(ask.GroupAdd("s", ids[half:]))
        for _ in range(rng.randint(1, 3)):
            await do(self.test(rng))
        await do(ask.BatchRun())
        for _ in range(rng.randint(1, 4)):
            await asyncio.sleep(rng.choice([0.01, 0.5, 5.0, 20.0]))
            looks: list[ask.Command] = [ask.Counters(["c", "s"]), ask.BatchQuery(), ask.NodesPing()]
            told = await do(rng.choice(looks))
            if isinstance(told, CountersDocument):
                self.look(told)
        if rng.random() < 0.7:
            await do(ask.BatchStop(force=rng.random() < 0.5))
            for _ in range(20):
                left = await do(ask.BatchQuery())
                if not (isinstance(left, ActiveDocument) and any(node.active for node in left.nodes)):
                    break
                await asyncio.sleep(1.0)
        if rng.random() < 0.2:
            await do(ask.GroupUpdate("c", refresh=True))
        if rng.random() < 0.8:
            await do(ask.SessionEnd())

    def test(self, rng: Random) -> ask.TestAdd:
        size = rng.choice([4096, 8192, 1 << 20])
        check = rng.choice(["none", "simple", "full", "discard"])
        brw = ask.Brw(rng.choice(["read", "write"]), size, check) if rng.random() < 0.7 else None  # type: ignore[arg-type]
        # fmt: off
        return ask.TestAdd(
            "c", "s", loop=rng.choice([-1, 1, 20]), concurrency=rng.choice([1, 3]),
            distribute=rng.randint(1, 2), span=rng.randint(1, 3), brw=brw, stop_on_error=rng.random() < 0.5,
        )
        # fmt: on

    def look(self, told: CountersDocument) -> None:
        for view in told.of:
            for node in view.nodes:
                self.moved = max(self.moved, node.rpc.get("bulk_get", 0), node.rpc.get("bulk_put", 0))

    # Faults ----------------------------------------------------------------------------------------

    def faults(self) -> None:
        """Plan some, all of which have ended after 100 s."""
        rng, sim = self.rng, self.sim
        for _ in range(rng.choice([0, 1, 2, 4])):
            begin = rng.choice([0.05, 1.0, 20.0]) * rng.random()
            end = begin + rng.choice([0.05, 1.0, 20.0, 60.0]) * rng.random()
            kind = rng.choice(KINDS)
            self.counts[kind] += 1
            node = rng.choice(self.nodes)
            if kind == "link":
                port = f"{node.name}.eth{rng.randint(0, 1)}"
                sim.scheduler.at(begin, sim.link_down, port)
                sim.scheduler.at(end, sim.link_up, port)
            elif kind == "partition":
                other = rng.choice([one for one in self.nodes if one is not node])
                sim.scheduler.at(begin, sim.partition, [node.name], [other.name])
                sim.scheduler.at(end, sim.heal)
            elif kind in ("restart", "leave"):
                sim.scheduler.at(begin, self.die, rng.choice(self.nodes[1:]), kind == "leave")
                sim.scheduler.at(end, self.live)
            elif kind == "console dies":
                sim.scheduler.at(begin, self.die, self.nodes[0], rng.random() < 0.5)
                sim.scheduler.at(end, self.live)
            elif kind == "sleep":
                sim.scheduler.at(begin, self.nap, node, min(end - begin, 20.0))
            else:
                rate, latency = rng.choice([1, 2, 3, 10]), rng.choice([0.01, 0.7, 5.0])
                fault = Fault(
                    *(FaultKind(kind), ANY_NID, ANY_NID), portals=PORTALS, rate=rate, latency=latency
                )
                sim.scheduler.at(begin, self.spoil, node, fault)
                sim.scheduler.at(end, self.spoil_no_more, node)

    def die(self, node: SimNode, silent: bool) -> None:
        if node.alive:
            self.tests.pop(node, None)
            self.consoles.pop(node, None)
            node.kill(silent=silent)

    def live(self) -> None:
        for node in self.nodes:
            if not node.alive:
                node.restart()
                self.serve(node)

    @staticmethod
    def spoil(node: SimNode, fault: Fault) -> None:
        if node.alive:
            node.loop.enter(node.core.faults.add, fault)

    @staticmethod
    def spoil_no_more(node: SimNode) -> None:
        if node.alive:
            node.loop.enter(node.core.faults.close)

    @staticmethod
    def nap(node: SimNode, seconds: float) -> None:
        if node.alive:
            node.sleep(seconds)

    # The run ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises AssertionError, and what the simulation raises."""
        first = self.nodes[0]
        first.spawn(self.program(first, self.sim.chance("console")))
        self.faults()
        self.sim.run(400.0)  # programs end before; those that died with their console never do
        self.sim.heal()
        self.live()
        for console in self.consoles.values():
            if console.roster is not None:  # its program forgot to end it
                first.spawn(console.close())
        self.sim.run(SESSION + 2 * RPC + 60.0)
        self.check()

    def check(self) -> None:
        """Every session has ended, nothing is posted, nobody waits."""
        for node, test in self.tests.items():
            framework = test.framework
            assert framework.session is None, f"{node} has a session still"
            assert not framework.zombies, f"{node} has a session that does not end"
            core = node.core
            bulk = core.memory.portals[BULK_PORTAL]
            posted = [] if bulk is None else [me for me in bulk.entries() if not me.ignore_bits]
            assert posted == [], f"{node} has memory posted"  # beside that for replies
            assert not test.exchange.busy, f"{node} works on requests still"
            with suppress(LNetError):
                node.loop.enter(test.exchange.stop)
        self.sim.run_until_quiet()
