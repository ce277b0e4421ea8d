"""Calls and replies over real sockets: data, types, errors, cancellation, deadlines."""

from __future__ import annotations

import asyncio
import errno
import pickle
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from rpc.conftest import SERVER
from ulnet import Node
from ulnet.core.status import LNetError
from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.schema import described
from ulnet.wire.lnet import LNET_MTU
from ulnet.wire.rpc import BODY

pytestmark = pytest.mark.requirement("ULP")

Nodes = tuple[Node, Node]


class Sum(msgspec.Struct):
    left: int
    right: int


class Total(msgspec.Struct):
    total: int


class Shop:
    """A service with handlers of all kinds."""

    def __init__(self) -> None:
        self.service = Service("shop")
        self.executed = 0
        self.cancelled = 0
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.ended = asyncio.Event()
        service = self.service

        @service.method("echo")
        async def echo(call: Call) -> bytes:
            self.executed += 1
            return bytes(call.data)

        @service.method("add")
        async def add(call: Call, sum: Sum) -> Total:
            return Total(sum.left + sum.right)

        @service.method("raise")
        async def fail(call: Call) -> None:
            raise ValueError("the shelf is empty")

        @service.method("refuse")
        async def refuse(call: Call) -> None:
            raise LNetError(errno.EACCES, "not for you")

        @service.method("long")
        async def long(call: Call) -> bytes:
            return bytes(int(call.data))

        @service.method("wait")
        async def wait(call: Call) -> bytes:
            self.executed += 1
            self.began.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                self.ended.set()
                raise
            return b"waited"

        @service.method("left")
        async def left(call: Call) -> bytes:
            left = call.time_left()
            return b"" if left is None else str(left).encode()


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def server(nodes: Nodes, shop: Shop) -> AsyncIterator[Server]:
    async with Server(shop.service, nodes[1]) as server:
        yield server


@pytest.fixture
async def client(nodes: Nodes, server: Server) -> AsyncIterator[Client]:
    async with Client(nodes[0], SERVER, "shop") as client:
        yield client


@pytest.mark.parametrize(("taken", "asked"), [(1 << 18, False), (100_000, True)])
async def test_a_request_is_as_long_as_the_server_takes_frames(nodes: Nodes, taken: int, asked: bool) -> None:
    """Whatever the client takes itself; what is longer the server asks for."""
    service = Service("wide")

    @service.method("size")
    async def size(call: Call) -> int:
        return len(call.data) + (1 << 30 if call.frame.flags & BODY else 0)

    data = bytes(100_000)
    async with Server(service, nodes[1], largest=taken), Client(nodes[0], SERVER, "wide", largest=2048) as c:
        told = (await c.call("size", data)).as_type(int)
    assert told == len(data) + (1 << 30 if asked else 0)


