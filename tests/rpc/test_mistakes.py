"""Mistakes of those who write services and of those who call them: each is told at once."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rpc.conftest import SERVER
from ulnet import Node
from ulnet.core.status import LNetError
from ulnet.rpc import Call, Client, RpcError, Server, Service

pytestmark = pytest.mark.requirement("ULP")

Nodes = tuple[Node, Node]


class Odd(Exception):
    """One that has no text."""

    def __str__(self) -> str:
        text: str = self.args[7]
        return text


class Unusual(BaseException):
    """No Exception."""


def _raise(what: str) -> None:
    number: Any = {"swapped": "no such key"}.get(what, 2)
    if what == "negative":
        raise RpcError(-errno.ENOENT, "no such key")
    if what == "swapped":
        raise RpcError(number, 2)  # type: ignore[arg-type]
    if what == "wide":
        raise RpcError(1 << 32, "no such key")
    if what == "zero":
        raise LNetError(0, "no such key")
    if what == "lnet negative":
        raise LNetError(-errno.ENOENT, "no such key")
    if what == "lnet swapped":
        raise LNetError("no such key", 2)  # type: ignore[arg-type]
    if what == "later":
        failed = RpcError(errno.ENOENT, "no such key")
        failed.errno = -2
        raise failed
    if what == "odd":
        raise Odd
    if what == "generator exit":
        raise GeneratorExit
    if what == "unusual":
        raise Unusual("no such key")


MISTAKES = {
    "negative": r"ValueError: RpcError\(-2, 'no such key'\): an errno is positive.*not -errno.ENOENT",
    "swapped": r"TypeError: RpcError\('no such key', 2\): give an errno and a text",
    "wide": r"ValueError: RpcError\(4294967296, .*32 bits",
    "zero": r"LNetError: no such key \(raised with errno 0",
    "lnet negative": r"LNetError: no such key \(raised with errno -2",
    "lnet swapped": r"LNetError: it has no text, for its __str__ raises TypeError",
    "later": r"RpcError: no such key \(raised with errno -2",
    "odd": r"Odd: it has no text, for its __str__ raises IndexError",
    "generator exit": r"GeneratorExit: ",
    "unusual": r"Unusual: no such key",
}


async def read(client: Client, what: str) -> None:
    async for chunk in client.stream("stream", what):
        assert chunk


@pytest.fixture
def service() -> Service:
    service = Service("mistakes")

    @service.method("now")
    async def now(call: Call, what: str) -> str:
        _raise(what)
        return what

    @service.method("later")
    async def later(call: Call, what: str) -> str:
        await asyncio.sleep(0)
        _raise(what)
        return what

    @service.stream("stream")
    async def stream(call: Call, what: str) -> AsyncIterator[str]:
        yield what
        _raise(what)

    return service


@pytest.mark.parametrize("mistake", list(MISTAKES))
@pytest.mark.parametrize("tracebacks", [False, True])
async def test_whatever_a_handler_raises_is_answered(
    nodes: Nodes, service: Service, mistake: str, tracebacks: bool
) -> None:
    """Without a deadline such a call never ended, and most kept their place: four stopped this server."""
    async with (
        Server(service, nodes[1], concurrency=2) as server,
        Client(nodes[0], SERVER, "mistakes", tracebacks=tracebacks) as client,
        asyncio.timeout(20),
    ):
        for method in ("now", "later", "stream") * 3:
            attempt = read(client, mistake) if method == "stream" else client.call(method, mistake)
            with pytest.raises(RpcError, match=MISTAKES[mistake]) as told:
                await attempt
            assert (told.value.errno, told.value.executed) == (errno.EREMOTEIO, "yes")
            assert ("in _raise" in told.value.traceback) == tracebacks
        together = [client.call("now", what) for what in (mistake, "good", mistake, "good")]
        answers = await asyncio.gather(*together, return_exceptions=True)
        assert [isinstance(answer, RpcError) for answer in answers] == [True, False, True, False]
        assert (server.running, client.under_way) == (0, 0)
        assert server.method_counters["later"].errors == 3


@pytest.mark.parametrize("odd", ["strided", "wide", "released"])
async def test_a_view_of_any_kind_is_sent_or_its_error_told(nodes: Nodes, odd: str) -> None:
    """Behind a result that could not be put into a frame no answer came."""
    service = Service("views")

    @service.method("view")
    async def view(call: Call) -> memoryview:
        memory = memoryview(bytes(range(8)))
        if odd == "released":
            memory.release()
        return memory[::2] if odd == "strided" else memory.cast("H") if odd == "wide" else memory

    async with (
        Server(service, nodes[1]) as server,
        Client(nodes[0], SERVER, "views") as client,
        asyncio.timeout(20),
    ):
        if odd == "released":
            with pytest.raises(RpcError, match="released"):
                await client.call("view")
        else:
            expected = bytes(range(8))[:: 2 if odd == "strided" else 1]
            assert (await client.call("view")).data == expected
        assert server.running == 0


def test_an_error_of_the_wrong_kind_is_told_where_it_is_made() -> None:
    wrong: list[tuple[Any, Any, type[Exception]]] = [
        (-2, "x", ValueError),
        (0, "x", ValueError),
        (1 << 32, "x", ValueError),
        ("x", 2, TypeError),
        (2, None, TypeError),
        (2.0, "x", TypeError),
    ]
    for number, text, kind in wrong:
        with pytest.raises(kind, match=r"RpcError\(.*errno"):
            RpcError(number, text)
    assert RpcError(errno.ENOENT, "").errno == errno.ENOENT


async def test_what_handlers_raise_is_in_the_log(
    nodes: Nodes, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """With a traceback, once a second for each method; what is raised as an answer at DEBUG alone."""

    @service.method("answer")
    async def answer(call: Call) -> None:
        raise RpcError(errno.ENOENT, "no such key")

    caplog.set_level(logging.DEBUG, "ulnet.rpc")
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "mistakes") as client:
        for method, what in (("now", "odd"), ("later", "negative"), ("answer", None), ("now", 5)):
            with pytest.raises(RpcError):
                await client.call(method, what)
        told = {record.getMessage(): record for record in caplog.records if record.name == "ulnet.rpc"}
        odd, negative, plain = sorted(told.values(), key=lambda record: "now" not in record.getMessage())
        assert [record.levelno for record in (odd, negative, plain)] == [logging.ERROR] * 2 + [logging.DEBUG]
        assert odd.getMessage().startswith("mistakes: now, called by 127.4.0.1@tcp, raised Odd: it has no")
        assert odd.exc_info is not None and odd.exc_info[0] is Odd
        assert plain.getMessage().endswith("raised no such key") and not plain.exc_info
        caplog.clear()
        calls = [client.call("later", "odd") for _ in range(100)]
        await asyncio.gather(*calls, return_exceptions=True)
        assert len([record for record in caplog.records if record.name == "ulnet.rpc"]) < 50


async def test_call_is_for_methods_and_stream_for_streams(nodes: Nodes, service: Service) -> None:
    """A call of a stream never ended: its chunks found nobody. A stream of a method was empty."""
    async with (
        Server(service, nodes[1]) as server,
        Client(nodes[0], SERVER, "mistakes") as client,
        asyncio.timeout(20),
    ):
        with pytest.raises(RpcError, match=r"stream is a stream: use stream\(\)") as told:
            await client.call("stream", "x")
        assert (told.value.errno, told.value.executed) == (errno.EINVAL, "no")
        with pytest.raises(RpcError, match=r"now is no stream: use call\(\)") as told:
            await anext(client.stream("now", "x"))
        assert (told.value.errno, told.value.executed) == (errno.EINVAL, "no")
        assert server.running == 0
        assert [bytes(chunk) async for chunk in client.stream("stream", "x")] == [b"\xa1x"]
