"""`ulnet trace`: which pairs of a running node carry what, and why that changes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.daemon import environment
from support.ports import free_port
from ulnet.cli.trace_report import Report, as_text
from ulnet.core.msg import Msg
from ulnet.core.selection.live import MAX_PAIRS, RING, LiveTrace
from ulnet.core.selection.paths import Key
from ulnet.core.status import LNetError
from ulnet.dlc import model
from ulnet.dlc.endpoint import Endpoint
from ulnet.dlc.errors import DlcError
from ulnet.dlc.server import ControlServer
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.node.admin import Admin
from ulnet.rpc import Call, Client, Server, Service
from ulnet.wire.lnet import HEADER_SIZE, Header, MsgType
from ulnet.wire.rpc import REPLY_PORTAL

HERE = ["127.0.0.1@tcp", "127.0.1.1@tcp1"]
THERE = ["127.0.0.2@tcp", "127.0.1.2@tcp1"]


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes with two rails each; the first knows the second as a Multi-Rail peer."""
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=params) as here, Node(tcp=params) as there:
        for node, nids in ((here, HERE), (there, THERE)):
            for nid in nids:
                node.add_ni(nid)
            node.core.discovery.stop()  # no messages but those of the tests
        here.add_peer(THERE[0], THERE[1:])
        there.attach(30, 1, bytearray(1 << 16))
        yield here, there


class Follower:
    """Asks the node as the command does."""

    def __init__(self, node: Node, **words: Any) -> None:
        self.admin = Admin(node)
        self.words = words
        self.report = Report()

    async def rows(self) -> list[dict[str, Any]]:
        request = model.Trace(session=self.report.session, cursor=self.report.cursor, **self.words)
        answer = await self.admin.handle(request)
        assert answer.document is not None
        document = json.loads(msgspec.json.encode(answer.document))
        return self.report.rows(document["trace"])


def traced(node: Node) -> LiveTrace:
    trace = node.core.selector.trace
    assert trace is not None
    return trace


async def put(node: Node, count: int, size: int = 1000) -> None:
    for _ in range(count):
        assert await node.put(THERE[0], 30, 1, bytes(size)) == size


def ways(rows: list[dict[str, Any]], kind: str) -> list[tuple[str, str]]:
    return [(row["from"], row["to"]) for row in rows if row["kind"] == kind]


async def test_each_pair_is_told_with_what_it_carried_and_why(pair: tuple[Node, Node]) -> None:
    here, _ = pair
    await put(here, 3)  # before anybody follows
    follower = Follower(here)
    assert await follower.rows() == []
    await put(here, 6)
    rows = await follower.rows()
    assert set(ways(rows, "pair")) == set(zip(HERE, THERE, strict=True))
    assert sum(row["messages"] for row in rows) == 6
    assert sum(row["bytes"] for row in rows) == 6000
    for row in rows:
        assert (row["peer"], row["types"]) == (THERE[0], {"PUT": row["messages"]})
        assert sum(row["reasons"].values()) == row["messages"]
        assert row["reasons"].keys() <= {"expected completion", "credits", "sequence"}
    assert await follower.rows() == []


async def test_a_change_of_pairs_is_told_with_the_criterion_that_decided(pair: tuple[Node, Node]) -> None:
    here, _ = pair
    follower = Follower(here)
    await follower.rows()
    await put(here, 4)
    assert not [row for row in await follower.rows() if row["kind"] != "pair"]
    await follower.admin.handle(model.UdspAdd(src="tcp1"))
    await put(here, 4)
    (ended, carried) = await follower.rows()
    assert (ended["kind"], ended["from"], ended["reason"]) == ("ended", HERE[0], "local-net priority")
    assert carried["messages"] == 4
    assert await follower.rows() == []  # silence is no change
    await follower.admin.handle(model.UdspDel(all=True))
    await put(here, 4)
    rows = await follower.rows()
    assert ways(rows, "began") == [(HERE[0], THERE[0])]
    assert all(" by " in as_text(row) for row in rows)


