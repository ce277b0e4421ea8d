"""Random runs of calls in the simulator: from a seed a network, programs that call, and faults."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ulnet.core.faults.rule import Fault, FaultKind
from ulnet.core.status import LNetError
from ulnet.nid import ANY_NID
from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.service import bits_of
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode
from ulnet.wire.rpc import REQUEST_PORTAL

NAME = "sim"
KINDS = ("link", "partition", "restart", "silent", "sleep", "client dies", "drop", "drop", "delay", "delay")
PORTALS = 1 << 40 | 1 << 41 | 1 << 42
ERRORS = {
    *(errno.ETIMEDOUT, errno.ECONNRESET, errno.ENOENT, errno.ECANCELED, errno.ESHUTDOWN, errno.EREMOTEIO),
    *(errno.EHOSTUNREACH, errno.ENODATA, errno.ENOBUFS, errno.ENETDOWN, errno.ENETUNREACH, errno.EIO),
}


@dataclass
class Asked:
    """One call, and what became of it."""

    number: int
    kind: str
    idempotent: bool = False
    ends: int = 0
    error: RpcError | None = None
    cancelled: bool = False
    wrong: str = ""


@dataclass
class World:
    """A run of one seed."""

    seed: int
    sim: Simulation = field(init=False)
    rng: Random = field(init=False)
    executed: Counter[int] = field(default_factory=Counter)
    asked: list[Asked] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    left: int = 0  # programs that have not ended
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = Random(f"rpc/{self.seed}")
        loss = self.rng.choice([0.0, 0.0, 0.001, 0.02])
        self.sim = Simulation(self.seed, link=LinkParams(rate=self.rng.choice([1e8, 1e9]), loss=loss))
        self.server_node = self.sim.node("s", "10.0.0.1@tcp", "10.1.0.1@tcp1")
        self.clients = [
            self.sim.node(f"c{number}", f"10.0.0.{number + 2}@tcp", f"10.1.0.{number + 2}@tcp1")
            for number in range(self.rng.randint(1, 3))
        ]
        self.thief = self.sim.node("t", "10.0.0.9@tcp")

    # The service -----------------------------------------------------------------------------------

    def service(self) -> Service:
        service = Service(NAME)
        rng = self.rng

        def executes(call: Call) -> int:
            number = int.from_bytes(call.data[:4], "little")
            self.executed[number] += 1
            return number

        @service.method("echo")
        async def echo(call: Call) -> bytes:
            executes(call)
            return bytes(call.data)

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
            number = executes(call)
            await call.push(pattern(number, call.into_size))
            return bytes(call.data)

        @service.method("write")
        async def write(call: Call) -> bytes:
            number = executes(call)
            got = await call.pull()
            assert bytes(got) == pattern(number, len(got))
            return bytes(call.data)

        @service.stream("count")
        async def count(call: Call) -> AsyncIterator[bytes]:
            number = executes(call)
            for index in range(100):
                if index % 30 == 0:
                    await asyncio.sleep(rng.choice([0.0, 0.1, 2.0]))
                yield (number * 1000 + index).to_bytes(8, "little")

        return service

    def serve(self) -> None:
        """A server in this life of its node."""
        small = {"concurrency": 2, "queue": 4} if self.rng.random() < 0.3 else {}
        bits = self.sim.chance(f"server/{self.server_node.lives}").getrandbits
        server = Server(self.service(), self.server_node.node, random=bits, **small)
        self.server_node.loop.enter(server.start)
        self.servers.append(server)

    # The programs ----------------------------------------------------------------------------------

    async def program(self, node: SimNode, rng: Random) -> None:
        """Some calls one after the other or at once, and a client that is closed in the end."""
        client = Client(node.node, "10.0.0.1@tcp", NAME, slots=rng.choice([2, 64]), random=rng.getrandbits)
        self.replay(client, rng)
        try:
            tasks: list[asyncio.Task[None]] = []
            for _ in range(rng.randint(1, 12)):
                tasks.append(asyncio.ensure_future(self.ask(client, rng)))
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.choice([0.0, 0.001, 0.1, 2.0]))
            await asyncio.gather(*tasks)
            await asyncio.sleep(0)
            if client.under_way:
                raise AssertionError(f"{client.under_way} calls are under way after all ended")
        except GeneratorExit:  # its node has died
            raise
        except BaseException:
            await client.close()
            raise
        await client.close()
        self.left -= 1

    def replay(self, client: Client, rng: Random) -> None:
        """Some frames reach the server again, later."""
        send = client.send
        share = rng.choice([0.0, 0.0, 0.3])

        def sends(frame: bytes, ended: Callable[[int, str], None], **more: Any) -> None:
            send(frame, ended, **more)
            if rng.random() < share:
                self.counts["replayed"] += 1
                later = rng.choice([0.0, 0.01, 1.0, 40.0])
                self.sim.scheduler.at(self.sim.now + later, self.send_again, frame)

        client.send = sends  # type: ignore[method-assign]

    def send_again(self, frame: bytes) -> None:
        """Somebody else has seen the frame."""

        async def put() -> None:
            with suppress(LNetError):
                await self.thief.node.put("10.0.0.1@tcp", REQUEST_PORTAL, bits_of(NAME), frame)

        self.thief.spawn(put())

    async def ask(self, client: Client, rng: Random) -> None:
        asked = Asked(
            len(self.asked) + 1, rng.choice(["echo", "echo", "slow", "fail", "read", "write", "count"])
        )
        asked.idempotent = rng.random() < 0.2 and asked.kind != "count"
        self.asked.append(asked)
        task = asyncio.ensure_future(self.call(client, asked, rng))
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

    async def call(self, client: Client, asked: Asked, rng: Random) -> None:
        data = asked.number.to_bytes(4, "little")
        timeout = rng.choice([None, None, 0.05, 1.0, 30.0])
        if asked.kind == "count":
            await self.count(client, asked, data, timeout, rng)
            return
        more: dict[str, Any] = {"timeout": timeout, "idempotent": asked.idempotent}
        size = rng.choice([0, 10, 100_000, 3_000_000])
        into = bytearray(size)
        check = rng.random() < 0.3
        if asked.kind == "read":
            more |= {"into": into, "check": check}
        elif asked.kind == "write":
            more |= {"bulk": pattern(asked.number, size), "check": check}
        elif asked.kind == "echo" and rng.random() < 0.2:
            data += bytes(10_000)
        answer = await client.call(asked.kind, data, **more)
        asked.ends += 1
        if answer.data != data:
            asked.wrong = "another call's reply"
        if asked.kind == "read" and (answer.pushed, bytes(into)) != (size, pattern(asked.number, size)):
            asked.wrong = "bulk is not what was pushed"

    async def count(
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
        if got != list(range(min(stop, 100))):
            asked.wrong = f"chunks {got}"

    # Faults ----------------------------------------------------------------------------------------

    def faults(self) -> None:
        """Plan some, all of which have ended after 100 s."""
        rng, sim = self.rng, self.sim
        for _ in range(rng.choice([0, 1, 2, 4])):
            begin = rng.choice([0.0, 0.01, 1.0, 10.0]) * rng.random()
            end = begin + rng.choice([0.05, 1.0, 20.0, 80.0]) * rng.random()
            kind = rng.choice(KINDS)
            self.counts[kind] += 1
            nodes = [self.server_node, *self.clients]
            node = rng.choice(nodes)
            if kind == "link":
                port = f"{node.name}.eth{rng.randint(0, 1)}"
                sim.scheduler.at(begin, sim.link_down, port)
                sim.scheduler.at(end, sim.link_up, port)
            elif kind == "partition":
                sim.scheduler.at(begin, sim.partition, ["s"], [rng.choice(self.clients).name])
                sim.scheduler.at(end, sim.heal)
            elif kind in ("restart", "silent"):
                sim.scheduler.at(begin, self.die, kind == "silent")
                sim.scheduler.at(end, self.live)
            elif kind == "sleep":
                sim.scheduler.at(begin, self.nap, node, min(end - begin, 20.0))
            elif kind in ("drop", "delay"):
                rate = rng.choice([1, 2, 3, 10])
                latency = rng.choice([0.01, 0.7, 5.0])
                fault = Fault(
                    *(FaultKind(kind), ANY_NID, ANY_NID), portals=PORTALS, rate=rate, latency=latency
                )
                sim.scheduler.at(begin, self.spoil, node, fault)
                sim.scheduler.at(end, self.spoil_no_more, node)
            else:
                sim.scheduler.at(begin, self.client_dies, rng.choice(self.clients))

    def die(self, silent: bool) -> None:
        self.server_node.kill(silent=silent)

    def live(self) -> None:
        if not self.server_node.alive:
            self.server_node.restart()
            self.serve()

    @staticmethod
    def spoil(node: SimNode, fault: Fault) -> None:
        """Its node loses frames, or delivers them late."""
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

    def client_dies(self, node: SimNode) -> None:
        """Its programs are no more."""
        if node.alive and node is not self.clients[0]:
            node.kill()
            node.restart()

    # The run ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises AssertionError, and what the simulation raises."""
        sim = self.sim
        self.serve()
        for node in self.clients:
            for number in range(self.rng.randint(1, 2)):
                rng = sim.chance(f"{node.name}/{number}")
                node.spawn(self.checked(node, rng))
        self.faults()
        sim.run_until(self.is_over, 2000.0)
        sim.run(100.0)
        sim.heal()
        if not self.server_node.alive:
            self.live()
        self.check_calls()
        self.check_rest()

    async def checked(self, node: SimNode, rng: Random) -> None:
        life = node.lives
        self.left += 1
        try:
            await self.program(node, rng)
        except Exception as error:
            self.sim.broken(node, f"a program failed in life {life}: {type(error).__name__}: {error}")

    def is_over(self) -> bool:
        """Whether all programs have ended, of nodes that are in their first life."""
        tasks = [task for node in self.clients if node.lives == 1 for task in node.loop._tasks]
        return not tasks

    def check_calls(self) -> None:
        living = all(node.lives == 1 for node in self.clients)
        for asked in self.asked:
            times = self.executed[asked.number]
            where = f"seed {self.seed}: {asked}, executed {times} times"
            assert asked.ends == 1 or (asked.ends == 0 and not living), where
            assert not asked.wrong, where
            assert times <= 1 or asked.idempotent, where
            if asked.error is not None:
                assert asked.error.errno in ERRORS, where
                self.counts[errno.errorcode[asked.error.errno]] += 1
                if asked.error.executed == "no":
                    assert not times, where
                elif asked.error.executed == "yes" and asked.error.errno != errno.EBADMSG:
                    assert times, where
            elif asked.ends and not asked.cancelled:
                self.counts["ok"] += 1
                assert times, where

    def check_rest(self) -> None:
        """Nothing is kept after all have ended."""
        server = self.servers[-1]
        self.sim.run_until(lambda: not (server.running or server.kept_bytes), 200.0)
        assert (server.running, server.waiting, server.kept_bytes) == (0, 0, 0), self.seed
        assert server._admission.bytes == 0, self.seed
        for node in (*self.clients, self.server_node):
            portal = node.core.memory.portals[42]
            assert portal is None or not portal.entries(), f"seed {self.seed}: bulk is left at {node}"
        self.server_node.call(server.close())
        self.sim.run_until_quiet()


def pattern(number: int, size: int) -> bytes:
    """The bytes that belong to a call."""
    return (number.to_bytes(4, "little") * (size // 4 + 1))[:size]


def run_seed(seed: int) -> World:
    """Play it."""
    world = World(seed)
    world.run()
    return world
