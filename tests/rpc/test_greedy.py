"""Clients that take what there is and move nothing: a server serves the others all the same. Virtual time."""

from __future__ import annotations

import asyncio
import errno
import mmap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ulnet.control.access import access_of
from ulnet.core.faults import Fault, FaultKind
from ulnet.nid import ANY_NID, Nid
from ulnet.rpc import Answer, Call, Client, RpcError, Server, Service
from ulnet.rpc.sessions import Sessions
from ulnet.sim import Simulation
from ulnet.sim.node import SimNode
from ulnet.wire.lnet import LNET_MTU
from ulnet.wire.rpc import BULK_PORTAL, REPLY_PORTAL

pytestmark = pytest.mark.requirement("ULP")

HOME = "10.0.0.1@tcp"
STALLED = Fault(FaultKind.DROP, ANY_NID, ANY_NID, portals=1 << BULK_PORTAL, rate=1)
SOON = 5.0
LATER = 70.0  # bulk is looked at twice in that time


class Shop:
    """A service, somebody greedy whose node serves no bulk, and others who want something."""

    def __init__(self, **options: Any) -> None:
        self.sim = Simulation(1)
        self.home = self.sim.node("s", HOME)
        self.greedy, *self.others = [self.sim.node(f"c{n}", f"10.0.0.{n}@tcp") for n in (2, 3, 4)]
        self.options = options
        self.begun = self.at_once = self.most = 0
        self.service = Service("shop")
        self.clients: list[tuple[SimNode, Client]] = []

        @self.service.method("echo")
        async def echo(call: Call) -> bytes:
            self.begun += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await asyncio.sleep(0.001)
            self.at_once -= 1
            return b"%d" % len(call.data)

        @self.service.method("write")
        async def write(call: Call) -> None:
            await call.pull()

        @self.service.method("read")
        async def read(call: Call) -> None:
            await call.push(bytes(call.into_size))

        @self.service.stream("news")
        async def news(call: Call) -> AsyncIterator[bytes]:
            yield b"first"
            await asyncio.sleep(1000)

        self.home.loop.enter(self.serve)
        self.stall()

    def serve(self) -> None:
        self.server = Server(self.service, self.home.node, **self.options)
        self.server.start()

    def stall(self) -> None:
        """The greedy one's node serves no bulk from now on, and all else."""
        self.greedy.loop.enter(self.greedy.core.faults.add, STALLED)

    def serve_bulk(self) -> None:
        """It does again."""
        self.greedy.loop.enter(self.greedy.core.faults.delete, FaultKind.DROP)

    def client(self, node: SimNode, **options: Any) -> Client:
        client: Client = node.loop.enter(lambda: Client(node.node, HOME, "shop", **options))
        self.clients.append((node, client))
        return client

    def calls(self, node: SimNode, count: int, method: str, **more: Any) -> list[Any]:
        """As many calls at once, by clients of 64 each."""
        tasks = []
        for number in range(count):
            if number % 64 == 0:
                client = self.client(node)
            tasks.append(node.spawn(client.call(method, **more)))
        return tasks

    def one(self, node: SimNode, method: str = "echo", within: float = SOON, **more: Any) -> Answer:
        """A call by somebody who is not greedy."""
        (task,) = self.calls(node, 1, method, **more)
        self.sim.run_until(task.done, within)
        answer: Answer = task.result()
        return answer

    def end(self) -> None:
        """Close the clients: nothing is left of their calls."""
        self.serve_bulk()
        for node, client in self.clients:
            node.call(client.close())
        self.sim.run_until_quiet()
        left = {what: count for what, count in self.server.kept().items() if count}
        assert left == {}
        self.home.call(self.server.close())


@pytest.mark.parametrize("concurrency", [1, 2, 64])
def test_bodies_that_do_not_come_keep_no_places(concurrency: int) -> None:
    shop = Shop(concurrency=concurrency)
    shop.calls(shop.greedy, 64, "echo", data=bytes(100_000))
    shop.sim.run(SOON)
    for other in shop.others:
        assert shop.one(other).data == b"0"
        assert shop.one(other, data=bytes(50_000)).data == b"50000"
    assert shop.begun == 4
    shop.end()


@pytest.mark.parametrize("queue", [0, 4, 100])
def test_bodies_that_do_not_come_do_not_fill_the_queue(queue: int) -> None:
    shop = Shop(concurrency=1, queue=queue)
    tasks = shop.calls(shop.greedy, 192, "echo", data=bytes(100_000))
    shop.sim.run(SOON)
    for other in shop.others:
        assert shop.one(other).data == b"0"
        assert shop.one(other, data=bytes(50_000)).data == b"50000"
    assert shop.begun == 4
    shop.serve_bulk()
    shop.sim.run_until(lambda: all(task.done() for task in tasks), 400.0)
    assert {task.result().data for task in tasks} == {b"100000"}
    assert (shop.begun, shop.most) == (196, 1), "each was executed once, one after the other"
    shop.end()