async def test_every_message_with_the_pair_before_it(pair: tuple[Node, Node]) -> None:
    here, _ = pair
    follower = Follower(here, every_message=True)
    await follower.rows()
    await follower.admin.handle(model.SelectionAdd(kind="net", net="tcp*", weight=2))
    await put(here, 6, size=7)
    rows = await follower.rows()
    assert [row["from"] for row in rows] == [HERE[0], HERE[0], HERE[1], HERE[1], HERE[0], HERE[0]]
    assert [row["before"] is not None for row in rows] == [False, False, True, False, True, False]
    assert rows[2]["before"] == [HERE[0], THERE[0]]
    assert {(row["kind"], row["type"], row["bytes"]) for row in rows} == {("message", "PUT", 7)}
    assert "127.0.0.1@tcp -> 127.0.0.2@tcp)" in as_text(rows[2])
    assert as_text(rows[0]).endswith("PUT of 7 bytes; by weighted turn")


async def test_only_the_peer_that_was_asked_for(pair: tuple[Node, Node]) -> None:
    here, there = pair
    there.add_ni("127.0.9.2@tcp")
    followers = [Follower(here, target=target) for target in ("127.0.9.2@tcp", THERE[1])]
    for one in followers:
        await one.rows()
    await put(here, 2)
    await here.ping("127.0.9.2@tcp")
    (row,) = await followers[0].rows()
    assert (row["to"], row["types"]) == ("127.0.9.2@tcp", {"GET": 1})
    assert {row["peer"] for row in await followers[1].rows()} == {THERE[0]}
    with pytest.raises(DlcError, match="banana"):
        await Follower(here, target="banana").rows()


async def test_nothing_is_traced_for_nobody_and_a_new_trace_says_so(pair: tuple[Node, Node]) -> None:
    here, _ = pair
    await put(here, 1)
    assert here.core.selector.trace is None
    follower = Follower(here, every_message=True)
    await follower.rows()
    traced(here).wanted(-1e6, True)  # as if nobody had asked for long
    await put(here, 1)
    rows = await follower.rows()
    assert [row["kind"] for row in rows] == ["anew"]


async def test_a_slow_reader_loses_entries_and_is_told_how_many(pair: tuple[Node, Node]) -> None:
    here, _ = pair
    slow = Follower(here, every_message=True)
    await slow.rows()
    pni = next(here.core.peers.find(Nid.parse(THERE[0])).nis())  # type: ignore[union-attr]
    for _ in range(RING + 500):
        md = here.core.memory.md_bind(b"", None, threshold=1)
        here.core.put(md, pni.nid, 30, 9, ack=False)
    trace = traced(here)
    assert (trace.noted, len(list(trace.since(0, RING * 2)[2]))) == (RING + 500, RING)
    rows = await slow.rows()
    assert [row["messages"] for row in rows if row["kind"] == "lost"] == [500]
    assert len(ways(rows, "message")) == RING
    assert await slow.rows() == []
    await here.close(drain=0)  # nobody wants to wait until all of these have left


async def test_pairs_beyond_the_bound_are_counted(pair: tuple[Node, Node]) -> None:
    here, _ = pair
    follower = Follower(here)
    await follower.rows()
    for number in range(MAX_PAIRS + 3):
        target = f"10.9.{number >> 8}.{number & 255}@tcp"
        dest = here.core.peers.imagine(Nid.parse(target))
        path = here.core.selector.choose(dest, Key(int(MsgType.PUT)), HEADER_SIZE)
        traced(here).note(path, Msg(Header(type=MsgType.PUT)), here.core.state.clock())
    rows = await follower.rows()
    assert [row["messages"] for row in rows if row["kind"] == "untold"] == [3]
    assert len(ways(rows, "pair")) == MAX_PAIRS


# The command -----------------------------------------------------------------------------------------


