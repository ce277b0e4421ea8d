"""ulnet: two `Node`s, one NI each; PUTs into one memory descriptor; LNet's own ACKs acknowledge."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ulnet import Node, new_event_loop
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.tunables import NetTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from work import CONGESTION, Measured, Meter, Work, payload_of

SERVER, DRIVER = "127.0.1.2", "127.0.1.1"
PORTAL, TOKENS = 30, 31
SPIN = 100  # µs
CREDITS = 256  # peer_credits: as many small messages fit into one call; LNet's default of 8 is for 1 MiB
UNDER_WAY = 8 << 20  # bytes of one-way messages: as many as eight of 1 MiB

Send = Callable[[Node, Work, int], Awaitable[list[int] | None]]


def new_node(port: int, spin: bool = False) -> Node:
    """A node that listens at `port` and dials peers there."""
    more: dict[str, Any] = {"spin": SPIN} if spin else {}
    return Node(
        tcp=TcpParams(
            accept="all",
            accept_port=port,
            reserved_ports=False,
            congestion=CONGESTION.decode(),
            **more,
        )
    )


def run(main: Coroutine[Any, Any, Measured]) -> Measured:
    """On the library's event loop, or asyncio's if ULNET_BENCH_LOOP says so."""
    own = os.environ.get("ULNET_BENCH_LOOP") != "asyncio"
    with asyncio.Runner(loop_factory=new_event_loop if own else None) as runner:
        return runner.run(main)


def serve(work: Work, announce: Callable[[str], None], spin: bool = False) -> Measured:
    """Receive into one buffer; everything happens in the event handler."""
    return run(_serve(work, announce, spin))


async def _serve(work: Work, announce: Callable[[str], None], spin: bool) -> Measured:
    with socket.socket() as probe:
        probe.bind((SERVER, 0))
        port = probe.getsockname()[1]
    async with new_node(port, spin) as node:
        node.add_ni(f"{SERVER}@tcp", tunables=NetTunables(peer_credits=CREDITS))
        milestone = asyncio.Event()
        milestones = {work.warmup, work.warmup + work.count}
        seen = 0
        core = node.core
        answer = core.memory.md_bind(payload_of(work.size), None)
        echo = work.kind == "roundtrip"
        wanted = EventKind.GET if work.kind == "get" else EventKind.PUT

        def on_put(event: Event) -> None:
            nonlocal seen
            if event.kind is not wanted:
                return
            if echo:
                core.put(answer, event.source, TOKENS, 1, ack=False)
            seen += 1
            if seen in milestones:
                milestone.set()

        node.attach(
            PORTAL,
            1,
            bytearray(work.size),
            options=OP_PUT | OP_GET | MANAGE_REMOTE | TRUNCATE,
            handler=on_put,
        )
        announce(str(port))
        await milestone.wait()
        milestone.clear()
        meter = Meter()
        await _token(node)
        await milestone.wait()
        await _token(node)
        return meter.stop()


async def _token(node: Node) -> None:
    await node.put(f"{DRIVER}@tcp", TOKENS, 2, b"done")


def drive_with(work: Work, address: str, send: Send, spin: bool = False) -> Measured:
    """Send with one of the two ways that a program has."""
    return run(_drive(work, int(address), send, spin))


async def _drive(work: Work, port: int, send: Send, spin: bool) -> Measured:
    async with new_node(port, spin) as node:
        node.add_ni(f"{DRIVER}@tcp", tunables=NetTunables(peer_credits=CREDITS))
        tokens = node.attach(TOKENS, 2, bytearray(4), options=OP_PUT | MANAGE_REMOTE, threshold=2)
        await send(node, work, work.warmup)
        await tokens.next_event()
        meter = Meter()
        latencies = await send(node, work, work.count)
        await tokens.next_event()
        return meter.stop(latencies)


async def pump(node: Node, work: Work, count: int, window: int) -> None:
    """Keep a window of PUTs or GETs under way from the event handler, with no task or future per message."""
    core, to = node.core, Nid.parse(f"{SERVER}@tcp")
    put, get = core.put, core.get
    fetch, acknowledged = work.kind == "get", work.kind == "ack"
    done = asyncio.get_running_loop().create_future()
    last = {"ack": EventKind.ACK, "get": EventKind.REPLY}.get(work.kind, EventKind.SEND)
    left = count
    under_way = 0

    def on_event(event: Event) -> None:
        nonlocal left, under_way
        if event.status:
            if not done.done():
                done.set_exception(RuntimeError(event.reason))
        elif event.kind is last:
            if left:
                left -= 1
                if fetch:
                    get(md, to, PORTAL, 1)
                else:
                    put(md, to, PORTAL, 1, ack=acknowledged)
                return
            under_way -= 1
            if not under_way and not done.done():
                done.set_result(None)

    md = core.memory.md_bind(bytearray(work.size), on_event)
    under_way = min(window, count)
    left -= under_way
    for _ in range(under_way):
        if fetch:
            get(md, to, PORTAL, 1)
        else:
            put(md, to, PORTAL, 1, ack=acknowledged)
    await done
    core.memory.md_unlink(md)


def latencies_of(node: Node, work: Work, count: int) -> Awaitable[list[int]]:
    """Round trips from one event handler to the other and back."""
    core, clock = node.core, time.perf_counter_ns
    to = Nid.parse(f"{SERVER}@tcp")
    done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
    question = core.memory.md_bind(payload_of(work.size), None)
    latencies: list[int] = []
    began = 0

    def ask() -> None:
        nonlocal began
        began = clock()
        core.put(question, to, PORTAL, 1, ack=False)

    def on_answer(event: Event) -> None:
        if event.kind is not EventKind.PUT:
            return
        latencies.append(clock() - began)
        if len(latencies) < count:
            ask()
        else:
            attachment.close()
            core.memory.md_unlink(question)
            done.set_result(latencies)

    attachment = node.attach(
        TOKENS, 1, bytearray(work.size), options=OP_PUT | MANAGE_REMOTE, handler=on_answer
    )
    ask()
    return done
