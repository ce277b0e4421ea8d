"""Calls, bulk and streams without asyncio; handlers that are plain functions."""

from __future__ import annotations

import errno
import queue
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from sync.conftest import SERVER, Nodes
from ulnet.core.status import LNetError
from ulnet.sync import Call, Client, RpcError, Server, Service

pytestmark = pytest.mark.requirement("ULP")
VALUE = bytes(range(256)) * (20 << 10)  # 5 MiB


class Sum(msgspec.Struct):
    left: int
    right: int


class Shop:
    """A service with plain handlers of all kinds."""

    def __init__(self) -> None:
        self.service = Service("shop")
        self.threads: set[str] = set()
        self.progress: list[tuple[int, int, str]] = []
        self.stored = b""
        self.began = threading.Event()
        self.gate = threading.Event()
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.calls: list[Call] = []
        service = self.service
        self.news = service.topic("news")

        @service.method("add")
        def add(call: Call, sum: Sum) -> int:
            self.threads.add(threading.current_thread().name)
            return sum.left + sum.right

        @service.method("short", body=False)
        def short(call: Call, data: bytes) -> int:
            return len(data)

        @service.method("echo")
        async def echo(call: Call) -> bytes:
            return bytes(call.data)

        @service.method("raise")
        def fail(call: Call, what: str) -> None:
            if what == "exit":
                sys.exit(3)
            if what == "stop":
                raise StopIteration("early")
            raise ValueError("the shelf is empty")

        @service.method("put")
        def put(call: Call) -> int:
            self.stored = bytes(call.pull(progress=self._progress))
            return call.bulk_size

        @service.method("get")
        def get(call: Call) -> int:
            call.push(VALUE, progress=self._progress)
            return call.into_size

        @service.method("bad progress")
        def bad_progress(call: Call) -> None:
            def progress(moved: int, total: int) -> None:
                raise ValueError("no more of it")

            call.push(VALUE, progress=progress)

        @service.method("wait")
        def wait(call: Call) -> bytes:
            self.calls.append(call)
            self.began.set()
            self.gate.wait()
            try:
                call.pull()
            except LNetError as failed:
                self.ended.put(f"{call.cancelled} {failed.errno}")
                raise
            return b"waited"

        @service.stream("count")
        def count(call: Call, to: int) -> Iterator[bytes]:
            try:
                for number in range(to):
                    yield number.to_bytes(4, "little")
            finally:
                self.ended.put("closed")

    def _progress(self, moved: int, total: int) -> None:
        self.progress.append((moved, total, threading.current_thread().name))


@pytest.fixture
def shop(nodes: Nodes) -> Iterator[Shop]:
    shop = Shop()
    with Server(shop.service, nodes[1], threads=4):
        yield shop
        shop.gate.set()


@pytest.fixture
def client(nodes: Nodes, shop: Shop) -> Iterator[Client]:
    with Client(nodes[0], SERVER, "shop") as client:
        yield client


def test_many_threads_call_and_few_serve(client: Client, shop: Shop) -> None:
    with ThreadPoolExecutor(16) as threads:
        answers = threads.map(lambda left: client.call("add", Sum(left, 1), timeout=60), range(400))
        assert [answer.as_type(int) for answer in answers] == list(range(1, 401))
    assert shop.threads <= {f"ulnet shop {number}" for number in range(1, 5)}
    assert client.call("echo", b"in the loop").data == b"in the loop"
    assert client.counters.calls == 401
    assert client.under_way == 0


def test_a_method_that_is_added_while_a_server_runs_is_served(
    client: Client, shop: Shop, nodes: Nodes
) -> None:
    with pytest.raises(RpcError, match="service shop has no method 'twice'"):
        client.call("twice", b"ab", timeout=60)

    @shop.service.method("twice")
    def twice(call: Call, data: bytes) -> bytes:
        shop.threads.add(threading.current_thread().name)
        return data * 2

    @shop.service.stream("letters")
    def letters(call: Call, word: str) -> Iterator[bytes]:
        yield from (letter.encode() for letter in word)

    assert client.call("twice", b"ab", timeout=60).data == b"abab"
    assert list(client.stream("letters", "ab")) == [b"a", b"b"]
    assert shop.threads and all(name.startswith("ulnet shop ") for name in shop.threads)
    told = client.call("ulnet.methods", timeout=60).as_type(dict)
    assert {"twice", "letters", "add"} <= {one["name"] for one in told["methods"]}


