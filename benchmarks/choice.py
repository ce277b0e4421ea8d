"""What the choice of a path costs: the core alone, with a driver that carries nothing."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from ulnet.control.instance import LNet
from ulnet.core.md import Md
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import PeerFlag, PeerNi
from ulnet.core.selection.choose import Balance
from ulnet.core.selection.paths import Key
from ulnet.core.tunables import NetTunables
from ulnet.nid import LNET_PID, NetType, Nid
from ulnet.wire.lnet import MsgType

SIZE = 64  # bytes: where choosing weighs most
IN_FLIGHT = 8
IN_FLIGHT_IN_BATCHES = 256
MOST_AT_ONCE = 64
CHOICES_A_LOOK = 50  # choices in a row, between which nothing changes


@dataclass(frozen=True, slots=True)
class Shape:
    """How many interfaces each side has: `nis` on each of `nets` nets."""

    title: str
    nets: int
    nis: int
    balance: Balance = "expected"
    batches: bool = False  # by a driver that writes together what is sent together


SHAPES = [
    Shape("1×1", 1, 1),
    Shape("4×4 on one net", 1, 4),
    Shape("16×16 on one net", 1, 16),
    Shape("16×16, each pair a net of its own", 16, 1),
    Shape("1×1, documents", 1, 1, "documents"),
    Shape("16×16 on one net, documents", 1, 16, "documents"),
    Shape("1×1, batches", 1, 1, batches=True),
    Shape("2×2, each pair a net of its own, batches", 2, 1, batches=True),
    Shape("4×4, each pair a net of its own, batches", 4, 1, batches=True),
    Shape("4×4 on one net, batches", 1, 4, batches=True),
    Shape("16×16, each pair a net of its own, batches", 16, 1, batches=True),
    Shape("16×16 on one net, batches", 1, 16, batches=True),
]


def baseline(shape: Shape) -> str:
    """What its sends are compared with."""
    if shape.batches:
        return "1×1, batches"
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
        self.queues: deque[list[Msg]] = deque()  # of connections that have any, in turn
        self._by_way: dict[tuple[NI, Nid | None], list[Msg]] = {}

    def startup(self, ni: NI) -> None:
        """Tell by what it is known as a driver of streams."""
        ni.batches = self.batches

    def shutdown(self, ni: NI) -> None:
        """Nothing to end."""

    def retune(self, ni: NI, timeout: float) -> None:
        """Nothing to tune."""

    def access_changed(self, ni: NI) -> None:
        """Nobody is connected."""

    def verify(self, ni: NI, nid: Nid) -> bool:
        """Nobody is connected."""
        return True

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Hold them."""
        if not self.batches:
            self.queues.append(msgs)
            return
        nid = msgs[0].next_nid
        queue = self._by_way.get((ni, nid))
        if queue is None:
            queue = self._by_way[ni, nid] = []
        if not queue:
            self.queues.append(queue)
        queue += msgs


class Bench:
    """A node with one multi-rail peer, and always as many messages under way."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._lnd = NullLnd(shape.batches)
        self._core = LNet(clock=time.monotonic, cookie=1)
        self._core.register_lnd(self._lnd)
        self._core.selector.balance = shape.balance
        in_flight = IN_FLIGHT_IN_BATCHES if shape.batches else IN_FLIGHT
        rails = list(itertools.product(range(shape.nets), range(shape.nis)))
        for net, nth in rails:
            nid = Nid.parse(f"10.{net}.0.{nth + 1}@tcp{net}")
            tunables = NetTunables(peer_credits=in_flight, credits=in_flight)
            self._core.add_ni(nid.net, nid, tunables=tunables if shape.batches else None)
        there = [Nid.parse(f"10.{net}.1.{nth + 1}@tcp{net}") for net, nth in rails]
        peer = self._core.peers.add(there[0], there[1:])
        peer.mark(add=int(PeerFlag.DISCOVERED | PeerFlag.NIDS_UPTODATE))
        self._target = there[0]
        self._dest: PeerNi = next(peer.nis())
        self._md: Md = self._core.memory.md_bind(bytes(SIZE), None)
        self.put(in_flight)
        self.send(20 * in_flight if shape.batches else 4 * len(rails))

    def send(self, count: int) -> None:
        """So many whole sends: each connection in turn is through with what it has, and as much is sent."""
        while count > 0:
            left = self.leave()
            count -= left
            self.put(left)

    def leave(self) -> int:
        """The connection whose turn it is is through with all that it has; how many messages that were."""
        queues = self._lnd.queues
        batch = queue = queues.popleft()
        if self._lnd.batches:
            batch, queue[:] = queue[:MOST_AT_ONCE], queue[MOST_AT_ONCE:]
            if queue:
                queues.append(queue)
        self._core.completed(batch)
        return len(batch)

    def put(self, count: int) -> None:
        """Send so many; in batches as event handlers do, whose messages leave together behind them."""
        put, md, target = self._core.put, self._md, self._target
        if self.shape.batches:
            self._core.cork()
        for _ in range(count):
            put(md, target, 30, 1, ack=False)
        if self.shape.batches:
            self._core.uncork()

    def run(self, count: int) -> Cost:
        """`count` whole sends, then as many choices in the states between sends."""
        clock = time.process_time  # nothing here waits, and other programs do not count
        began = clock()
        self.send(count)
        send_us = (clock() - began) / count * 1e6
        choose, dest = self._core.selector.choose, self._dest
        key = Key(int(MsgType.PUT), pid=LNET_PID)
        paths = self._core.selector.find(dest, key)
        spent = 0.0
        looks = max(count // CHOICES_A_LOOK, 1)
        for _ in range(looks):
            self.send(1)
            began = clock()
            for _ in range(CHOICES_A_LOOK):
                paths.batch_left = 0  # it joins none before it
                choose(dest, key, SIZE)
            spent += clock() - began
        return Cost(spent / looks / CHOICES_A_LOOK * 1e6, send_us)

    def close(self) -> None:
        """End the node."""
        while self._lnd.queues:
            self.leave()
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
    "balance is by expected completion where it does not say documents. The first rows are of a driver that "
    f"takes one message after the other; batches are of one that writes together what it is given, with "
    f"{IN_FLIGHT_IN_BATCHES} under way, of which each connection tells up to {MOST_AT_ONCE} at once, and are "
    "compared with 1×1 in batches: small messages join the choice for one before them there."
)


def to_dict(costs: Costs) -> dict[str, Any]:
    """For the JSON file: every run."""
    return {title: [asdict(cost) for cost in runs] for title, runs in costs.items()}
