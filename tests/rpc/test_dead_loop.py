"""Programs that end while a handler waits: it is closed with their loop, without an error of its own."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rpc.conftest import SERVER
from support.ports import free_port
from ulnet import Node
from ulnet.lnd.tcp import TcpParams
from ulnet.rpc import Call, Client, Server, Service

pytestmark = pytest.mark.requirement("ULP")


@pytest.mark.pure
def test_a_stream_that_waits_ends_with_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python closes what is left in any order; here the handler is first, whose generator it waits for."""
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda news: told.append(repr(news.exc_value)))
    service = Service("source")

    @service.stream("wait")
    async def wait(call: Call) -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.get_running_loop().create_future()

    async def begin() -> None:
        tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
        nodes = Node(tcp=tcp), Node(tcp=tcp)
        for node, nid in zip(nodes, ("127.4.0.1@tcp", SERVER), strict=True):
            await node.start()
            node.add_ni(nid)
        Server(service, nodes[1]).start()
        client = Client(nodes[0], SERVER, "source")
        stream = client.stream("wait")
        assert await anext(stream) == b"one"
        for node in nodes:
            await node.close()

    def ignore(loop: asyncio.AbstractEventLoop, news: dict[str, Any]) -> None:
        """The task of the handler, which nobody awaits any more."""

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(ignore)
    loop.run_until_complete(begin())
    loop.close()
    left = [
        one for one in gc.get_objects() if inspect.iscoroutine(one) and one.__qualname__ == "Server._stream"
    ]
    assert len(left) == 1
    left.pop().close()
    del loop, left
    gc.collect()
    assert told == []
