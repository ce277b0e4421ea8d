"""A host loses its power and boots: what went to its former life ends when one rail hears the new one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import patient_node
from support.netns import Cluster, Host
from support.program import Program

ULNET = [sys.executable, "-m", "ulnet"]
RAILS = range(2)
PATIENCE = 60.0  # seconds; all time-outs of the nodes are far longer
MANY = 4
SILENCE = "100s"  # before TCP sends again what nobody has acknowledged


def wait(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, what()
        time.sleep(0.05)


def lose_power(cluster: Cluster, host: Host, program: Program) -> None:
    """End a program so that nobody hears of it: the host that boots knows nothing of its connections."""
    for rail in RAILS:
        cluster.set_path(host, rail, through=False)
    host.write("net/ipv4/tcp_orphan_retries", "1")
    program.kill()
    connections = ("ss", "-Htan", "state", "connected", "exclude", "time-wait")
    wait(lambda: not host.run(*connections).stdout, lambda: host.run(*connections).stdout)


CROSSING = 0.5  # seconds between two calls of which one gives way


class Scene:
    """Two nodes on two rails that know each other; the first has operations under way when the other dies."""

    def __init__(self, cluster: Cluster, second: str) -> None:
        self.cluster = cluster
        self.a, self.b = cluster.hosts
        nets = ("tcp", second)
        self.here, self.there = (
            [host.nid(rail, net) for rail, net in enumerate(nets)] for host in (self.a, self.b)
        )
        for rail in RAILS:  # TCP does not find out in time: only LNet can
            words = f"route replace 10.{rail}.0.0/24 dev rail{rail} src {self.a.address(rail)}"
            self.a.run("ip", *words.split(), "rto_min", SILENCE)
        self.client = Program(self.a, patient_node, *self.here)
        self.former = Program(self.b, patient_node, *self.there)
        self.endings: list[Any] = []
        for nid in self.there * 2:
            self.finish(nid)
            assert {how for _, how in self.endings} == {"done"}, self.endings

    def begin(self, nid: str) -> None:
        assert self.client.ask(begin=nid, puts=MANY, pings=1) == "begun"

    def await_endings(self, count: int) -> None:
        self.endings = []

        def all_over() -> bool:
            self.endings += self.client.ask(ended=True)
            return len(self.endings) == count

        wait(all_over, lambda: self.endings)

    def finish(self, *nids: str) -> None:
        """Operations with these NIDs from beginning to end."""
        for nid in nids:
            self.begin(nid)
        self.await_endings((MANY + 1) * len(nids))

    def sent(self) -> list[int]:
        """How many messages went to each NI of the peer."""
        peer = self.client.ask(peer=self.there[0])
        return [peer[nid][1] for nid in self.there]

    def lose_power(self) -> None:
        """The second dies while operations of the first are under way to all of its NIDs."""
        lose_power(self.cluster, self.b, self.former)
        for nid in self.there:
            self.begin(nid)

    def boot(self, *rails: int) -> Program:
        """The new life of the second; the network carries its packets on these rails."""
        anew = Program(self.b, patient_node, *self.there)
        assert not self.client.ask(ended=True)
        for rail in rails:
            self.cluster.set_path(self.b, rail, through=True)
        return anew


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("who", ["the new life", "the other node"])
@pytest.mark.parametrize("second", ["tcp", "tcp1"])
def test_what_went_to_a_former_life_ends_when_one_rail_hears_the_new_one(
    two_hosts: Cluster, tmp_path: Path, second: str, who: str
) -> None:
    scene = Scene(two_hosts, second)
    scene.lose_power()
    capture = tmp_path / "boot.pcap"
    with scene.a.capture(capture, packets="tcp port 988"):
        anew = scene.boot(*RAILS)
        if who == "the new life":
            anew.ask(begin=scene.here[0], puts=0, pings=1)
            scene.await_endings((MANY + 1) * 2)
        else:
            scene.begin(scene.there[1])
            scene.await_endings((MANY + 1) * 3)
    assert refused(hellos(scene.a, capture)) == []
    while set(anew.ask(heard=True)) != set(scene.there):
        scene.finish(*scene.there)
        assert {how for _, how in scene.endings} == {"done"}


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("second", ["tcp", "tcp1"])
def test_what_went_to_a_former_life_ends_on_a_rail_that_is_dead(two_hosts: Cluster, second: str) -> None:
    scene = Scene(two_hosts, second)
    scene.lose_power()
    anew = scene.boot(0)
    anew.ask(begin=scene.here[0], puts=0, pings=1)
    scene.await_endings((MANY + 1) * 2)
    scene.finish(*scene.there)
    assert {how for _, how in scene.endings} == {"done"}
    two_hosts.set_path(scene.b, 1, through=True)
    while set(anew.ask(heard=True)) != set(scene.there):
        scene.finish(*scene.there)
        assert {how for _, how in scene.endings} == {"done"}


def refused(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """HELLOs that refuse, other than to a call that crossed one of the refusing node's own."""

    def crossed(no: dict[str, Any]) -> bool:
        ours, theirs = (no[end].rpartition(":")[0] for end in ("src", "dst"))
        return any(
            line["src"].startswith(f"{ours}:")
            and line["dst"] == f"{theirs}:988"
            and abs(line["time"] - no["time"]) < CROSSING
            for line in said
        )

    return [line for line in said if line["type"] == "NONE" and not crossed(line)]


def hellos(host: Host, capture: Path) -> list[dict[str, Any]]:
    """The HELLOs of a capture."""
    told = host.run(*ULNET, "decode", "--json", capture).stdout.splitlines()
    return [line for line in map(json.loads, told) if line["event"] == "hello"]