@pytest.mark.parametrize("bodies", [1, 2, 60])
def test_bodies_that_do_not_come_do_not_fill_the_memory(bodies: int) -> None:
    room = 6_000_000
    shop = Shop(queue_bytes=room)
    tasks = shop.calls(shop.greedy, bodies, "echo", data=bytes(room // bodies))
    shop.sim.run(SOON)
    for size in (100, 50_000, room // 2):
        for other in shop.others:
            assert shop.one(other, data=bytes(size)).data == b"%d" % size
    assert shop.begun == 6
    shop.serve_bulk()
    shop.sim.run_until(lambda: all(task.done() for task in tasks), 100.0)
    assert {task.result().data for task in tasks} == {b"%d" % (room // bodies)}
    assert shop.begun == 6 + bodies, "what was sent away was executed once"
    shop.end()


def test_a_body_that_does_not_come_makes_room_for_a_larger_one_after_a_while() -> None:
    shop = Shop(queue_bytes=1_000_000)
    shop.calls(shop.greedy, 1, "echo", data=bytes(300_000))
    shop.sim.run(SOON)
    assert shop.one(shop.others[0], within=LATER, data=bytes(900_000)).data == b"900000"
    shop.end()


def resident() -> int:
    """Bytes of memory that this process has touched, and has still."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.parametrize(("method", "what"), [("echo", "data"), ("write", "bulk")])
def test_memory_for_what_does_not_come_is_not_touched(method: str, what: str) -> None:
    """Else a frame of a hundred bytes would cost the server what it says, and the time to zero it."""
    shop = Shop()
    before = resident()
    shop.calls(shop.greedy, 1, method, **{what: bytes(200 << 20)})  # which is not touched here either
    shop.sim.run(SOON)
    assert shop.server.waiting + shop.server.running == 1
    assert resident() - before < 50 << 20
    shop.end()


@pytest.mark.parametrize("calls", [1, 20])
@pytest.mark.parametrize("size", [1000, 4_000_000, 30_000_000])
def test_new_memory_for_bulk_is_shared(calls: int, size: int) -> None:
    """What one client has coming there is at most what is left of `queue_bytes`, but for its first one."""
    shop = Shop(queue_bytes=20_000_000, window=1)
    shop.serve_bulk()
    coming: dict[Call, int] = {}
    most = 0

    @shop.service.method("keep")
    async def keep(call: Call) -> bytes:
        def progress(moved: int, total: int) -> None:
            nonlocal most
            coming[call] = total
            most = max(most, sum(coming.values()))

        memory = await call.pull(progress=progress)
        del coming[call]
        assert bytes(memory) == bulk
        return b"as it was"

    bulk = bytes(range(256)) * (size // 256 + 1)
    tasks = shop.calls(shop.greedy, calls, "keep", bulk=bulk)
    shop.sim.run_until(lambda: all(task.done() for task in tasks), LATER)
    assert {task.result().data for task in tasks} == {b"as it was"}
    assert len(bulk) <= most <= max(len(bulk), 10_000_000)
    shop.end()


def test_new_memory_of_one_whose_bulk_does_not_come_keeps_no_others_from_theirs() -> None:
    shop = Shop(queue_bytes=20_000_000)
    tasks = shop.calls(shop.greedy, 32, "write", bulk=bytes(15_000_000), timeout=LATER)
    shop.sim.run(SOON)
    for size in (1000, 4_000_000, 25_000_000):
        for other in shop.others:
            assert shop.one(other, "write", bulk=bytes(size)).data == b""
    shop.sim.run_until(lambda: all(task.done() for task in tasks), 2 * LATER)
    shop.end()


@pytest.mark.parametrize("streams", [2, 3, 100])
def test_streams_of_one_leave_some_for_others(streams: int) -> None:
    shop = Shop(streams=streams)
    opened = []

    async def open_one(client: Client) -> bytes:
        stream = client.stream("news")
        chunk = await anext(stream)
        opened.append(stream)  # else it is closed
        return chunk

    for _ in range(streams // 64 + 1):
        client = shop.client(shop.greedy)
        for _ in range(64):
            shop.greedy.spawn(open_one(client))
    shop.sim.run(SOON)
    assert len(opened) == -(-streams // 2)
    task = shop.others[0].spawn(open_one(shop.client(shop.others[0])))
    shop.sim.run_until(task.done, SOON)
    assert task.result() == b"first"
    shop.end()


@pytest.mark.parametrize("concurrency", [1, 64])
@pytest.mark.parametrize("method", ["write", "read"])
def test_bulk_that_does_not_move_keeps_no_place_that_others_wait_for(method: str, concurrency: int) -> None:
    shop = Shop(concurrency=concurrency)
    more: dict[str, Any] = {"bulk": bytes(100_000)} if method == "write" else {"into": bytearray(100_000)}
    tasks = shop.calls(shop.greedy, concurrency, method, **more)
    shop.sim.run(2 * LATER)
    assert shop.server.running == -(-concurrency // 2), "nobody else wants its place"
    assert shop.one(shop.others[0], within=SOON if concurrency > 1 else LATER).data == b"0"
    into = bytearray(10)
    assert shop.one(shop.others[0], "read", within=SOON if concurrency > 1 else LATER, into=into) is not None
    shop.others[1].loop.enter(shop.others[1].core.faults.add, STALLED)
    shop.calls(shop.others[1], concurrency, method, **more)
    shop.sim.run_until(lambda: any(task.done() for task in tasks), LATER)
    failed = next(task.exception() for task in tasks if task.done())
    assert isinstance(failed, RpcError)
    assert (failed.errno, failed.executed) == (errno.ETIMEDOUT, "yes")
    assert "others wait" in str(failed)
    shop.end()


@pytest.mark.parametrize("queue", [0, 1024])
def test_bulk_of_one_that_does_not_move_makes_nobody_wait(queue: int) -> None:
    """However many calls it has: it has half of the places, and the others' calls need not wait for them."""
    shop = Shop(queue=queue)
    shop.calls(shop.greedy, 192, "read", into=bytearray(100_000))
    shop.sim.run(SOON)
    for _ in range(9):
        for other in shop.others:
            assert shop.one(other).data == b"0"
            assert shop.one(other, data=bytes(50_000)).data == b"50000"
            into = bytearray(1000)
            assert shop.one(other, "read", into=into).pushed == 1000
        shop.sim.run(SOON)
    shop.end()


def test_data_are_no_bulk_for_the_handler() -> None:
    """Data that came before the call had a place are not fetched again, for that may last."""
    shop = Shop()
    shop.serve_bulk()
    (task,) = shop.calls(shop.greedy, 1, "write", data=bytes(100_000))
    shop.sim.run_until(task.done, SOON)
    failed = task.exception()
    assert isinstance(failed, RpcError)
    assert (failed.errno, failed.executed) == (errno.EINVAL, "yes")
    shop.end()


def test_who_waits_for_the_bytes_of_bulk_that_does_not_move_gets_them() -> None:
    """A handler has its data, and cannot push: the room of its data is what others wait for."""
    shop = Shop(queue_bytes=1_000_000)
    shop.serve_bulk()
    into = bytearray(8 * LNET_MTU)
    tasks = shop.calls(shop.greedy, 1, "read", data=bytes(900_000), into=into)
    shop.sim.run_until(lambda: shop.server.running == 1, SOON)
    shop.stall()
    shop.sim.run(SOON)
    assert not tasks[0].done()
    assert shop.one(shop.others[0], within=LATER, data=bytes(400_000)) is not None
    shop.end()


def test_bulk_that_moves_a_little_now_and_then_keeps_no_place_either() -> None:
    shop = Shop(concurrency=1, window=1, piece=4096)
    shop.calls(shop.greedy, 1, "write", bulk=bytes(8 * LNET_MTU))

    def a_little() -> None:
        shop.serve_bulk()
        shop.sim.scheduler.at(shop.sim.now + 0.0005, shop.stall)
        shop.sim.scheduler.at(shop.sim.now + 10.0, a_little)

    shop.sim.scheduler.at(shop.sim.now + 10.0, a_little)
    shop.sim.run(LATER)
    assert shop.server.running == 1
    assert shop.one(shop.others[0], within=LATER).data == b"0"
    shop.end()


def test_bulk_that_one_is_denied_is_not_asked_for_again() -> None:
    shop = Shop()
    shop.serve_bulk()
    access = access_of(deny=[f"portal{BULK_PORTAL}={HOME}"])
    shop.greedy.loop.enter(shop.greedy.core.set_access, access)
    for method, more in (("write", {"bulk": bytes(100_000)}), ("echo", {"data": bytes(100_000)})):
        (task,) = shop.calls(shop.greedy, 1, method, **more)
        shop.sim.run_until(task.done, SOON)
        failed = task.exception()
        assert isinstance(failed, RpcError)
        assert failed.errno == errno.EACCES
        assert failed.executed == ("yes" if method == "write" else "no")
    assert shop.begun == 0
    shop.end()


@pytest.mark.parametrize("end", ["deadline", "cancelled", "closed", "server closed", "killed"])
def test_nothing_is_left_of_a_body_that_does_not_come(end: str) -> None:
    shop = Shop(queue_bytes=1_000_000)
    more = {"timeout": 20.0} if end == "deadline" else {}
    (task,) = shop.calls(shop.greedy, 1, "echo", data=bytes(900_000), **more)
    server = shop.server
    shop.sim.run_until(lambda: server.waiting == 1, SOON)
    assert (server.running, server.kept()["bytes of requests"]) == (0, 900_000)
    node, client = shop.clients[0]
    if end == "cancelled":
        node.loop.enter(task.cancel)
    elif end == "closed":
        node.call(client.close())
    elif end == "server closed":
        shop.home.call(server.close())
    elif end == "killed":
        node.kill()
        shop.clients.clear()
    else:
        shop.sim.run(20.0)
    shop.sim.run_until(
        lambda: not any(count for what, count in server.kept().items() if "replies" not in what), 100.0
    )
    counters = server.method_counters["echo"]
    seen = (counters.overdue, counters.given_up, counters.calls)
    assert seen == {"deadline": (1, 0, 0), "server closed": (0, 0, 1)}.get(end, (0, 1, 0))
    if end == "server closed":
        shop.sim.run_until(task.done, SOON)
        failed = task.exception()
        assert isinstance(failed, RpcError) and failed.errno == errno.ECANCELED
    elif end == "killed":
        shop.greedy.restart()
    assert shop.begun == 0
    if end != "server closed":
        shop.end()


def test_replies_are_kept_for_a_minute_whatever_the_deadline() -> None:
    """A call that is repeated later is not executed again."""
    shop = Shop()
    deaf = Fault(FaultKind.DROP, ANY_NID, ANY_NID, portals=1 << REPLY_PORTAL, rate=1)
    shop.serve_bulk()
    client = shop.client(shop.greedy)
    shop.sim.run_until(shop.greedy.spawn(client.call("echo")).done, SOON)
    shop.greedy.loop.enter(shop.greedy.core.faults.add, deaf)
    task = shop.greedy.spawn(client.call("echo", timeout=4_000_000.0))
    shop.sim.run_until(lambda: shop.begun == 2, SOON)
    shop.sim.run(40.0)
    assert shop.server.kept_bytes > 0
    shop.sim.run(30.0)
    assert shop.server.kept_bytes == 0
    shop.serve_bulk()
    shop.sim.run_until(task.done, LATER)
    failed = task.exception()
    assert isinstance(failed, RpcError)
    assert (failed.errno, failed.executed, shop.begun) == (errno.ENODATA, "yes", 2)
    shop.end()


def test_replies_that_expire_together_are_forgotten_in_several_turns() -> None:
    """A loop that forgets very many in one turn serves nobody meanwhile."""
    sessions: Sessions[str] = Sessions(10, 1 << 20)
    session = sessions.make(1, Nid.parse("10.0.0.1@tcp"), 5, 5000, 1000)
    assert session is not None
    for slot in range(5000):
        sessions.begin(session, slot, 1, "x")
        sessions.end_request(session, slot, 1, b"reply", 10.0 + (slot == 4999))
    left = [5000]
    following: float | None = 10.0
    while following == 10.0:
        following = sessions.expire(10.5)
        left.append(sessions.kept // 5)
    assert left == [5000, 4000, 3000, 2000, 1000, 1]
    assert following == 11.0
    assert sessions.expire(11.0) is None
    assert sessions.kept == 0


@pytest.mark.pure
def test_replies_that_are_forgotten_in_several_turns_are_all_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ulnet.rpc.sessions._EXPIRE", 10)
    shop = Shop()
    shop.serve_bulk()
    tasks = shop.calls(shop.greedy, 64, "echo")
    shop.sim.run_until(lambda: all(task.done() for task in tasks), SOON)
    assert shop.server.kept_bytes > 0
    shop.sim.run(LATER)
    assert shop.server.kept_bytes == 0
    shop.end()


def test_addresses_that_have_left_with_kept_replies_leave_their_sessions() -> None:
    shop = Shop(sessions=4)
    shop.serve_bulk()
    for _ in range(4):
        shop.one(shop.greedy, timeout=4_000_000.0)
    assert shop.one(shop.others[0]).data == b"0"
    assert shop.server.sessions == 4
    shop.end()