async def run(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-c",
            "from ulnet.cli.ulnet import main; raise SystemExit(main())",
            "trace",
            *words,
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_command_follows_a_node_of_a_program(pair: tuple[Node, Node], tmp_path: Path) -> None:
    here, _ = pair
    path = str(tmp_path / "ctl")
    server = ControlServer(Endpoint(path), Admin(here).handle)
    await server.start()
    try:
        common = ("--socket", path, "--count", "3", "--interval", "0.2", "--to", THERE[1])
        following = [asyncio.ensure_future(run(*common, *more)) for more in ((), ("--json", "--all"))]
        while not all(one.done() for one in following):
            await put(here, 2, size=9)
            await asyncio.sleep(0.01)
        (code, out, err), (json_code, lines, json_err) = [one.result() for one in following]
        assert (code, err, json_code, json_err) == (0, "", 0, "")
        assert f"{HERE[0]} -> {THERE[0]}: " in out
        messages = [json.loads(line) for line in lines.splitlines()]
        assert messages
        assert {(row["kind"], row["type"], row["peer"]) for row in messages} == {("message", "PUT", THERE[0])}
    finally:
        await server.close()


async def test_bad_words_and_absent_nodes_are_told(tmp_path: Path) -> None:
    nobody = str(tmp_path / "nobody")
    code, _, err = await run("--socket", nobody)
    assert (code, f"no lnetd answers on {nobody}" in err) == (1, True)
    for words, text in ((["--interval", "0"], "give 0.05 to 5"), (["--count", "x"], "a number from 1 up")):
        code, _, err = await run(*words)
        assert (code, text in err) == (2, True)
    code, out, _ = await run("--help")
    assert (code, "ulnet trace --to 192.168.110.12@tcp" in out) == (0, True)


async def test_it_ends_on_interrupt_and_when_the_node_is_shut_down(
    pair: tuple[Node, Node], tmp_path: Path
) -> None:
    here, _ = pair
    path = str(tmp_path / "ctl")
    server = ControlServer(Endpoint(path), Admin(here).handle)
    await server.start()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from ulnet.cli.ulnet import main; raise SystemExit(main())"),
            *("trace", "--socket", path, "--interval", "0.05"),
            stdout=subprocess.PIPE,
            env=environment(),
            # What runs in the background of a script has the signal ignored, and hands that down.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        while here.core.selector.trace is None:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert process.returncode == 130
        await here.close()
        code, _, err = await run("--socket", path)
        assert (code, "LNet is not configured" in err) == (1, True)
    finally:
        await server.close()
    with pytest.raises(LNetError):
        _ = here.core


@pytest.mark.requirement("ULP")
async def test_requests_are_shown_with_their_methods(pair: tuple[Node, Node]) -> None:
    here, there = pair
    service = Service("shop")

    @service.method("buy")
    async def buy(call: Call) -> bytes:
        return b"done"

    @service.stream("browse")
    async def browse(call: Call) -> AsyncIterator[bytes]:
        yield b"a page"
        await asyncio.Event().wait()

    client_side, server_side = Follower(here, every_message=True), Follower(there, every_message=True)
    await client_side.rows(), await server_side.rows()
    there.attach(REPLY_PORTAL, 1, bytearray(100))
    there.add_peer(HERE[0], HERE[1:])
    async with Server(service, there), Client(here, THERE[0], "shop") as client:
        await client.call("buy", b"a book")
        async with client.stream("browse") as stream:
            assert await anext(stream) == b"a page"
        await here.put(THERE[0], REPLY_PORTAL, 1, b"no frame")
        sent = [row for row in await client_side.rows() if row["kind"] == "message"]
        answered = [row for row in await server_side.rows() if row["kind"] == "message"]
    frames = [row.get("rpc") or {} for row in sent if row["type"] == "PUT"]
    assert [(frame.get("kind"), frame.get("method")) for frame in frames] == [
        ("CONNECT", None),
        ("CALL", "buy"),
        ("CALL", "browse"),
        ("CANCEL", "browse"),
        (None, None),
    ]
    frames = [row["rpc"] for row in answered if row["type"] == "PUT" and row["rpc"]]
    assert [(frame["kind"], frame.get("method")) for frame in frames] == [
        ("CONNECTED", None),
        ("REPLY", "buy"),
        ("CHUNK", "browse"),
    ]
    call, _ = [as_text(row) for row in sent if (row["rpc"] or {}).get("kind") == "CALL"]
    assert ": PUT of " in call and " bytes, rpc CALL buy; by " in call
    (reply,) = [as_text(row) for row in answered if (row["rpc"] or {}).get("kind") == "REPLY"]
    assert " bytes, rpc REPLY buy; by " in reply
