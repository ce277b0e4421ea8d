"""One NI over two devices (`use_tcp_bonding`) between two hosts: both carry, and one is enough."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.inside import Inside
from support.netns import Cluster
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.core.ni import NI, Place
from ulnet.core.states import NiState
from ulnet.core.status import LNetError
from ulnet.core.tunables import LndTunables
from ulnet.lnd.tcp import nistate
from ulnet.nid import Net, Nid

PORTAL = 30
SIZE = 256 * 1024
PATIENCE = 60.0  # seconds until something that must happen counts as not happening
WINDOW = 12  # PUTs at once
TCP = Net.parse("tcp")


class Bonded:
    """Two nodes in two hosts, one NI each over two rails, a window of PUTs from the first to the second."""

    def __init__(self, cluster: Cluster, timeout: int = 4) -> None:
        """`timeout` of the driver, in seconds; a PUT may take three times as long."""
        self.cluster = cluster
        self.timeout = timeout
        self.near, self.far = cluster
        self.homes = [Inside(host) for host in cluster]
        self.reports: list[str] = []
        self.nodes = [Node(report=self.reports.append), Node()]
        self.sent = 0
        self.good: list[int] = []
        self.failed: dict[int, LNetError] = {}
        self.got: Counter[int] = Counter()
        self.stopping = False
        for host, home, node in zip(cluster, self.homes, self.nodes, strict=True):
            home.run(self._begin(node, host.number))
        self.homes[1].run(self._listen())

    async def _begin(self, node: Node, number: int) -> None:
        await node.start()
        node.core.settings.transaction_timeout = 3 * self.timeout
        node.core.add_ni(
            TCP,
            Nid.parse(f"10.0.0.{number}@tcp"),
            interface="rail0",
            lnd_tunables=LndTunables(timeout=self.timeout),
            also=[Place(Nid.parse(f"10.1.0.{number}@tcp"), "rail1")],
        )

    async def _listen(self) -> None:
        def count(event: Event) -> None:
            if event.kind is EventKind.PUT and not event.status:
                self.got[event.hdr_data] += 1

        options = OP_PUT | TRUNCATE | MANAGE_REMOTE
        self.nodes[1].attach(PORTAL, 1, bytearray(SIZE), options=options, handler=count)

    async def traffic(self, window: int = WINDOW) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(window):
                tasks.create_task(self._one_after_the_other())

    async def _one_after_the_other(self) -> None:
        data = bytes(SIZE)
        while not self.stopping:
            self.sent = number = self.sent + 1
            try:
                await self.nodes[0].put("10.0.0.2@tcp", PORTAL, 1, data, hdr_data=number)
            except LNetError as failure:
                self.failed[number] = failure
                await asyncio.sleep(0.01)
            else:
                self.good.append(number)

    @property
    def ni(self) -> NI:
        return self.nodes[0].core.nis[Nid.parse("10.0.0.1@tcp")]

    def usable(self) -> set[str]:
        """From which addresses the near node sends."""
        state = self.ni.lnd_data
        assert isinstance(state, nistate.NiState)
        return {conn.local_ip for peer in state.peers.values() for conn in peer.usable()}

    def seen_from_afar(self) -> set[str]:
        """With which addresses of the near node the far one has connections."""
        state = self.nodes[1].core.nis[Nid.parse("10.0.0.2@tcp")].lnd_data
        assert isinstance(state, nistate.NiState)
        return {conn.remote_ip for peer in state.peers.values() for conn in peer.conns}

    def until(self, true: Callable[[], object], what: str) -> None:
        async def wait() -> None:
            patience = asyncio.get_running_loop().time() + PATIENCE
            while not true():
                assert asyncio.get_running_loop().time() < patience, f"waited in vain: {what}"
                await asyncio.sleep(0.005)

        self.homes[0].run(wait())

    def more(self, count: int) -> None:
        """Wait until so many PUTs that begin from now on are acknowledged."""
        first = self.sent + 1
        self.until(lambda: sum(number >= first for number in self.good) >= count, f"{count} more PUTs")

    def bytes_sent(self, rail: int) -> int:
        """By the near host's interface."""
        path = f"/sys/class/net/rail{rail}/statistics/tx_bytes"
        return int(self.near.run("cat", path).stdout)

    def end(self, running: object) -> None:
        """No more PUTs: all that were begun have ended, and none has arrived twice."""
        self.stopping = True
        running.result(PATIENCE)  # type: ignore[attr-defined]
        assert len(self.good) + len(self.failed) == self.sent
        assert max(self.got.values()) == 1, "delivered twice"
        assert all(self.got[number] for number in self.good), "acknowledged, but never there"

    def close(self) -> None:
        self.stopping = True
        for home, node in zip(self.homes, self.nodes, strict=True):
            home.run(node.close(0.2))
        for home in self.homes:
            home.close()


