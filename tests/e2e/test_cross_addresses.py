"""What two kernel nodes connect connects, and rails in one subnet keep to their own devices."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.daemon import PATIENCE, Done, environment
from support.netns import Cluster, Host
from ulnet.nid import Nid


class Ctl:
    """lnetds on hosts, each under a name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Any] = []

    def start(self, host: Host, name: str) -> Callable[..., Done]:
        path = self.folder / name
        words = ["--socket", str(path), "--drain", "1"]
        process = host.start(sys.executable, "-m", "ulnet.cli.lnetd", *words, env=environment())
        self.processes.append(process)
        assert process.stderr is not None
        assert "ready" in process.stderr.readline().decode()

        def ask(*words: str) -> Done:
            command = [sys.executable, "-m", "ulnet.cli.lnetctl", "--socket", str(path), *words]
            done = subprocess.run(
                command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
            )
            return Done(done.returncode, done.stdout, done.stderr)

        return ask


@pytest.fixture
def ctl(tmp_path: Path) -> Iterator[Ctl]:
    made = Ctl(tmp_path)
    yield made
    for process in made.processes:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def set_each(cluster: Cluster, name: str, value: str) -> None:
    """A sysctl of all devices."""
    for host in cluster:
        for device in ("all", "default", *(host.interface(rail) for rail in range(host.rails))):
            host.write(f"net/ipv4/conf/{device}/{name}", value)


def reached(ask: Callable[..., Done], *words: str) -> list[str]:
    """The NIDs that a ping tells; it may take some tries."""
    deadline = time.monotonic() + 20
    while True:
        done = ask("ping", "--timeout", "5", *words)
        if not done.code:
            return [ni["nid"] for ni in yaml.safe_load(done.out)["ping"][0]["peer_ni"]]
        assert time.monotonic() < deadline, done


@pytest.mark.requirement("tst-005")
@pytest.mark.parametrize("large", [False, True], ids=["IPv4", "IPv6"])
def test_nodes_on_one_host_reach_each_other_by_other_devices(
    two_hosts: Cluster, ctl: Ctl, large: bool
) -> None:
    host = two_hosts.hosts[0]
    address = host.address6 if large else host.address
    one, other = ctl.start(host, "one"), ctl.start(host, "other")
    for rail, ask in enumerate((one, other)):
        nid = str(Nid.parse(f"{address(rail)}@tcp"))
        assert ask("net", "add", "--nid", nid) == (0, "", "")
    nids = [str(Nid.parse(f"{address(rail)}@tcp")) for rail in (0, 1)]
    assert reached(one, nids[1]) == [nids[1]]
    assert reached(other, nids[0]) == [nids[0]]


@pytest.mark.requirement("tst-005")
@pytest.mark.parametrize("large", [False, True], ids=["IPv4", "IPv6"])
def test_an_address_of_one_rail_reaches_one_of_the_other(two_hosts: Cluster, ctl: Ctl, large: bool) -> None:
    """Each node has one NI, on another rail than the other's."""
    set_each(two_hosts, "rp_filter", "0")  # answers come by another device
    asks, nids = [], []
    for rail, host in enumerate(two_hosts):
        address = (host.address6 if large else host.address)(rail)
        asks.append(ctl.start(host, host.name))
        nids.append(str(Nid.parse(f"{address}@tcp")))
        assert asks[-1]("net", "add", "--nid", nids[-1]) == (0, "", "")
    assert reached(asks[0], nids[1]) == [nids[1]]
    assert asks[1]("peer", "show").code == 0
    assert reached(asks[1], nids[0]) == [nids[0]]


@pytest.mark.requirement("snd-005", "tst-010")
@pytest.mark.parametrize("large", [False, True], ids=["IPv4", "IPv6"])
def test_rails_in_one_subnet_leave_by_their_own_devices(two_hosts: Cluster, ctl: Ctl, large: bool) -> None:
    """The rails are not joined, and devices answer for their own addresses: a wrong device leads nowhere."""
    set_each(two_hosts, "arp_ignore", "1")
    pattern, prefix = ("fd99::%d", 64) if large else ("10.99.0.%d", 24)
    asks, nids = [], []
    for host in two_hosts:
        ask = ctl.start(host, host.name)
        asks.append(ask)
        for rail in (0, 1):
            address = pattern % (10 * rail + host.number)
            words = ["ip", "address", "add", f"{address}/{prefix}", "dev", host.interface(rail)]
            host.run(*words, *(["nodad"] if large else []))
        for rail in (0, 1):
            nids.append(f"{pattern % (10 * rail + host.number)}@tcp")
            assert ask("net", "add", "--nid", nids[-1]) == (0, "", "")
    for here, there in ((0, 1), (1, 0)):
        for rail in (0, 1):
            pair = ("--source", nids[2 * here + rail], nids[2 * there + rail])
            assert reached(asks[here], *pair) == nids[2 * there : 2 * there + 2]
