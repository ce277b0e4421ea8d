"""Bonding between hosts in namespaces: lnetd, lnetctl, a sniffer, links that go down; and the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import patient_node
from support.netns import Cluster, Host, stop
from support.program import Program

LNETD = [sys.executable, "-m", "ulnet.cli.lnetd"]
LNETCTL = [sys.executable, "-m", "ulnet.cli.lnetctl"]
ULNET = [sys.executable, "-m", "ulnet"]
PATIENCE = 60.0  # seconds for something that happens within one or two
MANY = 8


@dataclass
class Daemon:
    """One lnetd in one host, with a bonding NI over its rails."""

    host: Host
    socket: Path

    @property
    def bond(self) -> str:
        return f"{self.host.address(0)}@bond"

    def ctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.host.run(*LNETCTL, "--socket", self.socket, *words, check=check)

    def state(self) -> dict[str, Any]:
        """`bond:` of its bonding NI."""
        shown = yaml.safe_load(self.ctl("net", "show", "--net", "bond0", "-v").stdout)
        bond: dict[str, Any] = shown["net"][0]["local NI(s)"][0]["bond"]
        return bond

    def wait(self, done: Callable[[dict[str, Any]], bool]) -> None:
        give_up = time.monotonic() + PATIENCE
        while not done(state := self.state()):
            assert time.monotonic() < give_up, state
            time.sleep(0.2)

    def pings(self, nid: str) -> bool:
        return not self.ctl("ping", "--timeout", "3", nid, check=False).returncode


def wait(done: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """A function that starts a daemon on a host and bonds its two rails with these words."""
    with ExitStack() as stack:

        def run(host: Host, *words: str) -> Daemon:
            socket = tmp_path / f"{host.number}.sock"
            process = host.start(*LNETD, "--socket", socket, "--drain", "1")
            stack.callback(stop, process)
            daemon = Daemon(host, socket)
            give_up = time.monotonic() + PATIENCE
            while not socket.exists() or daemon.ctl("net", "show", check=False).returncode:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < give_up, "lnetd does not answer"
                time.sleep(0.05)
            daemon.ctl("net", "add", "--net", "tcp", "--if", "rail0")
            daemon.ctl("net", "add", "--net", "tcp1", "--if", "rail1")
            daemon.ctl("net", "add", "--net", "bond0", "--slaves", "*@tcp,*@tcp1", *words)
            return daemon

        yield run


@pytest.mark.requirement("BOND-ni", "BOND-config", "BOND-hello", "BOND-util", "LND-bond")
def test_two_hosts_in_standby_and_what_a_sniffer_sees(
    two_hosts: Cluster, start: Callable[..., Daemon], tmp_path: Path
) -> None:
    a, b = (start(host, "--keepalive", "0.5") for host in two_hosts)
    capture = tmp_path / "bond.pcap"
    with a.host.capture(capture, packets="tcp port 988"):
        answer = yaml.safe_load(a.ctl("ping", b.bond).stdout)["ping"][0]
        assert answer["primary nid"] == b.bond  # as asked: the peer is not discovered
        # pings tell of the NIDs that all nodes understand
        assert [one["nid"] for one in answer["peer_ni"]] == [b.host.nid(0), b.host.nid(1, "tcp1")]
    told = a.host.run(*ULNET, "decode", capture).stdout
    for word in (
        "bond BEACON",
        "bond HELLO",
        f"GET   {a.bond} → {b.bond}  ping",
        f"REPLY {b.bond} → {a.bond}",
    ):
        assert word in told
    assert told.index("REPLY") < told.index("bond HELLO") < told.index(f"{a.bond} → {b.bond}")
    shown = yaml.safe_load(a.ctl("peer", "show", "--nid", b.bond, "-v").stdout)["peer"][0]["peer ni"][0][
        "bond"
    ]
    assert (shown["state"], shown["mode"], shown["active"]) == ("connected", "standby", b.host.nid(0))
    # The default slave's cable is pulled; by command; by hand; and all is back.
    two_hosts.set_cable(a.host, 0, plugged=False)
    a.wait(lambda state: state["active"] == a.host.nid(1, "tcp1"))
    assert a.pings(b.bond)
    two_hosts.set_cable(a.host, 0, plugged=True)
    a.wait(lambda state: a.pings(b.bond) and state["active"] == a.host.nid(0))
    # Refused while the path of the other slave is not known to work again.
    backup = ("--slave", a.host.nid(1, "tcp1"))
    a.wait(lambda state: not a.ctl("bond", "failover", "--nid", a.bond, *backup, check=False).returncode)
    assert a.state()["active"] == a.host.nid(1, "tcp1")
    a.ctl("bond", "off", "--nid", a.bond, "--slave", a.host.nid(1, "tcp1"))
    a.wait(lambda state: state["active"] == a.host.nid(0))  # at the next beacon, if one was late just then
    refused = a.ctl("net", "del", "--net", "tcp", check=False)
    assert refused.returncode
    assert f"is a slave of {a.bond}" in refused.stdout + refused.stderr
    a.ctl("net", "del", "--net", "bond0")
    assert a.pings(b.host.nid(1, "tcp1"))


@pytest.mark.requirement("BOND-bds")
def test_a_data_server_on_a_third_host_knows_a_peer_whose_first_rail_is_dead(
    make_cluster: Callable[..., Cluster], start: Callable[..., Daemon]
) -> None:
    cluster = make_cluster(hosts=3, rails=2)
    server = cluster.hosts[2].nid(0)
    a, b, _ = (start(host, "--bds", server, "--mode", "loadbalance") for host in cluster)
    for daemon in (a, b):
        daemon.wait(lambda state: state["server_status"] == {server: "ready"})
    cluster.set_cable(b.host, 0, plugged=False)
    give_up = time.monotonic() + PATIENCE
    while not a.pings(b.bond):
        assert time.monotonic() < give_up
    assert a.state()["lookups"] >= 1


@pytest.mark.requirement("BOND-modes", "BOND-health")
@pytest.mark.parametrize(("size", "through"), [(500, False), (500, True), (1 << 20, True)])
def test_what_is_under_way_when_the_device_of_the_last_slave_is_deleted_ends(
    make_cluster: Callable[..., Cluster], size: int, through: bool
) -> None:
    """What had left goes over the slave that is on again, and arrives once; what finds none is told so."""
    cluster = make_cluster(rate="50mbit")
    near = cluster.hosts[0]
    words = [
        [f"{host.nid(rail, net)}/{host.interface(rail)}" for rail, net in enumerate(("tcp", "tcp1"))]
        for host in cluster
    ]
    a, b = (Program(host, patient_node, *given) for host, given in zip(cluster, words, strict=True))
    a.ask(bond=True)
    bond = b.ask(bond=True)
    over: list[str] = []

    def ended(count: int) -> bool:
        over.extend(how for _, how in a.ask(ended=True))
        return len(over) == count

    a.ask(begin=bond, puts=MANY)
    wait(partial(ended, MANY))
    a.ask(switch=0, on=False)
    if not through:
        cluster.set_path(near, 1, through=False)
    a.ask(begin=bond, puts=MANY, size=size)
    near.run("ip", "link", "delete", near.interface(1))
    wait(lambda: not a.ask(carrying=True))
    a.ask(switch=0, on=True)
    wait(partial(ended, 2 * MANY))
    assert all(how == "done" or "no slave of" in how for how in over), over
    arrived = b.ask(heard=True)[bond]
    assert over.count("done") <= arrived <= 2 * MANY

    def works() -> bool:
        a.ask(begin=bond, puts=1)
        before = len(over)
        wait(partial(ended, before + 1))
        return over[-1] == "done"

    wait(works)


@pytest.mark.requirement("BOND-modes")
@pytest.mark.parametrize("where", [[], ["--net"]])
def test_the_demo_fails_over_and_returns(where: list[str], request: pytest.FixtureRequest) -> None:
    if where:
        request.getfixturevalue("namespaces_work")
    words = [*ULNET, "demo", "--bond", "--size", "64M", *where]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as demo:
        output, errors = demo.communicate(timeout=120)
    assert demo.returncode == 0, output + errors
    assert "every byte arrived, at one NID" in output.replace("\n", " ")
    sums = {line.split()[-1] for line in output.splitlines() if line.startswith("sha256")}
    assert len(sums) == 1
    if where:  # other demos may run beside
        assert not [name for name in os.listdir("/run/netns") if name.startswith(f"ulnet-demo-{demo.pid}-")]


def test_the_demo_wants_room_for_a_failure() -> None:
    # Before it makes a file: there is no place for one of that size.
    for words in (["--rails", "1", "--size", "9999999G"], ["--size", "1K"]):
        done = subprocess.run(
            [*ULNET, "demo", "--bond", *words], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 1
        assert "--bond cuts the default slave on the way" in done.stderr
