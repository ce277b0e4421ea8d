"""What calls ask of LNet: paths, primary NIDs, time-outs of descriptors, memory that is not copied."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from rpc.conftest import SERVER
from rpc.test_hostile import INBOX
from ulnet import Node
from ulnet.nid import Nid
from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.service import bits_of
from ulnet.sim import Simulation
from ulnet.wire.lnet import LNET_MTU
from ulnet.wire.rpc import (
    BULK_PORTAL,
    REPLY_PORTAL,
    REQUEST_PORTAL,
    CallFrame,
    Connect,
    Connected,
    Reply,
    unpack,
)

pytestmark = pytest.mark.requirement("ULP")

Nodes = tuple[Node, Node]
HERE, THERE = ("127.4.0.1@tcp", "127.4.1.1@tcp1"), (SERVER, "127.4.1.2@tcp1")


@pytest.fixture
async def server(nodes: Nodes) -> AsyncIterator[Server]:
    service = Service("tested")

    @service.method("who")
    async def who(call: Call) -> str:
        return str(call.client)

    async with Server(service, nodes[1]) as server:
        yield server


async def test_a_reply_goes_the_way_of_its_request_and_its_client_has_one_name(
    nodes: Nodes, server: Server
) -> None:
    node = nodes[0]
    await node.discover(SERVER)
    inbox = node.inbox(REPLY_PORTAL, INBOX, size=4096)
    connect = Connect(answer_to=INBOX, slots=4, largest=4096, token=9)
    await node.put(THERE[0], REQUEST_PORTAL, bits_of("tested"), connect.pack(), source=HERE[0])
    connected = unpack((await inbox.receive()).data)
    assert isinstance(connected, Connected)
    for number in range(1, 9):
        rail = number % 2
        frame = CallFrame(connected.session, 0, number, 1, INBOX, "who", patience=9000)
        await node.put(THERE[rail], REQUEST_PORTAL, bits_of("tested"), frame.pack(), source=HERE[rail])
        message = await inbox.receive()
        reply = unpack(message.data)
        assert isinstance(reply, Reply) and not reply.status
        assert (str(message.source), str(message.target)) == (THERE[rail], HERE[rail])
        assert bytes(reply.data)[1:] == HERE[0].encode()
    inbox.close()


async def test_requests_take_all_rails(nodes: Nodes, server: Server) -> None:
    async with Client(nodes[0], SERVER, "tested") as client:
        for _ in range(50):
            await client.call("who")
    sent = [sum(ni.stats.sent) for ni in nodes[0].core.nis.values() if not ni.nid.is_lo]
    assert all(count > 20 for count in sent)


async def test_descriptors_have_no_more_time_than_their_call(nodes: Nodes) -> None:
    service = Service("tested")
    seen: list[float | None] = []
    node = nodes[1]

    @service.method("read")
    async def read(call: Call) -> None:
        def look(moved: int, total: int) -> None:
            seen.extend(md.timeout for md in node.core.memory.mds.values() if md.me is None)

        await call.push(bytes(8 * LNET_MTU), progress=look)

    async with Server(service, node, window=2), Client(nodes[0], SERVER, "tested") as client:
        await client.call("read", into=bytearray(8 * LNET_MTU), timeout=3.0)
    assert seen and all(timeout is not None and 0 < timeout <= 3.0 for timeout in seen)


@pytest.mark.parametrize("window", [1, 3])
async def test_no_more_pieces_than_the_window_are_under_way(nodes: Nodes, window: int) -> None:
    service = Service("tested")
    seen: set[int] = set()
    node = nodes[1]

    @service.method("read")
    async def read(call: Call) -> None:
        def look(moved: int, total: int) -> None:
            seen.add(sum(md.me is None and md.length == LNET_MTU for md in node.core.memory.mds.values()))

        await call.push(bytes(16 * LNET_MTU), progress=look)

    async with Server(service, node, window=window), Client(nodes[0], SERVER, "tested") as client:
        await client.call("read", into=bytearray(16 * LNET_MTU))
    assert max(seen) <= window
    assert window == 1 or max(seen) > 1


@pytest.mark.parametrize("piece", [4096, 262144, LNET_MTU])
async def test_the_first_pieces_have_as_many_bytes_as_the_server_says(nodes: Nodes, piece: int) -> None:
    service = Service("tested")
    told: list[int] = []
    total = 3 * piece + 5

    @service.method("read")
    async def read(call: Call) -> None:
        await call.push(bytes(range(256)) * (total // 256) + bytes(total % 256), progress=look)

    def look(moved: int, of: int) -> None:
        told.append(moved - sum(told))

    async with Server(service, nodes[1], piece=piece), Client(nodes[0], SERVER, "tested") as client:
        into = bytearray(total)
        await client.call("read", into=into)
    assert into == bytes(range(256)) * (total // 256) + bytes(total % 256)
    assert sorted(told) == [5, piece, piece, piece]


@pytest.mark.pure  # the compiled build has the number within
@pytest.mark.parametrize(("fast", "most"), [(0.0, 4096), (1e9, LNET_MTU)])
async def test_pieces_grow_where_they_come_fast(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, fast: float, most: int
) -> None:
    monkeypatch.setattr("ulnet.rpc.bulk._FAST", fast)
    service = Service("tested")
    told: list[int] = []
    data = bytes(range(256)) * 40_000

    @service.method("read")
    async def read(call: Call) -> None:
        await call.push(data, progress=lambda moved, of: told.append(moved))

    async with Server(service, nodes[1], window=1, piece=4096), Client(nodes[0], SERVER, "tested") as client:
        into = bytearray(len(data))
        await client.call("read", into=into)
    assert into == data
    sizes = [after - before for before, after in zip([0, *told], told, strict=False)]
    assert max(sizes) == most
    assert sizes[:9] == [min(4096 << at, most) for at in range(9)]


@pytest.mark.parametrize(("window", "piece"), [(0, LNET_MTU), (1, 4095), (1, LNET_MTU + 1)])
def test_a_window_or_piece_that_cannot_be_is_refused(nodes: Nodes, window: int, piece: int) -> None:
    with pytest.raises(RpcError, match=f"window={window}, piece={piece}: give") as refused:
        Server(Service("tested"), nodes[1], window=window, piece=piece)
    assert refused.value.errno == errno.EINVAL


async def test_bulk_has_the_callers_own_memory(nodes: Nodes) -> None:
    service = Service("tested")
    into, bulk = bytearray(3 * LNET_MTU), bytes(2 * LNET_MTU)
    found: list[object] = []
    pushed = bytes(range(256)) * 8

    @service.method("both")
    async def both(call: Call) -> None:
        portal = nodes[0].core.memory.portals[BULK_PORTAL]
        assert portal is not None
        for entry in portal.entries():
            assert entry.md is not None
            found.extend(view.obj for view in entry.md.fragments)
        await call.push(pushed)
        assert memoryview(into)[: len(pushed)] == pushed, "it is there before the reply is"
        mine = bytearray(len(bulk))
        assert await call.pull(mine) is mine

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "tested") as client:
        await client.call("both", into=into, bulk=bulk)
    assert {id(memory) for memory in found} == {id(into), id(bulk)}


async def test_a_client_that_was_sent_away_comes_again(nodes: Nodes) -> None:
    service = Service("tested")
    executed = 0

    @service.method("slow")
    async def slow(call: Call) -> None:
        nonlocal executed
        executed += 1
        await asyncio.sleep(0.001)

    server = Server(service, nodes[1], concurrency=1, queue=1)
    async with server, Client(nodes[0], SERVER, "tested") as client:
        await asyncio.gather(*(client.call("slow") for _ in range(30)))
        assert executed == 30
        assert server.counters.busy > 0 and client.counters.busy > 0


@pytest.mark.pure  # a method that the compiled build calls without looking it up
def test_a_client_finds_a_restarted_server_under_its_new_nids(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Simulation(1)
    asked: list[Client] = []
    look = Client.look_for_server

    def looks(self: Client, attempt: int) -> None:
        monkeypatch.setattr(self.node.core, "discover", partial(discovers, self.node.core.discover))
        look(self, attempt)

    def discovers(discover: Callable[..., None], target: Nid, **more: object) -> None:
        asked.append(clients[0])
        discover(target, **more)

    monkeypatch.setattr(Client, "look_for_server", looks)
    home, other = (
        sim.node("s", "10.0.0.1@tcp", "10.1.0.1@tcp1"),
        sim.node("c", "10.0.0.2@tcp", "10.1.0.2@tcp1"),
    )
    service = Service("tested")

    @service.method("echo")
    async def echo(call: Call) -> bytes:
        return bytes(call.data)

    def serve() -> None:
        Server(service, home.node).start()

    home.each_life(serve)
    clients: list[Client] = []

    async def ask() -> bytes:
        if not clients:
            clients.append(Client(other.node, "10.0.0.1@tcp", "tested"))
        return (await clients[0].call("echo", b"x", timeout=60.0, idempotent=True)).data

    def nids() -> set[str]:
        peer = other.core.peers.find(Nid.parse("10.0.0.1@tcp"))
        assert peer is not None
        return {str(nid) for net in peer.nets.values() for nid in [ni.nid for ni in net.nis]}

    assert other.call(ask()) == b"x"
    assert nids() == {"10.0.0.1@tcp", "10.1.0.1@tcp1"}
    assert not asked
    home.kill(silent=True)
    home.restart()
    home.loop.enter(home.node.del_ni, "10.1.0.1@tcp1")
    assert other.call(ask()) == b"x"
    sim.run_until(lambda: nids() == {"10.0.0.1@tcp"})
    assert clients[0].counters.sessions == 2
    assert asked, "the client asks LNet for it, whether LNet has seen the restart or not"
    other.call(clients[0].close())
