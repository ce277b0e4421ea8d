"""Bulk whose ACKs are lost, and bulk of clients that vanish in between, in virtual time."""

from __future__ import annotations

import pytest

from ulnet.core.faults import Fault, FaultKind
from ulnet.nid import ANY_NID
from ulnet.rpc import Answer, Call, Client, Server, Service
from ulnet.sim import Simulation
from ulnet.wire.lnet import LNET_MTU, MsgType

pytestmark = pytest.mark.requirement("ULP")

HOME = "10.0.0.1@tcp"


class Depot:
    """A service on one node, a client on another."""

    def __init__(self) -> None:
        self.sim = Simulation(1)
        self.home, self.other = self.sim.node("s", HOME), self.sim.node("c", "10.0.0.2@tcp")
        self.data = bytes(range(256)) * (24 << 12)
        self.moved = 0
        self.service = Service("depot")

        @self.service.method("read")
        async def read(call: Call) -> None:
            await call.push(self.data[: call.into_size], progress=self.progress)

        @self.service.method("write")
        async def write(call: Call) -> None:
            await call.pull(progress=self.progress)

        @self.service.method("take")
        async def take(call: Call) -> None:
            raise AssertionError("its data never came")

        self.home.loop.enter(self.serve)

    def serve(self) -> None:
        self.server = Server(self.service, self.home.node, window=2)
        self.server.start()

    def progress(self, moved: int, total: int) -> None:
        self.moved = moved

    async def call(self, method: str, **more: object) -> Answer:
        client = Client(self.other.node, HOME, "depot")
        answer = await client.call(method, **more)  # type: ignore[arg-type]
        await client.close()  # unless its node was killed
        return answer


def test_a_piece_whose_ack_is_lost_is_pushed_again() -> None:
    depot = Depot()
    faults = depot.home.core.faults
    into = bytearray(2 * LNET_MTU)
    task = depot.other.spawn(depot.call("read", into=into, timeout=60.0))
    depot.sim.run_until(lambda: depot.server.running == 1)
    rule = Fault(FaultKind.DROP, ANY_NID, ANY_NID, messages=1 << MsgType.ACK, rate=1)
    depot.home.loop.enter(faults.add, rule)
    depot.sim.run(2.0)
    assert bytes(into) == depot.data[: len(into)] and not task.done(), "all is there, and no ACK came back"
    depot.home.loop.enter(faults.delete, FaultKind.DROP)
    depot.sim.run_until(task.done)
    assert task.result().pushed == len(into)
    assert bytes(into) == depot.data[: len(into)]
    depot.home.call(depot.server.close())


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("way", ["read", "write", "take"])
def test_nothing_is_left_of_a_client_that_vanishes_in_mid_bulk(way: str, silent: bool) -> None:
    depot = Depot()
    server = depot.server
    more: dict[str, object] = {"into": bytearray(depot.data)} if way == "read" else {"bulk": depot.data}
    if way == "take":
        more = {"data": depot.data}
    depot.other.spawn(depot.call(way, **more))
    if way == "take":
        depot.sim.run_until(lambda: server.waiting == 1)
    else:
        depot.sim.run_until(lambda: depot.moved >= 4 * LNET_MTU)
    assert server.running + server.waiting == 1 and depot.moved < len(depot.data)
    depot.other.kill(silent=silent)
    depot.sim.run_until(lambda: not any(server.kept().values()))
    depot.sim.run_until_quiet()
    assert server.method_counters[way].given_up + server.method_counters[way].errors == 1
    depot.other.restart()
    task = depot.other.spawn(depot.call("read", into=bytearray(10)))
    depot.sim.run_until(task.done)
    assert task.result().pushed == 10
    depot.home.call(server.close())
