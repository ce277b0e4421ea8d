"""`ulnet rpc client`: what it writes passes mypy, and calls; `ulnet rpc stats`: what was counted."""

from __future__ import annotations

import asyncio
import datetime
import enum
import importlib.util
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec
import pytest
import yaml

import ulnet.sync
from cli.test_rpc_command import Run
from support.ports import free_port
from support.shared import ROOT
from ulnet import Node
from ulnet.cli.rpc_client import Told, generate
from ulnet.lnd.tcp import TcpParams
from ulnet.rpc import Call, Client, Server, Service
from ulnet.rpc.schema import described

pytestmark = pytest.mark.requirement("ULP")

NID = "127.4.5.3@tcp"
PORT = free_port()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Circle(msgspec.Struct, tag=True):
    radius: float
    at: tuple[int, int] = (0, 0)


class Square(msgspec.Struct, tag=True, rename="kebab"):
    side_length: float
    colour: Colour = Colour.RED
    label: str | None = None
    list: dict[int, set[int]] = {}
    drawn: datetime.datetime | None = None


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: bytes


def shapes() -> Service:
    service = Service("shapes & more")

    @service.method("area")
    async def area(call: Call, shape: Circle | Square) -> float:
        return shape.radius if isinstance(shape, Circle) else shape.side_length**2

    @service.method("copy-square")
    async def copy(call: Call, square: Square) -> Square:
        return square

    @service.method("list")
    async def swap(call: Call, pairs: list[Pair]) -> list[Pair]:
        return pairs[::-1]

    @service.method("class")
    async def raw(call: Call, data: bytes) -> bytes:
        return data[::-1]

    @service.method("forget")
    async def forget(call: Call) -> None:
        pass

    @service.method("unknown")
    async def unknown(call, data: Literal["a", 3]):  # type: ignore[no-untyped-def]
        return {"got": data}

    @service.method("fill")
    async def fill(call: Call, byte: int) -> int:
        await call.push(bytes([byte]) * call.into_size)
        return call.into_size

    @service.stream("count")
    async def count(call: Call, to: int) -> AsyncIterator[Pair]:
        for number in range(to):
            yield Pair(number, b"x")

    service.topic("news")
    return service


@pytest.fixture
async def served() -> AsyncIterator[Run]:
    params = TcpParams(accept="all", accept_port=PORT, reserved_ports=False)
    async with Node(tcp=params) as node:
        node.add_ni(NID)
        async with Server(shapes(), node):

            async def run(*words: str) -> tuple[int, str, str]:
                done = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "ulnet", "rpc", *words, "--port", str(PORT)),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                out, err = await done.communicate()
                return done.returncode or 0, out.decode(), err.decode()

            yield run


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def checked(*paths: Path) -> None:
    """mypy is content with them."""
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir"),
        *(str(paths[0].parent / "cache"), *map(str, paths)),
        cwd=ROOT / "src",
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await done.communicate()
    assert done.returncode == 0, out.decode()


async def test_a_generated_client_has_types_and_calls(served: Run, tmp_path: Path) -> None:
    status, text, err = await served("client", NID, "shapes & more")
    assert (status, err) == (0, "")
    path = tmp_path / "shapes_client.py"
    path.write_text(text)
    sync = tmp_path / "shapes_sync.py"
    status, text, _ = await served("client", NID, "shapes & more", "--sync")
    assert status == 0
    sync.write_text(text)
    user = tmp_path / "user.py"
    user.write_text(
        "from shapes_client import Circle, ShapesMoreClient, Square\n"
        "async def use(client: ShapesMoreClient) -> float:\n"
        "    square: Square = await client.copy_square(Square(side_length=2.0, colour='blue'))\n"
        "    async for left, right in client.count(3):\n"
        "        square.side_length += left + len(right)\n"
        "    return square.side_length + await client.area(Circle(radius=1.0))\n"
    )
    await checked(path, sync, user)
    made: Any = loaded(path)
    params = TcpParams(listen=False, accept_port=PORT)
    async with Node(tcp=params) as node:
        node.add_ni("127.4.5.4@tcp")
        async with Client(node, NID, made.SERVICE) as plain:
            client = made.ShapesMoreClient(plain)
            assert await client.area(made.Circle(radius=3.0)) == 3.0
            square = made.Square(side_length=2.0, colour="blue", list_={5: {1}})
            assert await client.area(square) == 4.0
            copy = await client.copy_square(square)
            assert (copy.colour, copy.label, copy.list_) == ("blue", None, {5: {1}})
            assert await client.list_([(1, b"a"), (2, b"b")]) == [(2, b"b"), (1, b"a")]
            assert await client.class_(b"abc") == b"cba"
            assert await client.forget() is None
            assert (await client.unknown("a")).as_type(dict) == {"got": "a"}
            into = bytearray(2 << 20)
            assert await client.fill(7, into=into, timeout=60) == len(into)
            assert into == b"\7" * len(into)
            assert [pair async for pair in client.count(3, timeout=60)] == [(n, b"x") for n in range(3)]