@pytest.fixture
def bonded(make_cluster: Callable[..., Cluster], request: pytest.FixtureRequest) -> Iterator[Bonded]:
    bonded = Bonded(make_cluster(2, 2, "400mbit"), *getattr(request, "param", ()))
    try:
        yield bonded
    finally:
        bonded.close()


@pytest.mark.requirement("HLD-bonding-tcp")
def test_both_devices_carry_what_goes_to_the_one_nid(bonded: Bonded) -> None:
    before = [bonded.bytes_sent(rail) for rail in range(2)]
    running = bonded.homes[0].start(bonded.traffic())
    bonded.more(200)
    bonded.end(running)
    assert not bonded.failed
    shares = [bonded.bytes_sent(rail) - before[rail] for rail in range(2)]
    total = sum(shares)
    assert min(shares) > total / 4, f"spread as {shares}"
    assert [str(nid) for nid in bonded.nodes[1].core.nis] == ["0@lo", "10.0.0.2@tcp"]


Change = Callable[[Bonded], None]
FAULTS: dict[str, tuple[Change, Change]] = {
    "switched off": (lambda b: b.near.set_link(1, False), lambda b: b.near.set_link(1, True)),
    "the NID's own": (lambda b: b.near.set_link(0, False), lambda b: b.near.set_link(0, True)),
    "carrier lost": (
        lambda b: b.cluster.set_cable(b.near, 1, False),
        lambda b: b.cluster.set_cable(b.near, 1, True),
    ),
}


@pytest.mark.requirement("HLD-bonding-tcp")
@pytest.mark.parametrize("name", FAULTS)
def test_traffic_goes_on_over_the_other_device_and_comes_back(bonded: Bonded, name: str) -> None:
    fail, repair = FAULTS[name]
    running = bonded.homes[0].start(bonded.traffic())
    bonded.more(30)
    bonded.until(lambda: len(bonded.usable()) == 2, "connections over both")
    fail(bonded)
    bonded.until(lambda: len(bonded.usable()) == 1, "one device left")
    assert not bonded.ni.fatal
    bonded.until(lambda: bonded.ni.state is NiState.DEGRADED, "DEGRADED")
    bonded.more(50)
    repair(bonded)
    bonded.until(lambda: len(bonded.usable()) == 2, "both again")
    bonded.until(lambda: bonded.ni.state is NiState.ACTIVE, "RESTORED")
    bonded.more(30)
    bonded.end(running)
    assert not bonded.failed, list(bonded.failed.values())[:3]


@pytest.mark.requirement("HLD-bonding-tcp")
@pytest.mark.parametrize("rail", [0, 1])
def test_a_rail_that_fails_far_away_is_left_too(bonded: Bonded, rail: int) -> None:
    running = bonded.homes[0].start(bonded.traffic())
    bonded.more(30)
    bonded.until(lambda: len(bonded.usable()) == 2, "connections over both")
    bonded.cluster.set_path(bonded.far, rail, False)
    bonded.until(lambda: len(bonded.usable()) == 1, "one rail left")
    bonded.more(50)
    bonded.end(running)
    assert not bonded.failed, list(bonded.failed.values())[:3]


@pytest.mark.requirement("HLD-bonding-tcp")
@pytest.mark.parametrize("rail", [0, 1])
def test_a_device_may_stay_away_for_longer_than_connections_live(bonded: Bonded, rail: int) -> None:
    running = bonded.homes[0].start(bonded.traffic())
    bonded.more(30)
    bonded.until(lambda: len(bonded.usable()) == 2, "connections over both")
    bonded.near.set_link(rail, False)
    bonded.until(lambda: f"10.{rail}.0.1" not in bonded.seen_from_afar(), "the far node gives up")
    bonded.more(50)
    bonded.end(running)
    assert not bonded.failed, list(bonded.failed.values())[:3]


@pytest.mark.requirement("HLD-bonding-tcp")
def test_without_any_device_the_ni_is_down_and_with_one_it_is_up_again(bonded: Bonded) -> None:
    running = bonded.homes[0].start(bonded.traffic())
    bonded.more(30)
    for rail in range(2):
        bonded.near.set_link(rail, False)
    bonded.until(lambda: bonded.ni.fatal, "FATAL")
    bonded.near.set_link(1, True)
    bonded.until(lambda: not bonded.ni.fatal, "RECOVERED")
    bonded.more(20)
    assert bonded.usable() == {"10.1.0.1"}
    bonded.end(running)


@pytest.mark.requirement("HLD-bonding-tcp")
def test_a_hello_tells_the_addresses(bonded: Bonded, tmp_path: Path) -> None:
    path = tmp_path / "hello.pcap"
    with bonded.near.capture(path, "rail0"):
        running = bonded.homes[0].start(bonded.traffic(1))
        bonded.more(1)
        bonded.end(running)
    said = path.read_bytes()
    own, other = bytes((1, 0, 0, 10)) + bytes((1, 0, 1, 10)), bytes((2, 0, 0, 10)) + bytes((2, 0, 1, 10))
    assert (2).to_bytes(4, "little") + own in said
    assert (2).to_bytes(4, "little") + other in said
