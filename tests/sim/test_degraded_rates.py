"""An NI that carries far less than it did is DEGRADED until it is good again; and what is no reason to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest

from ulnet.control.health.rates import Rates
from ulnet.control.meter import Meter
from ulnet.core.ni import NI
from ulnet.core.states import NiState
from ulnet.nid import Nid
from ulnet.sim.cables import LinkParams
from ulnet.sim.node import SimNode
from ulnet.sim.simulation import Simulation
from ulnet.sim.traffic import Operation

RATE = 5e6  # bytes a second
MESSAGE = bytes(256 * 1024)
TURN = 0.02  # seconds between looks at the windows
A0, A1 = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.1@tcp1")


@dataclass
class Stream:
    """So many PUTs with ACK under way to a node, as long as `window` says so."""

    to: Nid
    window: int
    data: bytes = MESSAGE
    source: Nid | None = None
    under_way: list[Operation] | None = None

    def top_up(self, node: SimNode) -> None:
        self.under_way = [one for one in self.under_way or () if one.status is None]
        while len(self.under_way) < self.window:
            self.under_way.append(node.put(self.to, 30, data=self.data, source=self.source))


class World:
    """`a` with two rails sends to peers with two rails each."""

    def __init__(self, peers: int = 1, delay: float = 20e-6) -> None:
        self.sim = Simulation(seed=1, link=LinkParams(rate=RATE, delay=delay), check=False)
        self.a = self.sim.node("a", A0, A1)
        self.log: list[str] = []
        self.a.core.state.alarm = self.a.core.state.notice = self.log.append
        self.streams: list[Stream] = []
        self.peers: list[SimNode] = []
        for number in range(2, 2 + peers):
            nids = [f"10.0.0.{number}@tcp", f"10.1.0.{number}@tcp1"]
            peer = self.sim.node(f"p{number}", *nids)
            peer.attach(30, keep_data=False)
            self.a.add_peer(*nids)
            peer.add_peer("10.0.0.1@tcp", "10.1.0.1@tcp1")
            self.peers.append(peer)

    def stream(self, number: int = 2, window: int = 8, source: Nid = A0, bound: bool = False) -> Stream:
        target = f"10.0.0.{number}@tcp" if source is A0 else f"10.1.0.{number}@tcp1"
        made = Stream(Nid.parse(target), window, source=source if bound else None)
        self.streams.append(made)
        return made

    def run(self, seconds: float) -> Iterator[None]:
        end = self.sim.now + seconds
        while self.sim.now < end:
            for stream in self.streams:
                stream.top_up(self.a)
            self.sim.run(TURN)
            yield

    def pass_time(self, seconds: float) -> None:
        for _ in self.run(seconds):
            pass

    def until(self, state: NiState, seconds: float) -> None:
        for _ in self.run(seconds):
            if self.state is state:
                return
        raise AssertionError(f"not {state} within {seconds} s: {self.log}")

    def set_rate(self, where: str, rate: float) -> None:
        port = self.sim.port(where)
        port.params = replace(port.params, rate=rate)

    @property
    def state(self) -> NiState:
        """Of the rail that changes."""
        return self.a.core.nis[A1].state

    def is_in(self, state: NiState) -> bool:
        return self.state is state

    @property
    def lines(self) -> list[str]:
        return [line for line in self.log if "local NI" in line]


@pytest.mark.requirement("hlt-015", "hlt-020", "hlt-025", "dbg-110")
@pytest.mark.parametrize("window", [2, 8, 32])
def test_a_rail_that_falls_to_a_tenth_is_degraded_and_comes_back(window: int) -> None:
    world = World()
    world.stream(window=window)
    world.pass_time(10)
    assert world.is_in(NiState.ACTIVE)
    world.set_rate("a.eth1", RATE / 10)
    began = world.sim.now
    world.until(NiState.DEGRADED, 60)
    assert world.sim.now - began > 5
    assert "carries far less than it should (" in world.lines[-1]
    assert "in place of " in world.lines[-1]
    ni = world.a.core.nis[A1]
    assert ni.up, "it is used further, as much as it can carry"
    assert "in place of" in ni.degraded["rate"]
    world.pass_time(60)
    assert world.is_in(NiState.DEGRADED)
    assert len(world.lines) == 1, "it does not come and go"
    world.set_rate("a.eth1", RATE)
    world.until(NiState.ACTIVE, 90)
    assert "carries as much as it should" in world.lines[-1]
    assert not ni.degraded
    world.pass_time(60)
    assert len(world.lines) == 2
    assert world.a.core.nis[A0].state is NiState.ACTIVE


def test_a_node_that_is_kept_from_running_blames_no_ni() -> None:
    """On a busy machine the faster one of two NIs is the one that suffers."""
    world = World()
    world.stream()
    world.pass_time(10)
    world.set_rate("a.eth1", RATE / 10)
    for _ in range(30):
        world.pass_time(2)
        world.a.core.slept(0.2)
    assert world.is_in(NiState.ACTIVE)
    assert not world.lines
    began = world.sim.now
    world.until(NiState.DEGRADED, 60)  # it runs again, and the NI is as slow as before
    assert world.sim.now - began > 5


def test_a_rail_that_traffic_left_is_tried_again_at_little_cost() -> None:
    world = World()
    world.stream(window=4)
    world.pass_time(10)
    world.set_rate("a.eth1", RATE / 100)
    world.until(NiState.DEGRADED, 120)
    sent, before = world.a.core.nis[A0].stats.sent[1], world.sim.now
    world.pass_time(60)
    carried = (world.a.core.nis[A0].stats.sent[1] - sent) * len(MESSAGE) / (world.sim.now - before)
    assert carried > 0.85 * RATE, "the other rail is still nearly full"
    world.set_rate("a.eth1", RATE)
    world.until(NiState.ACTIVE, 120)


def test_the_end_of_traffic_is_no_degradation_nor_are_few_or_small_messages() -> None:
    world = World()
    stream = world.stream(window=16)
    world.pass_time(10)
    stream.window = 1
    world.pass_time(20)
    stream.window, stream.data = 4, bytes(4096)
    world.pass_time(20)
    stream.window = 0
    world.pass_time(20)
    stream.window, stream.data = 16, MESSAGE
    world.pass_time(10)
    assert not world.lines
    assert not world.a.core.health.rates._slow


def test_small_messages_on_a_long_way_are_slow_because_they_are_few() -> None:
    world = World(delay=0.05)
    world.stream(source=A0, bound=True)
    small = world.stream(source=A1, bound=True)
    world.pass_time(10)
    small.window, small.data = 6, bytes(8192)
    seen = world.a.core.peers.find(Nid.parse("10.0.0.2@tcp"))
    assert seen is not None
    meter = seen.path_loads[world.a.core.nis[A1]]
    assert isinstance(meter, Meter)
    for _ in range(20):
        world.pass_time(1)
        assert meter.read_rate < 0.2 * meter.best or world.sim.now < 15
    assert not world.lines


@pytest.mark.parametrize("ports", [("p2.eth0", "p2.eth1"), ("p2.eth1",)], ids=["all of it", "one NI of it"])
def test_a_slow_peer_is_not_the_nis_fault(ports: tuple[str, ...]) -> None:
    world = World(peers=2)
    world.stream(2)
    world.stream(3)
    world.pass_time(10)
    for port in ports:
        world.set_rate(port, RATE / 20)
    world.pass_time(60)
    assert not world.lines


@pytest.mark.requirement("hlt-015")
def test_a_peer_that_gets_as_little_as_ever_speaks_for_the_ni() -> None:
    world = World(peers=2)
    world.set_rate("p3.eth1", RATE / 10)
    world.stream(2)
    world.stream(3, source=A1, bound=True)
    world.pass_time(15)
    world.set_rate("p2.eth1", RATE / 40)
    world.pass_time(60)
    assert not world.lines
    peer = world.a.core.peers.find(Nid.parse("10.0.0.2@tcp"))
    assert peer is not None
    meter = peer.path_loads[world.a.core.nis[A1]]
    assert isinstance(meter, Meter)
    assert meter.slow > 4


def test_a_slow_peer_alone_is_not_the_nis_fault() -> None:
    world = World()
    world.stream(2)
    world.pass_time(10)
    for port in ("p2.eth0", "p2.eth1"):
        world.set_rate(port, RATE / 20)
    world.pass_time(60)
    assert not world.lines


def test_a_rail_that_many_share_is_not_degraded() -> None:
    world = World(peers=9)
    world.stream(10, source=A0, bound=True)
    streams = [world.stream(number, 0, source=A1, bound=True) for number in range(2, 10)]
    for stream in streams:  # each has the rail for itself
        stream.window = 4
        world.pass_time(2)
        stream.window = 0
        world.pass_time(1)
    for stream in streams:
        stream.window = 4
    world.pass_time(30)
    meters = [path_load for peer in world.a.core.peers for path_load in peer.path_loads.values()]
    assert sum(meter.slow > 3 for meter in meters if isinstance(meter, Meter)) == 8
    assert not world.lines


def test_with_several_peers_the_rail_that_fell_is_named() -> None:
    world = World(peers=3)
    for number in (2, 3, 4):
        world.stream(number)
    world.pass_time(15)
    world.set_rate("a.eth1", RATE / 10)
    world.until(NiState.DEGRADED, 60)
    world.set_rate("a.eth1", RATE)
    world.until(NiState.ACTIVE, 60)
    assert world.a.core.nis[A0].state is NiState.ACTIVE


def test_peers_that_each_have_one_rail_only_accuse_it_together() -> None:
    world = World(peers=4)
    for number in (2, 3):
        world.stream(number, source=A1, bound=True)
    world.stream(4, source=A0, bound=True)
    world.pass_time(15)
    world.set_rate("a.eth1", RATE / 10)
    world.until(NiState.DEGRADED, 60)


def test_a_rail_that_never_carried_what_its_link_has_is_judged_by_two_peers() -> None:
    world = World(peers=2)
    world.set_rate("a.eth1", RATE / 10)
    ni = world.a.core.nis[A1]
    ni.link_rate = 1.25e9  # this node does not reach that on any link
    for source in (A0, A1):
        world.stream(2, source=source, bound=True)
    world.pass_time(30)
    assert world.is_in(NiState.ACTIVE), "one peer's own link may be slow"
    for source in (A0, A1):
        world.stream(3, source=source, bound=True)
    world.until(NiState.DEGRADED, 60)
    world.set_rate("a.eth1", RATE)
    world.until(NiState.ACTIVE, 60)


def test_a_slower_link_is_not_degraded() -> None:
    world = World(peers=2)
    world.set_rate("a.eth1", RATE / 10)
    world.a.core.nis[A1].link_rate = RATE / 10
    world.stream(2)
    world.stream(3)
    world.pass_time(60)
    assert not world.lines


def test_a_device_that_fails_and_recovers_begins_anew() -> None:
    world = World()
    world.stream()
    world.pass_time(10)
    world.set_rate("a.eth1", RATE / 10)
    world.until(NiState.DEGRADED, 30)
    world.sim.link_down("a.eth1")
    world.pass_time(1)
    assert world.is_in(NiState.FAILED)
    world.set_rate("a.eth1", RATE)
    world.sim.link_up("a.eth1")
    world.pass_time(20)
    assert world.is_in(NiState.ACTIVE)
    assert not world.a.core.nis[A1].degraded


def test_judging_can_be_switched_off_and_ends_what_it_said() -> None:
    world = World()
    world.stream()
    world.pass_time(10)
    world.set_rate("a.eth1", RATE / 10)
    world.until(NiState.DEGRADED, 30)
    world.a.core.settings.degraded_below = 0
    world.a.core.settings_changed()
    assert world.is_in(NiState.ACTIVE)
    world.pass_time(30)
    assert world.is_in(NiState.ACTIVE)


def test_at_rest_nothing_waits() -> None:
    world = World()
    stream = world.stream()
    world.pass_time(10)
    world.set_rate("a.eth1", RATE / 10)
    world.until(NiState.DEGRADED, 30)
    stream.window = 0
    world.pass_time(120)
    assert world.a.core.next_deadline() is None
    assert world.is_in(NiState.DEGRADED), "nothing has shown that it is better"


def test_a_way_whose_rate_is_not_known_yet_is_left_alone() -> None:
    world = World()
    world.set_rate("a.eth1", RATE / 10)
    for source, count in ((A1, 2), (A0, 20)):
        for _ in range(count):
            world.a.put(
                Nid.parse("10.1.0.2@tcp1" if source is A1 else "10.0.0.2@tcp"),
                30,
                data=MESSAGE,
                source=source,
            )
        world.pass_time(20)
    (peer,) = (peer for peer in world.a.core.peers if peer.multi_rail)
    path_load = peer.path_loads[world.a.core.nis[A1]]
    assert isinstance(path_load, Meter)
    assert path_load.best > 0
    assert path_load.rate == 0
    world.pass_time(60)
    assert world.a.core.next_deadline() is None


def test_an_ni_whose_accuser_is_gone_is_judged_by_those_that_are_left() -> None:
    world = World(peers=2)
    stream = world.stream()
    world.pass_time(10)
    world.set_rate("a.eth1", RATE / 10)
    world.until(NiState.DEGRADED, 30)
    stream.window = 0
    world.pass_time(30)
    world.a.core.peers.delete(Nid.parse("10.0.0.2@tcp"))
    world.set_rate("a.eth1", RATE)
    for _ in range(100):  # far less than the NI could carry, each well
        world.a.put(Nid.parse("10.1.0.3@tcp1"), 30, data=MESSAGE, source=A1)
        world.pass_time(0.5)
    assert world.is_in(NiState.ACTIVE)


def test_slow_peers_are_compared_with_each_other_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(peers=6)
    for number in range(2, 8):
        world.stream(number, 4, A1, bound=True).data = bytes(65536)
    world.pass_time(15)
    world.set_rate("a.eth1", RATE / 20)
    world.pass_time(30)
    walks: list[NI] = []
    every = Rates._all

    def counted(rates: Rates, ni: NI) -> Iterator[Meter]:
        walks.append(ni)
        return every(rates, ni)

    monkeypatch.setattr(Rates, "_all", counted)
    world.pass_time(10)
    assert world.is_in(NiState.ACTIVE)  # nobody can say that it is this NI
    assert 0 < len(walks) <= 40


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_sent_over_rails_that_keep_their_rates_nobody_is_degraded(seed: int) -> None:
    rng = Random(seed)
    world = World(peers=rng.randint(1, 4))
    if seed % 2:
        world.set_rate("a.eth1", RATE / rng.choice([3, 10]))  # from the beginning
    sizes = [bytes(size) for size in (1, 4096, 65536, 256 * 1024)]
    for number in range(2, 2 + len(world.peers)):
        for source in (A0, A1):
            world.stream(number, 0, source, bound=rng.random() < 0.5)
    for _ in range(20):
        for stream in world.streams:
            if rng.random() < 0.5:
                stream.window = rng.choice([0, 0, 1, 2, 8, 32]) if rng.random() < 0.8 else 0
                stream.data = rng.choice(sizes)
                if len(stream.data) < 65536:
                    stream.window = min(stream.window, 2)  # they are many in no time
        world.pass_time(rng.choice([1, 5, 15]))
    assert not world.lines