async def test_a_generated_client_without_asyncio_calls(served: Run, tmp_path: Path) -> None:
    _, text, _ = await served("client", NID, "shapes & more", "--sync")
    path = tmp_path / "shapes_threads.py"
    path.write_text(text)
    made: Any = loaded(path)

    def use() -> None:
        params = TcpParams(listen=False, accept_port=PORT)
        with ulnet.sync.Node(tcp=params) as node:
            node.add_ni("127.4.5.5@tcp")
            with ulnet.sync.Client(node, NID, made.SERVICE) as plain:
                client = made.ShapesMoreClient(plain)
                square = made.Square(side_length=2.0, colour="blue", list_={5: {1}})
                assert client.area(square) == 4.0
                assert client.copy_square(square).list_ == {5: {1}}
                assert client.list_([(1, b"a"), (2, b"b")]) == [(2, b"b"), (1, b"a")]
                assert client.forget() is None
                assert client.unknown("a").as_type(dict) == {"got": "a"}
                into = bytearray(2 << 20)
                assert client.fill(7, into=into, timeout=60) == len(into)
                assert into == b"\7" * len(into)
                assert list(client.count(3, timeout=60)) == [(n, b"x") for n in range(3)]

    with ThreadPoolExecutor(1) as thread:
        await asyncio.get_running_loop().run_in_executor(thread, use)


def test_what_a_service_tells_is_not_executed(tmp_path: Path) -> None:
    evil = 'x"""\nimport os; os.abort()  # \\'
    schema: dict[str, Any] = {
        "type": "object",
        "required": ["t"],
        "properties": {"t": {"enum": [evil]}, evil: {}},
    }
    fields = {"type": "object", "properties": {"os.abort()": {"default": "1"}, "'": {}}}
    raw = {
        "service": evil,
        "methods": [
            {"name": name, "kind": kind, "takes": {"$ref": evil}, "gives": {"enum": [evil]}}
            for name in (evil, "", "1", "__init__", "client", "Ω", "def")
            for kind in ("call", "stream", evil)
        ],
        "$defs": {evil: schema, "y": fields, "Client": schema, "loop": {"$ref": "#/$defs/loop"}},
    }
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(raw), type=Told)
    for sync in (False, True):
        path = tmp_path / f"evil_{sync}.py"
        path.write_text(generate(told, sync=sync))
        module = loaded(path)
        assert evil == module.SERVICE


def test_types_that_double_at_each_step_are_cut_off() -> None:
    steps = {f"s{n}": {"type": "array", "prefixItems": [{"$ref": f"s{n + 1}"}] * 2} for n in range(31)}
    raw = {
        "service": "s",
        "methods": [{"name": "m", "kind": "call", "takes": {"$ref": "s0"}, "gives": "bytes"}],
        "$defs": steps,
    }
    assert len(generate(msgspec.convert(raw, Told))) < 1_000_000


def test_handlers_whose_hints_cannot_be_read_are_served() -> None:
    service = Service("odd")

    @service.method("odd")
    async def odd(call: NotThere) -> int:  # type: ignore[name-defined]  # noqa: F821
        return 3

    class Own:
        pass

    @service.method("own")
    async def own(call: Call) -> Own:
        return Own()

    told = described(list(service.methods.values()))
    assert [(one["takes"], one["gives"]) for one in told["methods"]] == [(None, "any"), (None, "any")]


async def test_statistics_are_shown(served: Run) -> None:
    for _ in range(3):
        assert (await served("call", NID, "shapes & more", "class", "--text", "abc"))[1] == "cba"
    assert (await served("call", NID, "shapes & more", "area", "--json", "3"))[0] == 1
    status, out, err = await served("stats", NID, "shapes & more")
    assert (status, err) == (0, "")
    told = yaml.safe_load(out)
    assert told["service"] == "shapes & more"
    assert told["server"] == {
        **dict.fromkeys(("malformed", "refused", "busy", "old", "waiting"), 0),
        "running": 1,
        "sessions": told["server"]["sessions"],
        "kept_bytes": told["server"]["kept_bytes"],
    }
    methods = {one["name"]: one for one in told["methods"]}
    raw = methods["class"]
    assert [raw[name] for name in ("kind", "calls", "errors", "overdue", "given_up")] == ["call", 3, 0, 0, 0]
    assert sum(raw["service_time_us"]["histogram"].values()) == 3
    assert raw["service_time_us"]["p99"] in raw["service_time_us"]["histogram"]
    assert (methods["area"]["calls"], methods["area"]["errors"]) == (1, 1)
    assert "service_time_us" not in methods["fill"]
