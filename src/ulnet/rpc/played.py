"""Random runs of calls in the simulator: executed at most once, each ends exactly once, nothing is kept.

A service on one node, programs that call it on others (and on its own), among the faults of other recipes:
losses, restarts, partitions, fault rules, routers that die. Some requests come a second time, from somebody
who has seen them.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from ulnet.core.status import LNetError
from ulnet.rpc.call import Call
from ulnet.rpc.client import Client
from ulnet.rpc.errors import RpcError
from ulnet.rpc.server import Server
from ulnet.rpc.service import Service, bits_of
from ulnet.sim import faulty, routed
from ulnet.sim.actions import Restart, action_of
from ulnet.sim.awaited import spawn
from ulnet.sim.dice import Dice
from ulnet.sim.mending import mend
from ulnet.sim.node import SimNode
from ulnet.sim.plan import Plan
from ulnet.sim.random_plan import Shape, random_plan
from ulnet.sim.recipe import Recipe, register
from ulnet.sim.run import Run
from ulnet.wire.rpc import BULK_PORTAL, REQUEST_PORTAL

__all__ = ["RECIPE", "World", "random_calls"]

NAME: Final = "played"
_METHODS: Final = ("echo", "echo", "slow", "fail", "read", "write", "count")
_CHUNKS: Final = 100
_ECHOED: Final = 10_004  # bytes that a frame has room for
_BROKEN: Final = 90.0  # seconds: clients that are silent for 60 s count as gone
ERRORS: Final = frozenset(
    {
        *(errno.ETIMEDOUT, errno.ECONNRESET, errno.ENOENT, errno.ECANCELED, errno.ESHUTDOWN, errno.EREMOTEIO),
        *(errno.EHOSTUNREACH, errno.ENODATA, errno.ENOBUFS, errno.ENETDOWN, errno.ENETUNREACH, errno.EIO),
    }
)


def random_calls(seed: int) -> Plan:
    """The nodes and faults of another recipe, with few messages or none of its own."""
    rng = Random(f"calls/{seed}")
    quiet = Shape(messages=(0, 3), faults=(0, 5))
    makers: list[Callable[[int], Plan]]
    makers = [partial(random_plan, shape=quiet), faulty.random_fault_rules, routed.random_routes]
    (make,) = rng.choices(makers, [5, 2, 3])
    plan = make(seed)
    dice = Dice("calls/faults", seed)
    names = [name for name, node in plan.nodes.items() if node.kind == "node"]
    for _ in range(rng.choice([0, 0, 1])):
        at = rng.choice([0.01, 1.0, 20.0]) * rng.random()
        dice.add(at, "sleep", node=rng.choice(names), seconds=rng.choice([0.06, 1.0, 20.0]))
    events = sorted([*plan.events, *dice.events], key=lambda event: event.at)
    return msgspec.structs.replace(plan, events=events)


@dataclass
class Asked:
    """One call, and what became of it; `alive` as long as its node has the life in which it began."""

    number: int
    kind: str
    node: SimNode
    life: int
    idempotent: bool = False
    ends: int = 0
    error: RpcError | None = None
    cancelled: bool = False
    wrong: str = ""

    @property
    def alive(self) -> bool:
        """Whether it can still end."""
        return self.node.alive and self.node.lives == self.life

    def judge(self, executed: int) -> str:
        """What is wrong with its end; executed so many times."""
        if self.ends != 1 and (self.ends or self.alive):
            return f"it ended {self.ends} times"
        if self.wrong:
            return self.wrong
        if executed > 1 and not self.idempotent:
            return "it was executed more than once"
        if self.error is not None:
            return self._judge_error(self.error, executed)
        if self.ends and not self.cancelled and not executed:
            return "it ended well, and was not executed"
        return ""

    def _judge_error(self, error: RpcError, executed: int) -> str:
        if error.errno not in ERRORS:
            return f"it ended with {error}"
        if error.executed == "no" and executed:
            return f"it was executed, and the client was told that it was not: {error}"
        if error.executed == "yes" and not executed:
            return f"it was not executed, and the client was told that it was: {error}"
        return ""


@dataclass
class World:
    """The calls of one run."""

    run: Run
    executed: Counter[int] = field(default_factory=Counter)
    asked: list[Asked] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    programs: Counter[tuple[SimNode, int]] = field(default_factory=Counter)  # by node and life
    server: Server | None = None  # in this life of its node

    def begin(self) -> None:
        """Have the server serve, in each life of its node, and programs begin in theirs."""
        sim = self.run.sim
        rng = Random(f"calls/world/{self.run.plan.seed}")
        self.rng: Random = rng
        routed_world = "s1" in sim.nodes
        first = next(iter(sim.nodes))  # of a plan that is cut down
        self.home: SimNode = sim.nodes["s1" if routed_world else "n1" if "n1" in sim.nodes else first]
        ours = [node for name, node in sim.nodes.items() if name[0] in "cn"]
        self.target: str = str(self.home.nids[0])
        events = [action_of(event.kind, event.words) for event in self.run.plan.events]
        self._restarts: bool = any(isinstance(one, Restart) and one.node == self.home.name for one in events)
        self.home.each_life(self._serve)
        begin = 22.0 if routed_world else 0.0
        for node in rng.sample(ours, min(len(ours), rng.randint(1, 3))):
            for number in range(rng.randint(1, 2)):
                at = begin + rng.choice([0.0, 0.01, 5.0]) * rng.random()
                sim.scheduler.at(at, self._program, node, sim.chance(f"calls/{node.name}/{number}"))
        last = max((event.at for event in self.run.plan.events), default=0.0)
        sim.scheduler.at(last + _BROKEN, mend, self.run)  # else a call may go on for as long as all is broken
        sim.busy.append(self._busy)
        self.run.judges.append(self._judge)

    def _busy(self, node: SimNode) -> bool:
        """Whether a program runs on a node, or its server has anything of a call."""
        if node.alive and self.programs[node, node.lives]:
            return True
        server = self.server
        if node is not self.home or not node.alive or server is None:
            return False
        return bool(server.running or server.waiting or server.kept_bytes)

    # The service -----------------------------------------------------------------------------------

    def _serve(self) -> None:
        small = (
            {"concurrency": 2, "queue": 4, "queue_bytes": 150_000, "streams": 6}
            if self.rng.random() < 0.3
            else {}
        )
        bits = self.run.sim.chance(f"calls/server/{self.home.lives}").getrandbits
        self.server = Server(self._service(), self.home.node, random=bits, **small)
        self.server.start()

    def _service(self) -> Service:
        service = Service(NAME)
        rng = self.rng

        def executes(call: Call) -> int:
            number = int.from_bytes(call.data[:4], "little")
            self.executed[number] += 1
            return number

        @service.method("echo")
        async def echo(call: Call) -> bytes:
            executes(call)
            return bytes(call.data[:_ECHOED])

        @service.method("slow")
        async def slow(call: Call) -> bytes:
            executes(call)
            await asyncio.sleep(rng.choice([0.01, 0.5, 3.0, 20.0]))
            return bytes(call.data)

        @service.method("fail")
        async def fail(call: Call) -> bytes:
            executes(call)
            raise ValueError("as asked")

        @service.method("read")
        async def read(call: Call) -> bytes:
            await call.push(_pattern(executes(call), call.into_size))
            return bytes(call.data)

        @service.method("write")
        async def write(call: Call) -> bytes:
            number = executes(call)
            got = await call.pull()
            if bytes(got) != _pattern(number, len(got)):
                self.asked[number - 1].wrong = "bulk is not what was lent"
            return bytes(call.data)

        @service.stream("count")
        async def count(call: Call) -> AsyncIterator[bytes]:
            number = executes(call)
            for index in range(_CHUNKS):
                if index % 30 == 0:
                    await asyncio.sleep(rng.choice([0.0, 0.1, 2.0]))
                yield (number * 1000 + index).to_bytes(8, "little")

        return service

    # The programs ----------------------------------------------------------------------------------

    def _program(self, node: SimNode, rng: Random) -> None:
        if node.alive:
            self.programs[node, node.lives] += 1
            spawn(node, partial(self._calls, node, node.lives, rng))

    async def _calls(self, node: SimNode, life: int, rng: Random) -> None:
        """Some calls one after the other or at once, and a client that is closed in the end."""
        client = Client(node.node, self.target, NAME, slots=rng.choice([2, 64]), random=rng.getrandbits)
        seen = rng.choice([0.0, 0.0, 0.3])
        tasks: list[asyncio.Task[None]] = []
        for _ in range(rng.randint(1, 12)):
            tasks.append(asyncio.ensure_future(self._ask(client, node, life, rng)))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice([0.0, 0.001, 0.1, 2.0]))
            if rng.random() < seen:
                self._replay(client, rng)
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)
        if client.under_way:
            raise AssertionError(f"{client.under_way} calls are under way after all ended")
        await client.close()
        self.programs[node, life] -= 1

    def _replay(self, client: Client, rng: Random) -> None:
        """Somebody else has seen the requests that are under way, and sends them later.

        The client's own node does so only where the server keeps the life that it has: another one refuses
        what it does not know, and to that client such a refusal says that its call was not executed
        (docs/design/rpc.md).
        """
        for frame in client.frames_under_way():
            self.counts["replayed"] += 1
            at = self.run.sim.now + rng.choice([0.0, 0.01, 1.0, 40.0])
            thief = rng.choice([node for name, node in self.run.sim.nodes.items() if name[0] in "cn"])
            if thief.node is not client.node or not self._restarts:
                self.run.sim.scheduler.at(at, self._send_again, thief, frame)

    def _send_again(self, thief: SimNode, frame: bytes) -> None:
        async def put() -> None:
            with suppress(LNetError):
                await thief.node.put(self.target, REQUEST_PORTAL, bits_of(NAME), frame, timeout=20.0)

        if thief.alive:
            spawn(thief, put)

    async def _ask(self, client: Client, node: SimNode, life: int, rng: Random) -> None:
        asked = Asked(len(self.asked) + 1, rng.choice(_METHODS), node, life)
        asked.idempotent = rng.random() < 0.2 and asked.kind != "count"
        self.asked.append(asked)
        task = asyncio.ensure_future(self._call(client, asked, rng))
        if rng.random() < 0.15:
            await asyncio.sleep(rng.choice([0.0, 0.001, 0.3, 5.0]))
            asked.cancelled = task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            asked.ends += 1
        except RpcError as failed:
            asked.ends += 1
            asked.error = failed

    async def _call(self, client: Client, asked: Asked, rng: Random) -> None:
        data = asked.number.to_bytes(4, "little")
        timeout = rng.choice([None, None, 0.05, 1.0, 30.0])
        if asked.kind == "count":
            await self._count(client, asked, data, timeout, rng)
            return
        more: dict[str, Any] = {"timeout": timeout, "idempotent": asked.idempotent}
        size = rng.choice([0, 10, 100_000, 3_000_000])
        into = bytearray(size)
        check = rng.random() < 0.3
        if asked.kind == "read":
            more |= {"into": into, "check": check}
        elif asked.kind == "write":
            more |= {"bulk": _pattern(asked.number, size), "check": check}
        elif asked.kind == "echo" and rng.random() < 0.2:
            data += bytes(10_000 if asked.number % 2 else 100_000)  # in its frame, or a body to be fetched
        answer = await client.call(asked.kind, data, **more)
        asked.ends += 1
        if answer.data != data[:_ECHOED]:
            asked.wrong = "it got another call's reply"
        if asked.kind == "read" and (answer.pushed, bytes(into)) != (size, _pattern(asked.number, size)):
            asked.wrong = "bulk is not what was pushed"

    async def _count(
        self, client: Client, asked: Asked, data: bytes, timeout: float | None, rng: Random
    ) -> None:
        stop = rng.choice([5, 1000])
        got = []
        async with client.stream("count", data, timeout=timeout) as stream:
            async for chunk in stream:
                got.append(int.from_bytes(chunk, "little") - 1000 * asked.number)
                if rng.random() < 0.02:
                    await asyncio.sleep(rng.choice([0.01, 1.0]))
                if len(got) == stop:
                    break
        asked.ends += 1
        if got != list(range(min(stop, _CHUNKS))):
            asked.wrong = f"its chunks were {got}"

    # The end ---------------------------------------------------------------------------------------

    def _judge(self, run: Run) -> str:
        """What is wrong with the calls, or is kept although all have ended."""
        for asked in self.asked:
            times = self.executed[asked.number]
            wrong = asked.judge(times)
            if wrong:
                return (
                    f"call {asked.number} ({asked.kind}) from {asked.node}, executed {times} times: {wrong}"
                )
            self._tally(asked)
        for node in run.sim.nodes.values():
            portal = node.core.memory.portals[BULK_PORTAL]
            if portal is not None and portal.entries():
                return f"memory for bulk is left at {node}"
        return self._left_at_server()

    def _tally(self, asked: Asked) -> None:
        if asked.error is not None:
            self.counts[errno.errorcode[asked.error.errno]] += 1
        else:
            self.counts["cancelled" if asked.cancelled else "ended well" if asked.ends else "died"] += 1

    def _left_at_server(self) -> str:
        server = self.server
        if server is None or not self.home.alive:
            return ""
        kept = server.kept()
        if any(kept.values()):
            return "the server keeps " + ", ".join(f"{count} {what}" for what, count in kept.items() if count)
        self.home.call(server.close())
        return ""


def _pattern(number: int, size: int) -> bytes:
    """The bytes that belong to a call."""
    return (number.to_bytes(4, "little") * (size // 4 + 1))[:size]


def _prepare(run: Run) -> None:
    World(run).begin()


RECIPE: Final = Recipe(
    random_calls, (*routed.RECIPE.prepare, _prepare), "calls of a service, with bulk and streams, and faults"
)
register("calls", RECIPE)
