"""A node without asyncio: its messages, its life, and threads that use it at once."""

from __future__ import annotations

import errno
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.ports import free_port
from sync.conftest import SERVER, Nodes
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.sync import Inbox, Node

pytestmark = pytest.mark.requirement("ULP")


def test_messages_go_and_come(nodes: Nodes) -> None:
    client, server = nodes
    assert str(client.ping(SERVER).primary_nid) == SERVER
    assert [str(nid) for nid in client.discover(SERVER)] == [SERVER, "127.4.9.2@tcp1"]
    memory = bytearray(64)
    options = OP_PUT | OP_GET | MANAGE_REMOTE
    server.do(server.node.attach, 30, 7, memory, options=options, handler=lambda event: None)
    assert client.put(SERVER, 30, 7, b"written", offset=3, timeout=60) == 7
    into = bytearray(10)
    assert client.get(SERVER, 30, 7, into, timeout=60) == 10
    assert into == b"\0\0\0written"
    assert client.explain(SERVER).peer_ni is not None
    with pytest.raises(LNetError) as failed:
        client.put("127.4.77.1@tcp7", 30, 7, b"x")
    assert failed.value.errno


def test_many_threads_send_to_one_inbox(nodes: Nodes) -> None:
    client, server = nodes
    with Inbox(server, 31, 1) as inbox, ThreadPoolExecutor(8) as threads:
        sent = [number.to_bytes(4, "little") for number in range(200)]
        done = threads.map(lambda data: client.put(SERVER, 31, 1, data, timeout=60), sent)
        got = [bytes(inbox.receive(timeout=60).data) for _ in sent]
        assert sorted(got) == sorted(sent)
        assert list(done) == [4] * len(sent)
        assert inbox.dropped == 0
        with pytest.raises(TimeoutError):
            inbox.receive(timeout=0)
        with pytest.raises(LNetError, match="timeout nan"):
            inbox.receive(timeout=math.nan)


def test_a_reader_hears_that_the_inbox_is_closed(nodes: Nodes) -> None:
    inbox = Inbox(nodes[1], 31, 1)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(list, inbox)
        nodes[1].close()
        assert reading.result(60) == []
    with pytest.raises(LNetError):
        inbox.receive()


def test_a_node_begins_and_ends_again(nodes: Nodes) -> None:
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    node = Node(tcp=params)
    for _ in range(2):
        with node:
            node.start()
            node.add_ni("127.4.8.9@tcp")
        node.close()
        with pytest.raises(LNetError) as failed:
            node.ping("127.4.8.9@tcp")
        assert failed.value.errno == errno.ENETDOWN


def test_a_node_that_cannot_begin_leaves_no_thread() -> None:
    def drivers(core: object) -> list[object]:
        raise LNetError(errno.EIO, "no driver")

    before = threading.active_count()
    with pytest.raises(LNetError, match="no driver"):
        Node(drivers=drivers).start()
    assert threading.active_count() == before


def test_the_nodes_own_thread_is_told_that_it_cannot_wait(nodes: Nodes) -> None:
    client = nodes[0]
    with pytest.raises(LNetError) as failed:
        client.do(client.ping, SERVER)
    assert failed.value.errno == errno.EDEADLK
    with pytest.raises(LNetError) as failed:
        client.do(client.close)
    assert failed.value.errno == errno.EDEADLK
    assert client.ping(SERVER, timeout=60).nids, "nothing was closed"


@pytest.mark.parametrize("given", [lambda: 3, 5, None, threading.active_count])
def test_run_is_for_coroutine_functions(nodes: Nodes, given: Any) -> None:
    """Of a plain function it never returned."""
    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(TypeError, match=r"node.run\(.*coroutine function.*node.do calls plain functions"):
            threads.submit(nodes[0].run, given).result(60)
        assert nodes[0].ping(SERVER, timeout=60).nids


def test_do_is_for_plain_functions(nodes: Nodes) -> None:
    async def wanted() -> None:
        raise AssertionError

    with pytest.raises(TypeError, match=r"node.do\(.*wanted\).*plain function.*node.run runs coroutine"):
        nodes[0].do(wanted)  # type: ignore[unused-coroutine]
    with pytest.raises(TypeError, match="callable"):
        nodes[0].do(5)  # type: ignore[arg-type]


def test_who_waits_hears_that_the_node_is_closed(nodes: Nodes) -> None:
    client = nodes[0]
    began = threading.Event()

    async def for_ever() -> None:
        began.set()
        await client.thread.loop.create_future()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.run, for_ever)
        assert began.wait(60)
        client.close()
        with pytest.raises(LNetError) as failed:
            waiting.result(60)
    assert failed.value.errno == errno.ESHUTDOWN
