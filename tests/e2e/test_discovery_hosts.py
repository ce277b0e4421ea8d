"""Hosts with two rails that find out by themselves, in namespaces: lnetd, lnetctl, and no peer configured."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.netns import Cluster, Host, stop

LNETD = [sys.executable, "-m", "ulnet.cli.lnetd"]
LNETCTL = [sys.executable, "-m", "ulnet.cli.lnetctl"]
SOON = 60.0  # seconds: a generous bound on what takes milliseconds


class Daemon:
    """One lnetd on one host, with an NI on each of its first rails."""

    def __init__(self, host: Host, socket: Path, rails: int) -> None:
        self.host = host
        self.socket = socket
        self.process = host.start(*LNETD, "--socket", socket)
        assert self.process.stderr is not None
        assert b"ready" in self.process.stderr.readline()
        for rail in range(rails):
            self.add_rail(rail)

    def ctl(self, *words: str) -> str:
        return self.host.run(*LNETCTL, "--socket", self.socket, *words).stdout

    def show(self, *words: str) -> Any:
        return yaml.safe_load(self.ctl(*words))

    def add_rail(self, rail: int) -> None:
        self.ctl("net", "add", "--net", _net(rail), "--if", self.host.interface(rail))

    def del_rail(self, rail: int) -> None:
        self.ctl("net", "del", "--net", _net(rail))

    def peer(self, other: Daemon) -> dict[str, Any]:
        """The other side as this one knows it."""
        nid = other.nids(1)[0]
        shown = self.show("peer", "show", "-v", "3") or {"peer": []}
        found = [peer for peer in shown["peer"] if any(ni["nid"] == nid for ni in peer["peer ni"])]
        return found[0] if found else {"peer ni": [], "Multi-Rail": False, "peer state": 0}

    def knows(self, other: Daemon) -> list[str]:
        return sorted(ni["nid"] for ni in self.peer(other)["peer ni"])

    def counted(self) -> Any:
        """The counter of differences between configured and seen; None where it is not shown."""
        return self.show("stats", "show")["statistics"].get("differences")

    def nids(self, rails: int) -> list[str]:
        return [self.host.nid(rail, _net(rail)) for rail in range(rails)]


def _net(rail: int) -> str:
    return f"tcp{rail}" if rail else "tcp"


def soon(true: Callable[[], bool]) -> None:
    """Wait until something is true; it must be, long before the limit."""
    limit = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.fixture
def start(make_cluster: Callable[..., Cluster], tmp_path: Path) -> Iterator[Callable[..., list[Daemon]]]:
    with ExitStack() as stack:

        def start(*rails: int) -> list[Daemon]:
            daemons = []
            for host, count in zip(make_cluster(hosts=len(rails), rails=2), rails, strict=True):
                daemon = Daemon(host, tmp_path / f"{host.number}.sock", count)
                stack.callback(stop, daemon.process)
                daemons.append(daemon)
            return daemons

        yield start


@pytest.mark.requirement("dyn-005", "dyn-025", "dyn-045", "dyn-050", "cfg-085", "bck-030")
def test_two_hosts_know_each_others_rails_and_hear_of_changes(start: Callable[..., list[Daemon]]) -> None:
    """Static use case 3 of the documents: both Multi-Rail."""
    a, b = start(2, 2)
    a.ctl("discover", b.nids(2)[1])  # over the second rail: the primary NID is that of the first all the same
    for one, other in ((a, b), (b, a)):
        peer = one.peer(other)
        assert one.knows(other) == other.nids(2)
        assert (peer["primary nid"], peer["Multi-Rail"], peer["peer state"]) == (other.nids(1)[0], True, 273)
    b.del_rail(1)
    soon(lambda: a.knows(b) == b.nids(1))
    b.add_rail(1)
    soon(lambda: a.knows(b) == b.nids(2))
    a.del_rail(1)
    soon(lambda: b.knows(a) == a.nids(1))
    a.add_rail(1)
    soon(lambda: b.knows(a) == a.nids(2))
    assert a.peer(b)["peer state"] == b.peer(a)["peer state"] == 273


@pytest.mark.requirement("dyn-040", "bck-030")
def test_a_host_without_discovery_is_one_nid(start: Callable[..., list[Daemon]]) -> None:
    a, b = start(2, 2)
    b.ctl("set", "discovery", "0")
    shown = a.show("discover", b.nids(1)[0])["discover"]
    assert shown == [{"primary nid": b.nids(1)[0], "Multi-Rail": False, "peer_ni": [{"nid": b.nids(1)[0]}]}]
    b.ctl("set", "discovery", "1")
    shown = a.show("discover", "--force", b.nids(1)[0])["discover"]
    assert [ni["nid"] for ni in shown[0]["peer_ni"]] == b.nids(2)
    b.ctl("set", "discovery", "0")
    soon(lambda: a.knows(b) == [])  # it said so; who it is now is asked at the next message


@pytest.mark.requirement("dyn-060")
def test_what_is_configured_is_compared_with_what_is_seen(start: Callable[..., list[Daemon]]) -> None:
    a, b = start(2, 2)
    assert a.counted() is None
    a.ctl("set", "discovery", "verify")
    assert a.counted() == 0
    a.ctl("peer", "add", "--prim_nid", b.nids(1)[0], "--nid", "10.99.0.1@tcp1")
    wanted = [
        f"peer {b.nids(1)[0]} lists {b.nids(2)[1]}, which is not configured",
        f"peer {b.nids(1)[0]} is configured with 10.99.0.1@tcp1, which it does not list",
    ]
    assert a.show("discover", "--verify", b.nids(1)[0])["discover"][0]["differences"] == wanted
    assert "differences" not in a.peer(b)
    a.ctl("discover", b.nids(1)[0])
    assert a.peer(b)["differences"] == wanted
    assert a.knows(b) == sorted([b.nids(1)[0], "10.99.0.1@tcp1"])
    assert a.counted() >= 2  # and what b, which pushes from a NID that is not configured, makes of itself
    a.ctl("stats", "reset")
    assert a.counted() == 0
    assert a.show("global", "show")["global"]["discovery"] == 2


@pytest.mark.requirement("dyn-065")
def test_a_host_that_began_anew_with_fewer_rails_is_noticed(start: Callable[..., list[Daemon]]) -> None:
    a, b = start(2, 2)
    a.ctl("discover", b.nids(1)[0])
    stop(b.process)
    anew = Daemon(b.host, b.socket.with_suffix(".anew"), 1)
    try:
        a.ctl("ping", b.nids(1)[0])  # a new connection: its HELLO tells that another life is there
        soon(lambda: not a.peer(b)["peer state"] & 0x100 or a.knows(b) == b.nids(1))
        a.ctl("discover", b.nids(1)[0])
        assert a.knows(anew) == anew.nids(1)
    finally:
        stop(anew.process)