def test_a_service_forgets_servers_that_were_closed(nodes: Nodes) -> None:
    service = Service("seldom")
    with Server(service, nodes[1]):
        assert len(service._followers) == 1
    assert service._followers == []
    with pytest.raises(LNetError, match="window"):
        Server(service, nodes[1], window=-1)
    assert service._followers == []


@pytest.mark.parametrize(
    ("what", "text"),
    [("exit", "SystemExit: 3"), ("stop", "StopIteration: early"), ("else", "ValueError: the shelf is empty")],
)
def test_what_a_handler_raises_reaches_the_caller(client: Client, what: str, text: str) -> None:
    with pytest.raises(RpcError, match=text) as failed:
        client.call("raise", what, timeout=60)
    assert (failed.value.errno, failed.value.executed) == (errno.EREMOTEIO, "yes")
    assert client.call("add", Sum(1, 2), timeout=60).as_type(int) == 3


def test_data_that_are_decoded_have_a_limit(client: Client) -> None:
    with pytest.raises(RpcError, match=r"at most 65536 are decoded for add") as failed:
        client.call("add", bytes(2 << 20), timeout=60)
    assert (failed.value.errno, failed.value.executed) == (errno.EMSGSIZE, "no")


def test_a_method_takes_data_of_a_frame_only_where_it_says_so(client: Client) -> None:
    assert client.call("short", bytes(10_000)).as_type(int) == 10_000
    with pytest.raises(RpcError, match="data of short must be in its frame") as failed:
        client.call("short", bytes(20_000))
    assert (failed.value.errno, failed.value.executed) == (errno.EMSGSIZE, "no")


def test_bulk_goes_both_ways_and_its_progress_is_told_in_the_handlers_thread(
    client: Client, shop: Shop
) -> None:
    assert client.call("put", bulk=VALUE, timeout=60, check=True).as_type(int) == len(VALUE)
    assert shop.stored == VALUE
    into = bytearray(len(VALUE))
    answer = client.call("get", into=into, timeout=60, check=True)
    assert (answer.as_type(int), answer.pushed, bytes(into)) == (len(VALUE), len(VALUE), VALUE)
    assert {total for _, total, _ in shop.progress} == {len(VALUE)}
    assert [moved for moved, _, _ in shop.progress].count(len(VALUE)) == 2
    assert {name.rsplit(" ", 1)[0] for _, _, name in shop.progress} == {"ulnet shop"}


def test_a_progress_that_raises_ends_the_transfer(client: Client) -> None:
    with pytest.raises(RpcError, match="ValueError: no more of it"):
        client.call("bad progress", into=bytearray(len(VALUE)), timeout=60)


def test_a_stream_is_an_iterator(client: Client, shop: Shop) -> None:
    got = [int.from_bytes(chunk, "little") for chunk in client.stream("count", 500, timeout=60)]
    assert got == list(range(500))
    assert shop.ended.get(timeout=60) == "closed"


def test_a_stream_that_is_closed_or_let_go_ends_its_generator(client: Client, shop: Shop) -> None:
    with client.stream("count", 10**9) as numbers:
        assert next(numbers) == bytes(4)
    assert list(numbers) == []
    assert shop.ended.get(timeout=60) == "closed"
    next(client.stream("count", 10**9))
    assert shop.ended.get(timeout=60) == "closed"


def test_a_topic_is_published_from_any_thread_and_its_reader_can_be_stopped(
    client: Client, shop: Shop, nodes: Nodes
) -> None:
    news = client.stream("news")
    got: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for chunk in news:
            got.put(chunk)
        got.put(b"over")

    with ThreadPoolExecutor(1) as threads:
        threads.submit(read)
        while not nodes[1].do(lambda: shop.news.subscribers):
            pass
        nodes[1].do(shop.news.publish, b"rain")
        assert got.get(timeout=60) == b"rain"
        news.close()
        assert got.get(timeout=60) == b"over"


def test_a_handler_whose_client_has_given_up_is_told(client: Client, shop: Shop) -> None:
    for patience in (0.3, 3.0, 30.0):  # a busy machine may give up before the server has begun
        with pytest.raises(RpcError) as failed:
            client.call("wait", bulk=VALUE, timeout=patience)
        assert failed.value.errno == errno.ETIMEDOUT
        if shop.began.wait(1):
            break
    assert shop.began.is_set()
    while not shop.calls[0].cancelled:
        pass
    shop.gate.set()
    assert shop.ended.get(timeout=60) == f"True {errno.ECANCELED}"


