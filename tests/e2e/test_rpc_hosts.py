"""Calls between two hosts with two rails, one of which goes dead or loses its cable in mid-transfer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from random import Random

import pytest

from support.inside import Inside
from support.netns import Cluster
from ulnet import Node
from ulnet.lnd.tcp import TcpParams
from ulnet.rpc import Call, Client, Server, Service
from ulnet.wire.lnet import LNET_MTU

pytestmark = pytest.mark.requirement("ULP")

SIZE = 24 * LNET_MTU + 1234


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster(2, 2, "200mbit")


@pytest.fixture
def homes(cluster: Cluster) -> Iterator[list[Inside]]:
    homes = [Inside(host) for host in cluster]
    yield homes
    for home in homes:
        home.close()


class Program:
    """A client on the first host, a server on the second."""

    def __init__(self, cluster: Cluster, homes: list[Inside]) -> None:
        self.cluster = cluster
        self.homes = homes
        self.data = Random(5).randbytes(SIZE)
        self.executed = 0
        self.half = threading.Event()
        self.service = Service("files")
        self.nodes: list[Node] = []

        @self.service.method("read")
        async def read(call: Call) -> None:
            self.executed += 1
            await call.push(self.data, progress=self.moved)

        @self.service.method("write")
        async def write(call: Call) -> bool:
            self.executed += 1
            return bytes(await call.pull(progress=self.moved)) == self.data

    def moved(self, moved: int, total: int) -> None:
        if moved > total // 4:
            self.half.set()

    async def begin(self, number: int) -> None:
        node = Node(tcp=TcpParams(accept="all"))
        self.nodes.append(node)
        await node.start()
        host = list(self.cluster)[number]
        for rail in (0, 1):
            node.add_ni(host.nid(rail, f"tcp{rail or ''}"), interface=host.interface(rail))
        if number:
            self.server = Server(self.service, node)
            self.server.start()
        else:
            self.client = Client(node, list(self.cluster)[1].nid(0), "files")

    async def end(self, number: int) -> None:
        await (self.server if number else self.client).close()
        await self.nodes[number].close()


@pytest.fixture
def program(cluster: Cluster, homes: list[Inside]) -> Iterator[Program]:
    program = Program(cluster, homes)
    for number, home in enumerate(homes):
        home.run(program.begin(number))
    yield program
    for number, home in enumerate(homes):
        home.run(program.end(number))


@pytest.mark.parametrize("method", ["read", "write"])
@pytest.mark.parametrize("how", ["cable", "path"])
def test_bulk_survives_a_rail(cluster: Cluster, program: Program, method: str, how: str) -> None:
    client, home = program.client, program.homes[0]
    into = bytearray(SIZE)
    lent = (into, None) if method == "read" else (None, program.data)
    task = home.start(client.call(method, check=True, into=lent[0], bulk=lent[1]))
    assert program.half.wait(120)
    client_host = next(iter(cluster))
    if how == "cable":
        client_host.set_link(1, False)
    else:
        cluster.set_path(client_host, 1, False)
    answer = task.result(40)  # below the LND's and LNet's time-outs, which a lost REPLY costs otherwise
    if method == "read":
        assert (answer.pushed, into == program.data) == (SIZE, True)
    else:
        assert answer.as_type(bool)
    assert program.executed == 1
