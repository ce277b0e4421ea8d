"""lnetd and lnetctl on two hosts with two rails (network namespaces): interfaces, IPv4 and IPv6, pings."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.daemon import PATIENCE, Done, environment
from support.netns import Cluster, Host


class RailDaemon:
    """An lnetd on one host."""

    def __init__(self, host: Host, path: Path, *words: str) -> None:
        self.host = host
        self.path = path
        command = [sys.executable, "-m", "ulnet.cli.lnetd", "--socket", str(path), "--drain", "1", *words]
        self.process = host.start(*command, env=environment())
        assert self.process.stderr is not None
        line = self.process.stderr.readline().decode()
        assert "ready" in line, line

    def __call__(self, *words: str) -> Done:
        command = [sys.executable, "-m", "ulnet.cli.lnetctl", "--socket", str(self.path), *words]
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def show(self, *words: str) -> Any:
        """A command's YAML."""
        done = self(*words)
        assert (done.code, done.err) == (0, "")
        return yaml.safe_load(done.out)


@pytest.fixture
def sides(two_hosts: Cluster, tmp_path: Path) -> Iterator[list[RailDaemon]]:
    daemons = [RailDaemon(host, tmp_path / f"{host.number}.sock") for host in two_hosts.hosts]
    yield daemons
    for daemon in daemons:
        daemon.process.terminate()
        daemon.process.communicate(timeout=PATIENCE)


def interfaces(document: Any) -> dict[str, dict[str, str]]:
    return {
        net["net type"]: {ni["interfaces"][0]: ni["nid"] for ni in net["local NI(s)"] if "interfaces" in ni}
        for net in document["net"]
    }


@pytest.mark.requirement("cfg-015", "cfg-020", "cfg-060", "tst-005")
def test_two_rails_each(sides: list[RailDaemon]) -> None:
    left, right = sides
    for side in sides:
        assert side("net", "add", "--net", "tcp", "--if", "rail0,rail1[0]") == (0, "", "")
    assert interfaces(left.show("net", "show")) == {
        "lo": {},
        "tcp": {"rail0": left.host.nid(0), "rail1": left.host.nid(1)},
    }
    for rail in (0, 1):
        answer = left.show("ping", "--source", left.host.nid(rail), right.host.nid(rail))["ping"]
        assert answer == [
            {
                "primary nid": right.host.nid(rail),
                "Multi-Rail": False,
                "peer_ni": [{"nid": right.host.nid(0)}, {"nid": right.host.nid(1)}],
            }
        ]
    for ni in left.show("net", "show", "-v", "2", "--net", "tcp")["net"][0]["local NI(s)"]:
        assert ni["sent_stats"]["get"] == 1
        assert ni["received_stats"]["reply"] == 1
    backup = left("export", "--backup").out
    assert "nid: 10." not in backup.split("peer:")[0]
    assert left("net", "del", "--net", "tcp", "--if", "rail1") == (0, "", "")
    failed = right("ping", left.host.nid(1))
    assert failed.code == 145 and "Connection refused: nothing listens on" in failed.out


def test_interfaces_that_cannot_serve(sides: list[RailDaemon]) -> None:
    left, _ = sides
    left.host.set_link(1, up=False)
    down = left("net", "add", "--net", "tcp", "--if", "rail0,rail1")
    assert (down.code, down.out) == (156, "")
    assert "interface rail1 is down" in down.err
    assert interfaces(left.show("net", "show")) == {"lo": {}}
    foreign = left("net", "add", "--nid", "10.0.0.77@tcp")
    assert foreign.code == 156
    assert "10.0.0.77 is not an address of this host" in foreign.err
    left.host.set_link(1, up=True)
    assert left("net", "add", "--net", "tcp", "--if", "rail0,rail1").code == 0
    second = left("net", "add", "--nid", "fd00:1::1@tcp")
    assert second.code == 239
    assert "interface rail1 is in net tcp already" in second.err


def test_large_nids(sides: list[RailDaemon]) -> None:
    for side in sides:
        assert side("lnet", "unconfigure").code == 0
        assert side("lnet", "configure", "--large").code == 0
        assert side("net", "add", "--net", "tcp", "--if", "rail0").code == 0
    left, right = sides
    assert left.show("ping", "fd00:0::2@tcp")["ping"][0]["peer_ni"] == [{"nid": "fd00::2@tcp"}]
    assert interfaces(right.show("net", "show"))["tcp"] == {"rail0": "fd00::2@tcp"}
    backup = left.show("export", "--backup")["net"][0]["local NI(s)"][0]
    assert backup["nid"] == "fd00::1@tcp"


@pytest.mark.requirement("cfg-170")
def test_a_backup_starts_the_next_daemon(sides: list[RailDaemon], tmp_path: Path) -> None:
    left, _ = sides
    left("net", "add", "--net", "tcp", "--if", "rail0", "--credits", "64")
    left("net", "add", "--nid", f"{left.host.address6(1)}@tcp1", "--conns-per-peer", "2")
    backup = left("export", "--backup").out
    file = tmp_path / "lnet.yaml"
    file.write_text(backup)
    left.process.terminate()
    left.process.communicate(timeout=PATIENCE)
    again = RailDaemon(left.host, tmp_path / "again.sock", "--config", str(file))
    assert again("export", "--backup").out == backup
    again.process.terminate()
    again.process.communicate(timeout=PATIENCE)


def addresses(daemon: RailDaemon) -> set[tuple[str, str]]:
    """Which addresses of a host are connected to which of another one."""
    lines = daemon.host.run("ss", "-Htn", "state", "established").stdout.splitlines()
    pairs = (line.split()[-2:] for line in lines)
    return {(own.rpartition(":")[0].partition("%")[0], other.rpartition(":")[0]) for own, other in pairs}


@pytest.mark.requirement("HLD-bonding-tcp")
def test_one_ni_over_both_rails(sides: list[RailDaemon], tmp_path: Path) -> None:
    left, right = sides
    for side in sides:
        assert side("set", "use_tcp_bonding", "1") == (0, "", "")
        assert side("net", "add", "--net", "tcp", "--if", "rail0,rail1") == (0, "", "")
    (net,) = left.show("net", "show", "--net", "tcp")["net"]
    nid = left.host.nid(0)
    assert net["local NI(s)"] == [
        {"nid": nid, "status": "up", "interfaces": {0: "rail0", 1: "rail1"}, "tcp bonding": 1}
    ]
    assert left.show("global", "show")["global"]["use_tcp_bonding"] == 1
    done = left("net", "add", "--net", "tcp", "--if", "rail1")
    assert done.code == 255 and f"it is one NI, {nid}, and takes no other" in done.err
    left.show("ping", right.host.nid(0))
    rails = {(left.host.address(rail), right.host.address(rail)) for rail in (0, 1)}
    deadline = time.monotonic() + PATIENCE
    while addresses(left) != rails:
        assert time.monotonic() < deadline, addresses(left)
        time.sleep(0.1)
    file = tmp_path / "lnet.yaml"
    assert left("export", "--backup", str(file)).code == 0
    assert left("net", "del", "--net", "tcp") == (0, "", "")
    assert left("set", "use_tcp_bonding", "0") == (0, "", "")
    assert left("import", str(file)) == (0, "", "")
    assert left.show("net", "show", "--net", "tcp")["net"] == [net]
    left.show("ping", right.host.nid(0))
    right.host.set_link(0, False)
    # The first ping may be on its way over the dead rail, which nobody has told the left side of.
    deadline = time.monotonic() + PATIENCE
    while (answer := left("ping", right.host.nid(0))).code:
        assert time.monotonic() < deadline, answer