def test_a_call_of_a_handler_has_no_more_time_than_its_own(nodes: Nodes, shop: Shop) -> None:
    service = Service("front")
    with Client(nodes[1], SERVER, "shop") as back:

        @service.method("ask")
        def ask(call: Call) -> int:
            left = call.time_left()
            assert left is not None
            try:
                back.call("wait", bulk=VALUE)
            except RpcError as failed:
                shop.ended.put(f"{failed.errno} {left < 0.6}")
                raise
            return 0

        with Server(service, nodes[1]), Client(nodes[0], SERVER, "front") as client:
            with pytest.raises(RpcError):
                client.call("ask", timeout=0.5)
            assert shop.ended.get(timeout=60) == f"{errno.ETIMEDOUT} True"
        shop.gate.set()


def test_a_handler_that_does_not_end_stops_no_server(
    nodes: Nodes, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ulnet.sync.server._FAREWELL", 0.05)
    service = Service("stuck")
    gate, began = threading.Event(), threading.Event()

    @service.method("wait")
    def wait(call: Call) -> None:
        began.set()
        gate.wait()

    server = Server(service, nodes[1], threads=1)
    with Client(nodes[0], SERVER, "stuck") as client, ThreadPoolExecutor(1) as threads:
        calling = threads.submit(client.call, "wait")
        assert began.wait(60)
        server.close()
        with pytest.raises(RpcError) as failed:
            calling.result(60)
        assert failed.value.errno == errno.ECANCELED
    gate.set()


def test_streams_that_wait_leave_threads_for_calls_and_for_other_clients(nodes: Nodes) -> None:
    service = Service("busy")
    gate, began = threading.Event(), threading.Event()

    @service.method("echo")
    def echo(call: Call, data: bytes) -> bytes:
        return data

    @service.stream("wait")
    def wait(call: Call) -> Iterator[bytes]:
        began.set()
        gate.wait()
        yield b"waited"

    @service.stream("count")
    def count(call: Call) -> Iterator[bytes]:
        yield from (b"1", b"2")

    with (
        Server(service, nodes[1], threads=4),
        Client(nodes[0], SERVER, "busy") as greedy,
        Client(nodes[1], SERVER, "busy") as other,
        ThreadPoolExecutor(16) as threads,
    ):
        waiting = [threads.submit(list, greedy.stream("wait")) for _ in range(16)]
        try:
            assert began.wait(60)
            for client in (greedy, other):
                assert client.call("echo", b"honest", timeout=10).data == b"honest"
            assert list(other.stream("count", timeout=10)) == [b"1", b"2"]
        finally:
            gate.set()
        assert all(chunks.result(60) == [b"waited"] for chunks in waiting)


def test_calls_end_when_the_clients_node_is_closed(nodes: Nodes, shop: Shop) -> None:
    client = Client(nodes[0], SERVER, "shop")
    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(client.call, "wait", bulk=VALUE)
        assert shop.began.wait(60)
        nodes[0].close()
        with pytest.raises(RpcError) as failed:
            calling.result(60)
    assert failed.value.errno == errno.ESHUTDOWN
    with pytest.raises(RpcError) as failed:
        client.call("add", Sum(1, 1))
    assert (failed.value.errno, failed.value.executed) == (errno.ENETDOWN, "no")
    client.close()


def test_a_server_needs_a_thread(nodes: Nodes) -> None:
    with pytest.raises(LNetError, match="one or more"):
        Server(Service("shop"), nodes[1], threads=0)


def test_the_progress_of_a_call_is_told_in_the_thread_that_waits(client: Client) -> None:
    client.call("put", bulk=VALUE, timeout=60)
    told: list[tuple[int, int, str]] = []

    def progress(moved: int, total: int) -> None:
        told.append((moved, total, threading.current_thread().name))

    into = bytearray(len(VALUE))
    client.call("get", into=into, timeout=60, progress=progress)
    assert into == VALUE
    assert told[-1] == (len(VALUE), len(VALUE), threading.current_thread().name)

    def raises(moved: int, total: int) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        client.call("get", into=into, timeout=60, progress=raises)
    assert client.under_way == 0


def test_arguments_in_another_order_are_told(nodes: Nodes) -> None:
    server: Any = Server
    client: Any = Client
    service = Service("shop")
    for made, arguments, wrong in (
        (server, (service, None), "NoneType"),
        (server, (nodes[1], service), "Service"),
        (client, (SERVER, nodes[0], "shop"), "str"),
        (client, (nodes[0].node, SERVER, "shop"), "Node"),
    ):
        with pytest.raises(TypeError, match=f"{wrong} in place of the node: give a started ulnet.sync.Node"):
            made(*arguments)
