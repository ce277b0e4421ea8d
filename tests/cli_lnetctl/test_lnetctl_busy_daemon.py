"""An lnetd that is busy passing messages on and answering pings, while commands come and a signal ends it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from support.daemon import Daemon, Done, without_times
from ulnet import Node
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Net, Nid

PATIENCE = 60  # seconds until something that must happen counts as not happening
PORTAL, BITS, SIZE = 30, 1, 16384
NEAR, FAR = "127.0.0.1@tcp", "127.0.1.1@tcp1"
ROUTER = ("127.0.0.2@tcp", "127.0.1.2@tcp1")
TASKS = 8  # of each kind


@dataclass
class Traffic:
    """Pings to the daemon, and PUTs through it, each from tasks that wait for the answer and go on."""

    near: Node
    pinged: int = 0
    passed: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    async def ping(self) -> None:
        await self.near.ping(ROUTER[0], timeout=PATIENCE)
        self.pinged += 1

    async def put(self) -> None:
        await self.near.put(FAR, PORTAL, BITS, bytes(SIZE), timeout=PATIENCE)
        self.passed += 1

    async def go_on(self, step: Callable[[], Any]) -> None:
        while True:
            try:
                await step()
            except LNetError as failure:
                self.failures[str(failure)] += 1
                await asyncio.sleep(0.02)

    async def more(self) -> None:
        """Wait until the daemon has answered and passed on more."""
        pinged, passed = self.pinged + TASKS, self.passed + TASKS
        async with asyncio.timeout(PATIENCE):
            while self.pinged < pinged or self.passed < passed:
                await asyncio.sleep(0.01)


class Busy:
    """The daemon, and its traffic."""

    def __init__(self, daemon: Daemon, traffic: Traffic) -> None:
        self.daemon = daemon
        self.traffic = traffic

    async def tell(self, *words: str) -> Done:
        return await asyncio.to_thread(self.daemon.lnetctl, *words)

    async def ask(self, *words: str) -> Any:
        """What a command that must succeed prints, read as YAML; traffic goes on meanwhile."""
        done = await self.tell(*words)
        assert (done.code, done.err) == (0, ""), words
        await self.traffic.more()
        return yaml.safe_load(done.out)


@pytest.fixture
async def busy(daemon: Daemon, port: int) -> AsyncIterator[Busy]:
    for nid in ROUTER:
        assert daemon.lnetctl("net", "add", "--nid", nid).code == 0
    # It says that it routes once it has looked at its nets for so long.
    for words in (("alive_router_check_interval", "1"), ("router_ping_timeout", "0"), ("routing", "1")):
        assert daemon.lnetctl("set", *words).code == 0
    assert daemon.lnetctl("set", "router_ping_timeout", "50").code == 0
    params = TcpParams(
        accept="all", accept_port=port
    )  # from such ports as the daemon, which believes them then
    async with Node(tcp=params) as near, Node(tcp=params) as far:
        for node, nid, net, gateway in ((near, NEAR, "tcp1", ROUTER[0]), (far, FAR, "tcp", ROUTER[1])):
            node.add_ni(nid)
            node.core.gateways.set({"alive_router_check_interval": 1, "router_ping_timeout": 3})
            node.core.gateways.add(Net.parse(net), Nid.parse(gateway), 1, 0)
        far.attach(PORTAL, BITS, bytearray(SIZE), options=OP_PUT | MANAGE_REMOTE)
        traffic = Traffic(near)
        steps = [traffic.ping] * TASKS + [traffic.put] * TASKS
        tasks = [asyncio.create_task(traffic.go_on(step)) for step in steps]
        try:
            await traffic.more()
            yield Busy(daemon, traffic)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.get_running_loop().shutdown_default_executor()


def nids(shown: Any) -> list[str]:
    return [ni["nid"] for net in shown["net"] for ni in net["local NI(s)"]]


async def test_commands_are_answered_rightly_beside_traffic(busy: Busy) -> None:
    received = 0
    for _ in range(4):
        assert nids(await busy.ask("net", "show")) == ["0@lo", *ROUTER]
        counted = (await busy.ask("stats", "show"))["statistics"]
        assert counted["recv_count"] > received and counted["route_count"] > 0
        received = counted["recv_count"]
        (pinged,) = (await busy.ask("ping", NEAR))["ping"]
        assert {"nid": NEAR} in pinged["peer_ni"]
        peers = (await busy.ask("peer", "show"))["peer"]
        assert {NEAR, FAR} <= {ni["nid"] for peer in peers for ni in peer["peer ni"]}
        assert await busy.ask("net", "add", "--nid", "127.0.2.2@tcp2") is None
        assert nids(await busy.ask("net", "show", "--net", "tcp2")) == ["127.0.2.2@tcp2"]
        assert await busy.ask("net", "del", "--net", "tcp2") is None


async def test_a_net_that_carries_traffic_goes_and_comes_back(busy: Busy) -> None:
    for _ in range(2):
        done = await busy.tell("net", "del", "--net", "tcp1")
        assert (done.code, done.err) == (0, "")
        assert nids(yaml.safe_load((await busy.tell("net", "show")).out)) == ["0@lo", ROUTER[0]]
        done = await busy.tell("net", "add", "--nid", ROUTER[1])
        assert (done.code, done.err) == (0, "")
        await busy.traffic.more()


async def test_a_signal_ends_it_in_the_midst_of_traffic(busy: Busy) -> None:
    done = await asyncio.to_thread(busy.daemon.stop)
    assert (done.code, done.out) == (0, "")
    told = without_times(done.err).splitlines()
    assert [line for line in told if "audit" not in line] == ["lnetd: info: stopping", "lnetd: info: stopped"]
    assert not busy.daemon.path.exists()
    async with asyncio.timeout(PATIENCE):
        while not busy.traffic.failures:  # nobody waits in vain for what has ended
            await asyncio.sleep(0.01)