@pytest.mark.parametrize("size", [0, 1, 64, 16000, 16384, 100_000, LNET_MTU, 3 * LNET_MTU + 1])
async def test_data_of_any_size_reach_the_handler(client: Client, shop: Shop, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    got: list[bytes] = []

    @shop.service.method("keep")
    async def keep(call: Call) -> int:
        got.append(bytes(call.data))
        return len(call.data)

    answer = await client.call("keep", data, timeout=60)
    assert answer.as_type(int) == size
    assert got == [data]


async def test_many_calls_at_once_get_their_own_replies(client: Client, server: Server, shop: Shop) -> None:
    asked = [str(number).encode() for number in range(500)]
    answers = await asyncio.gather(*(client.call("echo", data) for data in asked))
    assert [answer.data for answer in answers] == asked
    assert shop.executed == 500
    assert (client.under_way, server.running, server.waiting, server.sessions) == (0, 0, 0, 1)


async def test_structs_travel_as_msgpack(client: Client) -> None:
    answer = await client.call("add", Sum(2, 3))
    assert answer.as_type(Total) == Total(5)
    with pytest.raises(RpcError, match="the data are no Sum") as wrong:
        answer.as_type(Sum)
    assert (wrong.value.errno, wrong.value.executed) == (errno.EBADMSG, "yes")  # its handler has run
    with pytest.raises(RpcError, match="the data are no Sum") as wrong:
        await client.call("add", b"\xc1 nonsense")
    assert (wrong.value.errno, wrong.value.executed) == (errno.EBADMSG, "no")
    with pytest.raises(RpcError, match="cannot be sent") as wrong:
        await client.call("add", object())
    assert (wrong.value.errno, wrong.value.executed) == (errno.EBADMSG, "no")
    with pytest.raises(RpcError, match="the data are no Sum"):
        answer.as_type(Sum)


@pytest.mark.parametrize("data", [b"\x91" * 4000 + b"\xc0", b"\x81\xa1a" * 4000 + b"\xc0", b"\xa2\xff\xff"])
@pytest.mark.parametrize("wanted", [Any, object])
async def test_data_that_nest_without_end_or_are_no_text(nodes: Nodes, data: bytes, wanted: Any) -> None:
    """Of a client, and of a server: the error is an RpcError, which says that nothing was executed."""
    service = Service("deep")
    executed = 0

    async def takes(call: Call, value: Any) -> None:
        nonlocal executed
        executed += 1

    takes.__annotations__["value"] = wanted
    service.method("takes")(takes)

    @service.method("gives")
    async def gives(call: Call) -> bytes:
        return data

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "deep") as client:
        with pytest.raises(RpcError, match="the data are no") as wrong:
            await client.call("takes", data)
        assert (wrong.value.errno, wrong.value.executed, executed) == (errno.EBADMSG, "no", 0)
        answer = await client.call("gives")
        with pytest.raises(RpcError, match="the data are no"):
            answer.as_type(wanted)


async def test_a_method_takes_data_of_a_frame_only_where_it_says_so(nodes: Nodes) -> None:
    service = Service("short")

    @service.method("count", body=False)
    async def count(call: Call) -> int:
        return len(call.data)

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "short") as client:
        assert (await client.call("count", bytes(10_000))).as_type(int) == 10_000
        with pytest.raises(RpcError, match="data of count must be in its frame") as refused:
            await client.call("count", bytes(20_000))
        assert (refused.value.errno, refused.value.executed) == (errno.EMSGSIZE, "no")


async def test_data_are_decoded_up_to_a_limit(nodes: Nodes) -> None:
    """Small bytes can become large objects: what is too long is refused before it is fetched."""
    service = Service("limits")
    sizes: list[int] = []

    @service.method("list")
    async def numbers(call: Call, data: list[int]) -> None:
        sizes.append(len(data))

    @service.method("any", most=100)
    async def anything(call: Call, data: Any) -> None:
        sizes.append(len(data))

    @service.method("bytes", most=100)
    async def plain(call: Call, data: bytes) -> None:
        sizes.append(len(data))

    @service.method("no data", most=100)
    async def nothing(call: Call) -> None:
        sizes.append(len(call.data))

    @service.stream("stream", most=100)
    async def stream(call: Call, data: list[int]) -> AsyncIterator[bytes]:
        yield b"%d" % len(data)

    def ones(size: int) -> bytes:
        return b"\xdd" + (size - 5).to_bytes(4, "big") + b"\x01" * (size - 5)

    async with Server(service, nodes[1]) as server, Client(nodes[0], SERVER, "limits") as client:
        for method, size in (("list", 1 << 16), ("any", 100), ("bytes", 2 << 20), ("no data", 2 << 20)):
            await client.call(method, ones(size))
        assert sizes == [(1 << 16) - 5, 95, 2 << 20, 2 << 20]
        assert [chunk async for chunk in client.stream("stream", ones(100))] == [b"95"]
        usual = 1 << 16
        for method, size, most in (("list", usual + 1, usual), ("any", 101, 100), ("any", usual, 100)):
            with pytest.raises(RpcError, match=rf"{size} bytes.*at most {most}.*most=") as wrong:
                await client.call(method, ones(size))
            assert (wrong.value.errno, wrong.value.executed) == (errno.EMSGSIZE, "no")
        with pytest.raises(RpcError, match=r"101 bytes.*at most 100") as wrong:
            assert [chunk async for chunk in client.stream("stream", ones(101))]
        assert (len(sizes), server.waiting, server.running) == (4, 0, 0)
    with pytest.raises(LNetError, match="most=-1"):
        service.method("none", most=-1)


