"""`ulnet rpc` against a service in another process's place: this one."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.lnd.tcp import TcpParams
from ulnet.rpc import Call, Server, Service

pytestmark = pytest.mark.requirement("ULP")

NID = "127.4.5.2@tcp"
Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
async def ulnet_rpc() -> AsyncIterator[Run]:
    """Runs the command while a service is there: (exit status, output, errors)."""
    service = Service("sums")

    @service.method("add")
    async def add(call: Call, numbers: list[int]) -> int:
        return sum(numbers)

    @service.method("echo")
    async def echo(call: Call) -> bytes:
        return b"<" + call.data + b">"

    @service.method("dress")
    async def dress(call: Call) -> bytes:
        return b"\x1b]0;title\x07\xff\n" if call.data else msgspec.msgpack.encode("Å\x9b2J")

    @service.stream("steps")
    async def steps(call: Call) -> AsyncIterator[int]:
        yield 1

    @service.method("curse")
    async def curse(call: Call) -> bytes:
        raise ValueError("\x1b]0;title\x07\x9b2J\nline")

    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=params) as node:
        node.add_ni(NID)
        async with Server(service, node):

            async def run(*words: str, screen: int = asyncio.subprocess.PIPE) -> tuple[int, str, str]:
                words = (*words, "--port", str(params.accept_port))
                done = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "ulnet", "rpc", *words),
                    stdout=screen,
                    stderr=asyncio.subprocess.PIPE,
                )
                out, err = await done.communicate()
                return done.returncode or 0, (out or b"").decode(errors="surrogateescape"), err.decode()

            yield run


async def test_a_service_is_asked_and_called(ulnet_rpc: Run) -> None:
    status, out, err = await ulnet_rpc("call", NID, "sums", "add", "--json", "[1, 2, 3]")
    assert (status, err) == (0, "")
    assert json.loads(out) == 6
    assert await ulnet_rpc("call", NID, "sums", "echo", "--text", "Å") == (0, "<Å>", "")
    status, out, err = await ulnet_rpc("methods", NID, "sums")
    assert (status, err) == (0, "")
    assert out.splitlines()[:5] == ["service: sums", "methods:", "- name: add", "  kind: call", "  calls: 1"]


async def test_a_stream_is_told_from_a_method(ulnet_rpc: Run) -> None:
    status, _, err = await ulnet_rpc("call", NID, "sums", "steps", "--timeout", "30")
    assert status == 1
    assert "steps is a stream: use stream(), not call() (errno 22, executed: no)" in err


async def test_what_a_server_says_does_nothing_to_the_terminal(ulnet_rpc: Run) -> None:
    status, _, err = await ulnet_rpc("call", NID, "sums", "curse")
    assert status == 1
    assert "ValueError: \\x1b]0;title\\x07\\x9b2J\nline (errno" in err


async def test_a_reply_does_nothing_to_the_terminal_and_is_as_it_is_in_a_file(ulnet_rpc: Run) -> None:
    words = ("call", NID, "sums", "dress")
    status, out, _ = await ulnet_rpc(*words, "--text", "x")
    assert (status, out.encode(errors="surrogateescape")) == (0, b"\x1b]0;title\x07\xff\n")
    assert (await ulnet_rpc(*words))[1] == '"Å\x9b2J"\n'
    ours, theirs = pty.openpty()
    try:
        for more, shown in (
            (("--text", "x"), b"\\x1b]0;title\\x07\\xff\r\n"),
            ((), '"Å\\x9b2J"\r\n'.encode()),
        ):
            assert (await ulnet_rpc(*words, *more, screen=theirs))[0] == 0
            assert os.read(ours, 100) == shown
    finally:
        os.close(ours)
        os.close(theirs)


async def test_what_fails_is_told(ulnet_rpc: Run) -> None:
    status, out, err = await ulnet_rpc("call", NID, "sums", "add", "--json", '"x"')
    assert (status, out) == (1, "")
    assert "the data are no list" in err
    assert "executed: no" in err
    status, out, err = await ulnet_rpc("call", NID, "bakery", "add")
    assert status == 1
    assert "nothing serves 'bakery' there" in err
    for words in (("call", NID, "sums"), ("methods", NID, "sums", "add"), ("call", "x", "sums", "add")):
        assert (await ulnet_rpc(*words))[0] == 2
    assert "is no JSON" in (await ulnet_rpc("call", NID, "sums", "add", "--json", "{"))[2]
    status, _, err = await ulnet_rpc("call", NID, "sums", "add", "--json", "1", "--text", "1")
    assert (status, "not both" in err) == (2, True)
