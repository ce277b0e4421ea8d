"""Mistakes of those who write services and of those who call them: each is told at once."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import mmap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
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
        raise RpcError(4096, "no such key")
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
    "wide": r"ValueError: RpcError\(4096, .*positive, and 4095 at most",
    "zero": r"LNetError: no such key \(raised with errno 0",
    "lnet negative": r"LNetError: no such key \(raised with errno -2",
    "lnet swapped": r"LNetError: it has no text, for its __str__ raises TypeError",
    "later": r"RpcError: no such key \(raised with errno -2",
    "odd": r"Odd: it has no text, for its __str__ raises IndexError",
    "generator exit": r"GeneratorExit: ",
    "unusual": r"Unusual: no such key",
}


def mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


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
        (4096, "x", ValueError),
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


_FORGED = "no\n2026-11-29 lnetd: error: forged \x1b[2J\x9b2J\u2028"


@pytest.mark.parametrize("answer", [False, True], ids=["mistake", "answer"])
async def test_callers_write_no_lines_of_their_own_into_the_log(
    nodes: Nodes, service: Service, caplog: pytest.LogCaptureFixture, answer: bool
) -> None:
    @service.method("parse")
    async def parse(call: Call) -> None:
        text = bytes(call.data).decode()
        try:
            raise RpcError(errno.EINVAL, text) if answer else ValueError(text)
        except ValueError as failed:
            failed.add_note(f"note {text}")
            raise KeyError(text) from failed

    caplog.set_level(logging.DEBUG, "ulnet.rpc")
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "mistakes") as client:
        with pytest.raises(RpcError, match="forged"):
            await client.call("parse", _FORGED.encode())
    formatter = logging.Formatter()
    lines = [line for record in caplog.records for line in formatter.format(record).splitlines()]
    assert any("forged" in line for line in lines)
    assert not any(line.startswith("2026") for line in lines)
    assert all(line.isprintable() for line in lines)
    if not answer:  # all is there nevertheless
        assert any(line.startswith("ValueError: no\\n2026") for line in lines)
        assert any(line.startswith("note no\\n2026") for line in lines)
        assert any(line.lstrip().startswith("raise KeyError(text) from failed") for line in lines)


async def test_names_of_files_and_long_chains_forge_no_lines_either(
    nodes: Nodes, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    @service.method("compile")
    async def compiles(call: Call) -> None:
        text = bytes(call.data).decode()
        try:
            compile("1 +", text, "exec")
        except SyntaxError as failed:
            last: BaseException = failed
        for number in range(1200):
            above = ValueError(f"{number}")
            above.__context__ = last
            last = above
        raise last

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "mistakes") as client:
        with pytest.raises(RpcError, match="1199"):
            await client.call("compile", _FORGED.encode())
    (record,) = [one for one in caplog.records if one.name == "ulnet.rpc"]
    lines = logging.Formatter().format(record).splitlines()
    assert any("forged" in line for line in lines)
    assert not any(line.startswith("2026") for line in lines)


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


@pytest.mark.parametrize("why", ["short", "none", "progress", "checksum"])
async def test_a_push_that_fails_leaves_no_view_of_a_mapped_file(
    nodes: Nodes, tmp_path: Path, why: str
) -> None:
    """The mapping could not be closed: the client was told of that alone, and the file stayed mapped."""
    service = Service("files")
    path = tmp_path / "file"
    path.write_bytes(bytes(4 << 20))
    closed = []

    def progress(moved: int, total: int) -> None:
        if why == "progress":
            raise ValueError("no more of it")

    @service.method("fetch")
    async def fetch(call: Call) -> None:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages,
            memoryview(pages) as view,
        ):
            await call.push(view, offset=5 if why == "checksum" else None, progress=progress)
        closed.append(pages.closed)

    into = {"short": bytearray(1000), "none": None}.get(why, bytearray(5 << 20))
    texts = {
        "short": "bulk of 4194304 bytes at 0: the client lends 1000 bytes",
        "none": "the client lends no memory",
        "progress": "ValueError: no more of it",
        "checksum": "with a checksum each push begins where the last one ended",
    }
    async with Server(service, nodes[1], window=1) as server, Client(nodes[0], SERVER, "files") as client:
        with pytest.raises(RpcError, match=texts[why]):
            await client.call("fetch", into=into, check=why == "checksum", timeout=60)
        assert (server.running, closed) == (0, [])
        assert not mapped(path)


@pytest.mark.parametrize("why", ["short", "none", "progress"])
async def test_a_pull_that_fails_leaves_no_view_of_its_memory(nodes: Nodes, why: str) -> None:
    service = Service("files")
    memory = bytearray(4 << 20)

    def progress(moved: int, total: int) -> None:
        raise ValueError("no more of it")

    @service.method("keep")
    async def keep(call: Call) -> None:
        try:
            await call.pull(memory, progress=progress)
        finally:
            memory.append(1)  # a BufferError while there are views

    bulk = {"short": bytes(1000), "none": None}.get(why, bytes(4 << 20))
    async with Server(service, nodes[1], window=1), Client(nodes[0], SERVER, "files") as client:
        with pytest.raises(RpcError, match=r"lends|no more of it"):
            await client.call("keep", bulk=bulk, timeout=60)
    assert len(memory) == (4 << 20) + 1


async def test_a_call_that_fails_leaves_no_view_of_its_memory(nodes: Nodes, service: Service) -> None:
    into, bulk = bytearray(1 << 20), bytearray(1 << 20)
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "mistakes") as client:
        try:
            await client.call("now", "odd", into=into, bulk=bulk, check=True)
        except RpcError:
            into.append(1)
            bulk.append(1)
    assert len(into) == len(bulk) == (1 << 20) + 1


SERVERS: list[dict[str, Any]] = [
    *({"concurrency": wrong} for wrong in (0, -3, "4", None, 1.5)),
    *({"queue": wrong} for wrong in (-1, "x")),
    *({"slots": wrong} for wrong in (0, 1 << 16)),
    *({"largest": wrong} for wrong in (0, 10, 2 << 20)),
    *({name: -1} for name in ("queue_bytes", "streams", "sessions", "reply_bytes", "window", "piece")),
    {"sessions": 0},
    {"window": "16"},
]
CLIENTS: list[dict[str, Any]] = [
    *({"slots": wrong} for wrong in (0, -1, 1 << 16, "4")),
    *({"credit": wrong} for wrong in (0, 1 << 40, None)),
    *({"largest": wrong} for wrong in (0, 10, 2 << 20)),
    *({"silence": wrong} for wrong in (0, -1.0, float("nan"))),
]


async def test_settings_that_cannot_be_are_errors(nodes: Nodes, service: Service) -> None:
    """A server with no places, or a client with no slots, let its calls wait."""
    for wrong in SERVERS:
        (name, value), *_ = wrong.items()
        kind = RpcError if isinstance(value, int) else TypeError
        with pytest.raises(kind, match=f"{name}={value!r}.*give"):
            Server(service, nodes[1], **wrong)
    for wrong in CLIENTS:
        (name, value), *_ = wrong.items()
        kind = RpcError if isinstance(value, int | float) else TypeError
        with pytest.raises(kind, match=f"{name}={value!r}.*give"):
            Client(nodes[0], SERVER, "mistakes", **wrong)
    with pytest.raises(TypeError, match=r"float|silence='5'.*number of seconds"):
        Client(nodes[0], SERVER, "mistakes", silence="5")  # type: ignore[arg-type]
    async with (
        Server(service, nodes[1], concurrency=1, queue=0, streams=0, slots=1, largest=512),
        Client(nodes[0], SERVER, "mistakes", slots=1, credit=1, largest=512) as client,
    ):
        assert (await client.call("now", "x", timeout=60)).as_type(str) == "x"


def test_arguments_in_another_order_are_told(nodes: Nodes, service: Service) -> None:
    made: Any = Server
    with pytest.raises(TypeError, match=r"NoneType in place of the node: Server\(service, node\)"):
        made(service, None)
    with pytest.raises(TypeError, match=r"[Ss]ervice.*(Node|Server\(service, node\))"):
        made(nodes[1], service)
    made = Client
    with pytest.raises(TypeError, match=r"str in place of the node: Client\(node, |Node"):
        made(SERVER, nodes[0], "mistakes")
    with pytest.raises(TypeError, match=r"Node in place of the server's NID|Node"):
        made(nodes[0], nodes[1], "mistakes")
    with pytest.raises(TypeError, match=r"int in place of the service's name|str object expected"):
        made(nodes[0], SERVER, 5)


async def test_arguments_of_a_call_that_cannot_be_are_told(nodes: Nodes, service: Service) -> None:
    wrong: Any = "text"
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "mistakes") as client:
        for name in ("bulk", "into"):
            with pytest.raises((RpcError, TypeError), match=rf"{name}=: memory of type str|expected"):
                await client.call("now", "x", **{name: wrong})
        with pytest.raises(TypeError, match=r"timeout='text': give a number of seconds|float"):
            await client.call("now", "x", timeout=wrong)
        for bad in (math.nan, -1, -math.inf, -(10**400), 1e9 + 1, 1e300):
            with pytest.raises(RpcError, match=r"timeout .*number of seconds up to 1000000000, or None"):
                await client.call("now", "x", timeout=bad)
            with pytest.raises(RpcError, match=r"timeout .*number of seconds up to 1000000000, or None"):
                client.stream("stream", "x", timeout=bad)
        assert client.under_way == 0


async def test_a_time_out_may_be_long_or_none(nodes: Nodes, service: Service) -> None:
    """A call without end (math.inf) kept its slot for good; one above a milliard seconds never left."""
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "mistakes", slots=2) as client:
        for timeout in (None, math.inf, 10**400, 1e9, 999_999_999.9, 5_000_000):
            for _ in range(3):
                assert (await client.call("now", "x", timeout=timeout)).as_type(str) == "x"
            async with client.stream("stream", "x", timeout=timeout) as chunks:
                assert [chunk async for chunk in chunks]
        with pytest.raises(RpcError, match="in time") as late:
            await client.call("now", "x", timeout=0)
        assert late.value.errno == errno.ETIMEDOUT
        assert (client.under_way, client.counters.repeated) == (0, 0)


async def test_a_call_that_cannot_be_sent_gives_its_slot_back(nodes: Nodes, service: Service) -> None:
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "mistakes", slots=1) as client:
        await client.call("now", "x")
        clock = client.clock

        def broken() -> float:
            raise ZeroDivisionError

        for call in (lambda: client.call("now", "x"), lambda: anext(client.stream("stream", "x"))):
            client.clock = broken
            with pytest.raises(ZeroDivisionError):
                await call()
            client.clock = clock
            assert client.under_way == 0
        assert (await client.call("now", "x", timeout=60)).as_type(str) == "x"


async def _coroutine(call: Call) -> None:
    pass


async def _chunks(call: Call) -> AsyncIterator[int]:
    yield 1


def _plain_chunks(call: Call) -> Iterator[int]:
    yield 1


async def _none() -> None:
    pass


async def _three(call: Call, left: int, right: int) -> None:
    pass


async def _named(call: Call, *, data: bytes) -> None:
    pass


async def _more(call: Call, data: bytes, *, twice: bool = False) -> int:
    return len(data)


class _Object:
    async def __call__(self, call: Call) -> int:
        return len(call.data)


def test_what_can_be_no_handler_is_told_where_it_is_made_one(service: Service) -> None:
    """Each call failed, with an error about something else."""
    wrong: list[tuple[Any, Any, str]] = [
        (service.method, _chunks, r"_chunks has `yield`.*@service.stream"),
        (service.method, _plain_chunks, r"_plain_chunks has `yield`.*@service.stream"),
        (service.stream, _coroutine, r"_coroutine is no generator.*@service.method"),
        (service.method, 5, r"int cannot be called"),
        *((service.method, one, r"takes the call, and the data") for one in (_none, _three, _named)),
        (service.stream, lambda: None, r"takes the call, and the data"),
    ]
    for decorator, handler, text in wrong:
        with pytest.raises(TypeError, match=f"wrong: .*{text}"):
            decorator("wrong")(handler)
    assert set(service.methods) == {"now", "later", "stream"}


async def test_plain_functions_are_told_by_who_cannot_serve_them(nodes: Nodes, service: Service) -> None:
    service.method("more")(_more)
    service.method("object")(_Object())
    service.method("passed on")(lambda call: _coroutine(call))
    service.method("plain")(lambda call: 5)
    service.stream("plain stream")(lambda call: [1, 2])
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "mistakes") as client:
        for method in ("more", "object"):
            assert (await client.call(method, b"12", timeout=60)).as_type(int) == 2
        await client.call("passed on", timeout=60)
        with pytest.raises(RpcError, match=r"gave int.*`async def`; plain functions.*ulnet.sync.Server"):
            await client.call("plain", timeout=60)
        with pytest.raises(RpcError, match=r"gave list.*`yield`; plain generators.*ulnet.sync.Server"):
            await anext(client.stream("plain stream", timeout=60))
    service.stream("chunks")(_plain_chunks)
    with pytest.raises(TypeError, match=r"_plain_chunks is a plain generator.*ulnet.sync.Server"):
        Server(service, nodes[1])


async def test_a_method_that_is_added_while_a_server_runs_is_served(nodes: Nodes) -> None:
    service = Service("growing")
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "growing") as client:
        with pytest.raises(RpcError, match="service growing has no method 'twice'") as missing:
            await client.call("twice", b"ab", timeout=60)
        assert (missing.value.errno, missing.value.executed) == (errno.ENOSYS, "no")

        @service.method("twice")
        async def twice(call: Call, data: bytes) -> bytes:
            return data * 2

        assert (await client.call("twice", b"ab", timeout=60)).data == b"abab"
        told = (await client.call("ulnet.types", timeout=60)).as_type(dict)
        assert "twice" in str(told)