async def test_what_a_handler_raises_is_told(client: Client) -> None:
    with pytest.raises(RpcError, match="raise: ValueError: the shelf is empty") as raised:
        await client.call("raise")
    assert (raised.value.errno, raised.value.executed) == (errno.EREMOTEIO, "yes")
    with pytest.raises(RpcError, match="refuse: not for you") as raised:
        await client.call("refuse")
    assert (raised.value.errno, raised.value.executed) == (errno.EACCES, "yes")


async def test_a_traceback_travels_only_if_asked_for(nodes: Nodes, shop: Shop, client: Client) -> None:
    @shop.service.stream("raise stream")
    async def fail(call: Call) -> AsyncIterator[bytes]:
        for _ in range(10):
            raise ValueError("the shelf is empty")
        yield b""

    with pytest.raises(RpcError) as raised:
        await client.call("raise")
    assert raised.value.traceback == "" and "test_calls.py" not in str(raised.value)
    async with Client(nodes[0], SERVER, "shop", tracebacks=True) as asking:
        for attempt in (asking.call("raise"), anext(asking.stream("raise stream"))):
            with pytest.raises(RpcError, match=r"raise( stream)?: ValueError: the shelf is empty$") as raised:
                await attempt
            lines = raised.value.traceback.splitlines()
            assert lines[-1] == "ValueError: the shelf is empty"
            assert any("test_calls.py" in line and "in fail" in line for line in lines)
            assert pickle.loads(pickle.dumps(raised.value)).traceback == raised.value.traceback


async def test_what_is_not_there_is_told_at_once(nodes: Nodes, client: Client) -> None:
    with pytest.raises(RpcError, match="has no method 'banana'") as refused:
        await client.call("banana")
    assert (refused.value.errno, refused.value.executed) == (errno.ENOSYS, "no")
    async with Client(nodes[0], SERVER, "bakery") as other:
        with pytest.raises(RpcError, match="nothing serves 'bakery' there") as refused:
            await other.call("echo")
    assert (refused.value.errno, refused.value.executed) == (errno.ENOENT, "no")
    with pytest.raises(RpcError, match="1 to 255 bytes"):
        await client.call("")


async def test_a_reply_that_does_not_fit_is_an_error(client: Client) -> None:
    assert len((await client.call("long", b"16000")).data) == 16000
    with pytest.raises(RpcError, match=r"push them into memory") as refused:
        await client.call("long", b"20000")
    assert (refused.value.errno, refused.value.executed) == (errno.EMSGSIZE, "yes")


async def test_a_deadline_ends_the_call_on_both_sides(client: Client, server: Server, shop: Shop) -> None:
    with pytest.raises(RpcError, match="no reply in time") as late:
        await client.call("wait", timeout=0.3)
    assert (late.value.errno, late.value.executed) == (errno.ETIMEDOUT, "unknown")
    await shop.ended.wait()
    assert (shop.executed, shop.cancelled, client.under_way) == (1, 1, 0)
    while server.running:
        await asyncio.sleep(0)


async def test_cancellation_reaches_the_handler(client: Client, shop: Shop) -> None:
    task = asyncio.create_task(client.call("wait"))
    await shop.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await shop.ended.wait()
    assert (shop.executed, shop.cancelled, client.under_way) == (1, 1, 0)


async def test_deadlines_travel_with_nested_calls(nodes: Nodes, client: Client, shop: Shop) -> None:
    inner = Client(nodes[1], SERVER, "shop")  # the server calls itself

    @shop.service.method("nested")
    async def nested(call: Call) -> bytes:
        return (await inner.call("left", timeout=500)).data

    assert (await client.call("left")).data == b""
    assert 0 < float((await client.call("nested", timeout=7)).data) <= 7
    await inner.close()


async def test_a_slow_handler_is_waited_for(client: Client, shop: Shop) -> None:
    client.learn("wait", 0.001, 0.0)  # what was observed lets expect a quick reply
    for _ in range(50):
        client.learn("wait", 0.001, 0.0)
    task = asyncio.create_task(client.call("wait"))
    await shop.began.wait()
    await asyncio.sleep(1.0)
    shop.gate.set()
    assert (await task).data == b"waited"
    assert shop.executed == 1


