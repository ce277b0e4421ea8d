"""One process of a run over a router: `routed_peer.py serve|route|drive JOB`; answers in JSON lines.

Client and server have two rails each, the router has all four. `direct` needs no router, `relay` is a plain
TCP relay by splice() in its place, a connection a rail.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from competitors import rails_sockets
from rails_job import Job, steady
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.core.routing import UNDEFINED_HOPS
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Net, Nid

_PORT, _PORTAL = 9884, 30
_RELAY_PORT = 9881  # that of the plain sockets' server
_PIECE = 1 << 20
TIMEOUT = 5  # seconds until a message that a dead router took with it counts as not delivered
PACE = {"alive_router_check_interval": 1, "router_ping_timeout": 4}


@dataclass(slots=True)
class Routed:
    """What came of a run."""

    rate: float  # acknowledged payload bytes a second, once steady
    messages: int  # acknowledged at all
    failed: list[str] = field(default_factory=list)  # reasons of those that were not
    stall: float = 0.0  # the longest time without an answer, seconds


@dataclass(frozen=True, slots=True)
class Place:
    """Whose rails are where: rail R of the client is on net tcpR, of the server on tcp(R + rails)."""

    job: Job
    routers: list[list[str]]  # addresses of each router, on all rails

    @classmethod
    def from_json(cls, text: str) -> Place:
        """The reverse of `to_json`."""
        fields = json.loads(text)
        return cls(Job(**fields["job"]), fields["routers"])

    def to_json(self) -> str:
        """For another process's command line."""
        return json.dumps(asdict(self))

    def near(self) -> list[str]:
        """The client's NIDs."""
        return [f"{address}@tcp{rail}" for rail, address in enumerate(self.job.local)]

    def far(self) -> list[str]:
        """The server's NIDs."""
        rails = len(self.job.local)
        return [f"{address}@tcp{rail + rails}" for rail, address in enumerate(self.job.remote)]


def _announce(word: str) -> None:
    print(json.dumps(word), flush=True)


def _node() -> Node:
    return Node(tcp=TcpParams(accept="all", accept_port=_PORT, reserved_ports=False))


def _add(node: Node, nids: list[str], place: Place, there: list[str]) -> None:
    """NIs, and routes to all nets on the other side over all routers."""
    for nid in nids:
        node.add_ni(nid)
    node.core.gateways.set(PACE)
    first = int(nids[0].rpartition("tcp")[2])
    for router in place.routers:
        for nid in there:
            gateway = Nid.parse(f"{router[first]}@tcp{first}")
            node.core.gateways.add(Net.parse(nid.partition("@")[2]), gateway, UNDEFINED_HOPS, 0)


async def _serve(place: Place) -> None:
    async with _node() as node:
        _add(node, place.far(), place, place.near())
        options = OP_PUT | MANAGE_REMOTE | TRUNCATE
        node.attach(_PORTAL, 1, bytearray(place.job.size), options=options, handler=lambda event: None)
        _announce("ready")
        await asyncio.Event().wait()


async def _route(addresses: list[str]) -> None:
    async with _node() as node:
        for rail, address in enumerate(addresses):
            node.add_ni(f"{address}@tcp{rail}")
        node.core.gateways.set(PACE)
        node.core.router.enable(True)
        while not node.core.router.announced:  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(0.05)
        _announce("ready")
        await asyncio.Event().wait()


async def _drive(place: Place) -> Routed:
    job = place.job
    async with _node() as node:
        _add(node, place.near(), place, place.far())
        target = Nid.parse(place.far()[0])
        gateways = node.core.gateways
        while not all(route.single_hop and not gateways.why_down(route) for route in gateways.table):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        pump = Pump(node, job, target)
        await node.ping(target, timeout=10)
        _announce("begun")
        began = time.perf_counter()
        answered = await pump.run(job.warmup + job.seconds)
        stalls = [b - a for a, b in pairwise(answered)]
        rate = steady(job, began, answered)
        return Routed(rate, len(answered), pump.failed, max(stalls))


