"""What the choice of a path costs: the core alone, with a driver that carries nothing."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from ulnet.core.instance import LNet
from ulnet.core.md import Md
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import Peer, PeerFlag, PeerNi
from ulnet.core.selection.choose import Balance
from ulnet.core.status import HealthStatus
from ulnet.core.tunables import NetTunables
from ulnet.nid import NetType, Nid

SIZE = 64  # bytes: where choosing weighs most
IN_FLIGHT = 8
IN_FLIGHT_IN_LANES = 256
MOST_AT_ONCE = 64
CHOICES_A_LOOK = 50  # choices in a row, between which nothing changes


@dataclass(frozen=True, slots=True)
class Shape:
    """How many interfaces each side has: `nis` on each of `nets` nets."""

    title: str
    nets: int
    nis: int
    balance: Balance = "expected"
    lanes: bool = False  # by the fast lane, as a driver of streams makes use of it


SHAPES = [
    Shape("1×1", 1, 1),
    Shape("4×4 on one net", 1, 4),
    Shape("16×16 on one net", 1, 16),
    Shape("16×16, each pair a net of its own", 16, 1),
    Shape("1×1, documents", 1, 1, "documents"),
    Shape("16×16 on one net, documents", 1, 16, "documents"),
    Shape("1×1, lanes", 1, 1, lanes=True),
    Shape("2×2, each pair a net of its own, lanes", 2, 1, lanes=True),
    Shape("4×4, each pair a net of its own, lanes", 4, 1, lanes=True),
    Shape("4×4 on one net, lanes", 1, 4, lanes=True),
    Shape("16×16, each pair a net of its own, lanes", 16, 1, lanes=True),
    Shape("16×16 on one net, lanes", 1, 16, lanes=True),
]


def baseline(shape: Shape) -> str:
    """What its sends are compared with."""
    if shape.lanes:
        return "1×1, lanes"
    return "1×1" if shape.balance == "expected" else "1×1, documents"


@dataclass(slots=True)
class Cost:
    """One run of one shape, µs."""

    choice_us: float
    send_us: float


class NullLnd:
    """Takes messages and holds them until the benchmark says that they are through."""

    name = "tcp"
    net_type = int(NetType.TCP)
    reports_timeout = True

    def __init__(self, batches: bool) -> None:
        self.batches = batches
        self.held: deque[Msg] = deque()
        self.queues: deque[list[Msg]] = deque()  # or in place of that: of connections with any, in turn
        self._by_way: dict[tuple[NI, Nid | None], list[Msg]] | None = None

    def by_way(self) -> None:
        """Keep a queue for each connection from now on."""
        self._by_way = {}

    def startup(self, ni: NI) -> None:
        """Tell by what it is known as a driver of streams."""
        ni.batches = self.batches

    def shutdown(self, ni: NI) -> None:
        """Nothing to end."""

    def retune(self, ni: NI, timeout: float) -> None:
        """Nothing to tune."""

    def send(self, ni: NI, msg: Msg) -> None:
        """Hold it."""
        if self._by_way is None:
            self.held.append(msg)
            return
        queue = self._by_way.get((ni, msg.next_nid))
        if queue is None:
            queue = self._by_way[ni, msg.next_nid] = []
        if not queue:
            self.queues.append(queue)
        queue.append(msg)

    def recv(
        self, ni: NI, rx: object, msg: Msg | None, buffers: list[memoryview], mlen: int, rlen: int
    ) -> None:
        """Nothing ever comes in."""
        raise AssertionError("this driver receives nothing")


class Bench:
    """A node with one multi-rail peer, and always `IN_FLIGHT` messages under way."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._lnd = NullLnd(shape.lanes)
        self._core = LNet(clock=time.monotonic, cookie=1)
        self._core.register_lnd(self._lnd)
        self._core.selector.balance = shape.balance
        rails = list(itertools.product(range(shape.nets), range(shape.nis)))
        for net, nth in rails:
            nid = Nid.parse(f"10.{net}.0.{nth + 1}@tcp{net}")
            tunables = NetTunables(peer_credits=IN_FLIGHT_IN_LANES, credits=IN_FLIGHT_IN_LANES)
            self._core.add_ni(nid.net, nid, tunables=tunables if shape.lanes else None)
        there = [Nid.parse(f"10.{net}.1.{nth + 1}@tcp{net}") for net, nth in rails]
        peer = self._core.peers.add(there[0], there[1:])
        self._target = there[0]
        self._dest: PeerNi = next(peer.nis())
        self._md: Md = self._core.memory.md_bind(bytes(SIZE), None)
        for _ in range(IN_FLIGHT):
            self._put()
        for _ in range(4 * len(rails)):
            self._send()
        if shape.lanes:
            self._open_lanes(peer)

    def _open_lanes(self, peer: Peer) -> None:
        """The peer was discovered, and the driver tells of what a connection carried at once."""
        peer.mark(add=int(PeerFlag.DISCOVERED | PeerFlag.NIDS_UPTODATE))
        while self._lnd.held:
            self._core.finalize(self._lnd.held.popleft(), HealthStatus.OK)
        self._lnd.by_way()
        for _ in range(IN_FLIGHT_IN_LANES):
            self._core.put(self._md, self._target, 30, 1, ack=False)
        self._send_by_lanes(20 * IN_FLIGHT_IN_LANES)

    def _send_by_lanes(self, count: int) -> None:
        """Each connection in turn is through with all that it has, and as much is sent."""
        while count > 0:
            left = self.leave()
            count -= left
            self.put_by_lane(left)

    def leave(self) -> int:
        """The connection whose turn it is is through with all that it has; how many messages that were."""
        queues = self._lnd.queues
        queue = queues.popleft()
        batch, queue[:] = queue[:MOST_AT_ONCE], queue[MOST_AT_ONCE:]
        if queue:
            queues.append(queue)
        self._core.sent(batch)
        return len(batch)

    def put_by_lane(self, count: int) -> None:
        """Send so many."""
        put, md, target = self._core.put, self._md, self._target
        for _ in range(count):
            put(md, target, 30, 1, ack=False)

    def _put(self) -> None:
        self._core.put(self._md, self._target, 30, 1, ack=False, cpt=0)  # with a CPT there is no lane

    def _send(self) -> None:
        self._put()
        self._core.finalize(self._lnd.held.popleft(), HealthStatus.OK)

    def send(self, count: int) -> None:
        """So many whole sends, the general way."""
        send = self._send
        for _ in range(count):
            send()

    def run(self, count: int) -> Cost:
        """`count` whole sends, then as many choices in the states between sends."""
        clock = time.process_time  # nothing here waits, and other programs do not count
        send = self._send
        began = clock()
        if self.shape.lanes:
            self._send_by_lanes(count)
        else:
            self.send(count)
        send_us = (clock() - began) / count * 1e6
        choose = self._core.selector.choose
        dest = self._dest
        spent = 0.0
        looks = max(count // CHOICES_A_LOOK, 1)
        for _ in range(looks):
            if self.shape.lanes:
                self._send_by_lanes(1)
            else:
                send()
            began = clock()
            for _ in range(CHOICES_A_LOOK):
                choose(dest, size=SIZE)
            spent += clock() - began
        return Cost(spent / looks / CHOICES_A_LOOK * 1e6, send_us)

    def close(self) -> None:
        """End the node."""
        for held in (self._lnd.held, *self._lnd.queues):
            while held:
                self._core.finalize(held.pop(), HealthStatus.OK)
        self._core.shutdown()


Costs = dict[str, list[Cost]]


def measure(rounds: int, count: int) -> Costs:
    """All shapes in turn, `rounds` times."""
    benches = [Bench(shape) for shape in SHAPES]
    costs: Costs = {shape.title: [] for shape in SHAPES}
    for _ in range(rounds):
        for bench in benches:
            costs[bench.shape.title].append(bench.run(count))
    for bench in benches:
        bench.close()
    return costs


HEADS = ["", "choice µs", "whole send µs", "slowest–fastest", "× 1×1", "share of the choice"]


def ratio(costs: Costs, title: str) -> float:
    """A whole send with that shape against one with 1×1 of its kind."""
    shape = next(shape for shape in SHAPES if shape.title == title)
    one, many = (statistics.median(cost.send_us for cost in costs[name]) for name in (baseline(shape), title))
    return many / one


def cells(costs: Costs) -> list[list[str]]:
    """Medians as rows of text."""
    sends = {title: statistics.median(cost.send_us for cost in runs) for title, runs in costs.items()}
    rows = []
    for shape in SHAPES:
        runs = costs[shape.title]
        choice = statistics.median(cost.choice_us for cost in runs)
        send = sends[shape.title]
        spread = [cost.send_us for cost in runs]
        rows.append(
            [
                shape.title,
                f"{choice:.2f}",
                f"{send:.2f}",
                f"{max(spread):.1f}–{min(spread):.1f}",
                f"{send / sends[baseline(shape)]:.2f}",
                f"{choice / send:.0%}",
            ]
        )
    return rows


HOW = (
    f"The core alone, in one process, with a driver that carries nothing: PUTs of {SIZE} bytes to a "
    f"Multi-Rail peer, {IN_FLIGHT} always under way; CPU time. A whole send is the PUT with its header, "
    "choice, credits, completion and event. Each side has as many interfaces as the first column says; "
    "balance is by expected completion where it does not say documents. The first rows are the general way, "
    f"a message at a time; those with lanes have {IN_FLIGHT_IN_LANES} under way, of which each connection "
    f"tells up to {MOST_AT_ONCE} at once, and are compared with 1×1 in lanes."
)


def to_dict(costs: Costs) -> dict[str, Any]:
    """For the JSON file: every run."""
    return {title: [asdict(cost) for cost in runs] for title, runs in costs.items()}