async def test_calls_end_with_their_client_and_their_server(nodes: Nodes, shop: Shop) -> None:
    server = Server(shop.service, nodes[1])
    server.start()
    client, other = (Client(nodes[0], SERVER, "shop") for _ in range(2))
    calls = [asyncio.create_task(one.call("wait")) for one in (client, other)]
    while server.running < 2:
        await asyncio.sleep(0.01)
    await client.close()
    with pytest.raises(RpcError, match="the client was closed") as ended:
        await calls[0]
    assert ended.value.errno == errno.ESHUTDOWN
    while server.running > 1:
        await asyncio.sleep(0.01)
    await server.close()
    with pytest.raises(RpcError, match="the server cancelled the call") as ended:
        await calls[1]
    assert (ended.value.errno, ended.value.executed) == (errno.ECANCELED, "unknown")
    with pytest.raises(RpcError) as ended:
        await other.call("echo")
    assert ended.value.errno == errno.ENOENT
    with pytest.raises(RpcError, match="closed"):
        await client.call("echo")
    await other.close()


async def test_what_a_server_sent_before_it_knew_of_the_end_is_not_dropped(nodes: Nodes, shop: Shop) -> None:
    """On one rail: on two, the ACK of the farewell may overtake a chunk on the other one."""
    nodes[0].del_ni("127.4.1.1@tcp1")
    nodes[1].del_ni("127.4.1.2@tcp1")

    @shop.service.stream("numbers")
    async def numbers(call: Call) -> AsyncIterator[bytes]:
        while True:
            yield b"one more"

    async with Server(shop.service, nodes[1]) as server:
        for _ in range(20):
            client = Client(nodes[0], SERVER, "shop")
            async for _ in client.stream("numbers"):
                break
            await client.close()
        while server.running:
            await asyncio.sleep(0.001)
    assert nodes[0].core.stats.drop_count == 0


async def test_a_server_tells_its_methods(client: Client) -> None:
    await client.call("echo", b"x")
    told = (await client.call("ulnet.methods")).as_type(dict)
    assert told["service"] == "shop"
    methods = {method["name"]: method for method in told["methods"]}
    assert set(methods) == {"echo", "add", "raise", "refuse", "long", "wait", "left"}
    assert (methods["echo"]["calls"], methods["echo"]["errors"]) == (1, 0)
    assert sum(methods["echo"]["latency_us"]) == 1


async def test_types_are_told_anew_only_when_the_methods_have_changed(
    client: Client, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON Schema takes long to make: 64 calls of one message stopped a server for seconds."""
    made = []

    def counted(methods: list[Any]) -> dict[str, Any]:
        made.append(len(methods))
        return described(methods)

    monkeypatch.setattr("ulnet.rpc.introspection.described", counted)
    answers = {(await client.call("ulnet.types")).data for _ in range(5)}
    assert (len(answers), made) == (1, [7])

    @shop.service.method("new")
    async def new(call: Call, data: list[int]) -> None:
        pass

    for _ in range(5):
        told = (await client.call("ulnet.types")).as_type(dict)
        assert told["service"] == "shop"
        assert told["methods"][-1]["name"] == "new"
        assert told["methods"][-1]["takes"] == {"type": "array", "items": {"type": "integer"}}
    assert made == [7, 8]
    del shop.service.methods["new"]
    assert {(await client.call("ulnet.types")).data} == answers
    assert made == [7, 8, 7]


async def test_a_client_waits_for_a_slot(nodes: Nodes, server: Server, shop: Shop) -> None:
    async with Client(nodes[0], SERVER, "shop", slots=2) as client:
        calls = [asyncio.create_task(client.call("wait")) for _ in range(5)]
        while server.running < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(RpcError, match="no slot") as late:
            await client.call("echo", timeout=0.2)
        assert (late.value.errno, late.value.executed) == (errno.ETIMEDOUT, "no")
        assert server.running == 2
        calls.pop().cancel()
        shop.gate.set()
        assert [answer.data for answer in await asyncio.gather(*calls)] == [b"waited"] * 4