class Pump:
    """Keeps a window of acknowledged PUTs under way, each with memory of its own, and why some failed."""

    def __init__(self, node: Node, job: Job, to: Nid) -> None:
        self._core = node.core
        self._job = job
        self._to = to
        self._data = bytes(job.size)
        self._open = 0
        self._end = 0.0
        self._done = asyncio.get_running_loop().create_future()
        self.answered: list[float] = []  # when each was
        self.failed: list[str] = []

    async def run(self, seconds: float) -> list[float]:
        """Send for so long; when each message was acknowledged."""
        self._end = time.perf_counter() + seconds
        for _ in range(self._job.window):
            self._send()
        await self._done
        return self.answered

    def _send(self) -> None:
        self._open += 1
        md = self._core.memory.md_bind(self._data, self._on_event, threshold=2, timeout=TIMEOUT)
        self._core.put(md, self._to, _PORTAL, 1)

    def _on_event(self, event: Event) -> None:
        if event.kind is EventKind.ACK and not event.status:
            self.answered.append(time.perf_counter())
        elif event.status:
            self.failed.append(event.reason)
            if not event.unlinked:  # no answer will come; this brings the last event
                self._core.memory.md_unlink(event.md)
                return
        if not event.unlinked:
            return
        self._open -= 1
        if time.perf_counter() < self._end:
            self._send()
        elif not self._open:
            self._done.set_result(None)


# The plain relay -----------------------------------------------------------------------------------------


class _Pipe:
    """One direction: from a socket through a pipe to another one."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.ends = os.pipe2(os.O_NONBLOCK)
        self.held = 0

    def move(self) -> bool:
        """Move what can be moved now; False at the end."""
        read, write = self.ends
        while True:
            try:
                got = os.splice(self.source.fileno(), write, _PIECE, flags=os.SPLICE_F_NONBLOCK)
                if not got:
                    return False
                self.held += got
            except BlockingIOError:
                if not self.held:
                    return True
            try:
                self.held -= os.splice(read, self.sink.fileno(), self.held, flags=os.SPLICE_F_NONBLOCK)
            except BlockingIOError:
                return True


def relay(place: Place) -> None:
    """Splice each rail's connection to the server's rail, both ways, until the connections close."""
    rails = len(place.job.local)
    with ExitStack() as stack:
        listeners = []
        for rail in range(rails):
            listener = stack.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((place.routers[0][rail], _RELAY_PORT))
            listener.listen()
            listeners.append(listener)
        _announce("ready")
        selector = stack.enter_context(selectors.DefaultSelector())
        pipes: dict[int, list[_Pipe]] = {}
        for rail, listener in enumerate(listeners):
            near = stack.enter_context(listener.accept()[0])
            far = stack.enter_context(socket.create_connection((place.job.remote[rail], _RELAY_PORT)))
            both = [_Pipe(near, far), _Pipe(far, near)]
            for end in (near, far):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(end, selectors.EVENT_READ)
                pipes[end.fileno()] = both
        _splice(selector, pipes)


def _splice(selector: selectors.BaseSelector, pipes: dict[int, list[_Pipe]]) -> None:
    while True:
        for key, _ in selector.select():
            open_ends = [pipe.move() for pipe in pipes[key.fd]]
            if not all(open_ends):
                return
            for pipe in pipes[key.fd]:  # a full sink wakes us when there is room again
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if pipe.held else 0)
                selector.modify(pipe.sink, events)


def main() -> int:
    """Run one side."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    role, words = sys.argv[1], sys.argv[2]
    place = Place.from_json(words)
    plain = place.job.player in ("plain", "relay")
    if role == "route":
        relay(place) if plain else asyncio.run(_route(place.routers[int(sys.argv[3])]))
    elif role == "serve" and plain:
        rails_sockets.serve(place.job, _announce)
    elif role == "serve":
        asyncio.run(_serve(place))
    elif plain:
        outcome = rails_sockets.drive(place.job)
        count = int(outcome.rate * (place.job.warmup + place.job.seconds) / place.job.size)
        print(json.dumps(asdict(Routed(outcome.rate, count))), flush=True)
    else:
        print(json.dumps(asdict(asyncio.run(_drive(place)))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
