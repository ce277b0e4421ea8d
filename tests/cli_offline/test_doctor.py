"""`ulnet doctor`: each pitfall by values made by hand, and on hosts that really have it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support.daemon import SOURCE
from support.netns import Cluster
from ulnet.cli.doctor_rules import diagnose
from ulnet.cli.ulnet import main
from ulnet.host import Address, Link
from ulnet.host.network_facts import NetworkFacts

GOOD = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0}
ETH0 = Link("eth0", 2, addresses=(Address("10.0.0.1", 24),))
ETH1 = Link("eth1", 3, addresses=(Address("10.0.0.2", 24),))
LO = Link("lo", 1, loopback=True, addresses=(Address("127.0.0.1", 8),))


def facts() -> NetworkFacts:
    """A host with two interfaces in one subnet, set up as it should be."""
    return NetworkFacts(
        [LO, ETH0, ETH1],
        {"all": {"arp_ignore": 0, "arp_announce": 0, "rp_filter": 0}, "eth0": GOOD, "eth1": GOOD},
        [("10.0.0.1", 102), ("10.0.0.2", 103)],
        {102: {"eth0"}, 103: {"eth1"}},
        {"unprivileged_port_start": 1024, "rmem_max": 1 << 22, "wmem_max": 1 << 22},
    )


def told(host: NetworkFacts) -> list[tuple[str, str, str]]:
    return [(one.level, one.where, one.text[:40]) for one in diagnose(host)]


def test_a_host_set_up_well() -> None:
    assert told(facts()) == []
    assert told(NetworkFacts([LO, ETH0])) == []


def test_arp_of_interfaces_in_one_subnet() -> None:
    host = facts()
    host.conf = {"all": GOOD | {"arp_ignore": 0}, "eth0": GOOD | {"arp_ignore": 0}, "eth1": GOOD}
    assert [one[:2] for one in told(host)] == [("error", "eth0")]
    host.conf = {"all": GOOD | {"arp_announce": 1}, "eth0": GOOD, "eth1": GOOD | {"arp_announce": 0}}
    assert told(host) == [("error", "eth1", "eth0 and eth1 are both on 10.0.0.0/24, a"[:40])]
    assert "sysctl -w net.ipv4.conf.eth1.arp_announce=2" in next(diagnose(host)).text
    host.links = [LO, ETH0, replace(ETH1, addresses=(Address("10.0.1.2", 24),))]
    assert told(host) == []


def test_source_routes() -> None:
    host = facts()
    host.rules = [("10.0.0.1", 102), ("10.0.0.2", 102)]
    assert told(host) == [("warning", "eth1", "no rule sends packets from 10.0.0.2 out ")]
    host.rules = []
    assert [one[1] for one in told(host)] == ["eth0", "eth1"]


@pytest.mark.parametrize(
    ("change", "where", "level"),
    [
        (
            {"conf": {"all": GOOD | {"rp_filter": 1}, "eth0": GOOD, "eth1": GOOD | {"rp_filter": 2}}},
            "eth0",
            "warning",
        ),
        ({"links": [LO, replace(ETH0, up=False)]}, "eth0", "warning"),
        ({"links": [LO, replace(ETH0, carrier=False)]}, "eth0", "warning"),
        (
            {"links": [LO, replace(ETH0, addresses=(Address("10.0.0.1", 24, tentative=True),))]},
            "eth0",
            "note",
        ),
        ({"links": [LO, replace(ETH0, mtu=9000), ETH1]}, "mtu", "note"),
        ({"kernel_lnet": True}, "lnet", "warning"),
        ({"root": False}, "ports", "warning"),
        ({"whole": {"rmem_max": 212992}}, "rmem_max", "note"),
    ],
)
def test_other_pitfalls(change: dict[str, object], where: str, level: str) -> None:
    host = facts()
    for name, value in change.items():
        setattr(host, name, value)
    assert [(one.level, one.where) for one in diagnose(host)] == [(level, where)]


@pytest.mark.requirement("tst-005", "tst-010")
def test_a_real_host_with_two_interfaces_in_one_subnet(two_hosts: Cluster) -> None:
    host = two_hosts.hosts[0]
    doctor = ("env", f"PYTHONPATH={SOURCE}", sys.executable, "-m", "ulnet", "doctor", "--json")

    def ask() -> list[dict[str, object]]:
        done = host.run(*doctor, check=False)
        found: list[dict[str, object]] = json.loads(done.stdout)
        return [one for one in found if one["level"] != "note"]

    assert [one for one in ask() if one["level"] == "error"] == []
    host.run("ip", "address", "add", "10.0.0.77/24", "dev", "rail1")
    errors = [one for one in ask() if one["level"] == "error"]
    assert {one["where"] for one in errors} == {"rail0", "rail1"}
    for rail, address in (("rail0", "10.0.0.1"), ("rail1", "10.0.0.77")):
        host.write(f"net/ipv4/conf/{rail}/arp_ignore", "1")
        host.write(f"net/ipv4/conf/{rail}/arp_announce", "2")
        host.write(f"net/ipv4/conf/{rail}/rp_filter", "0")
        host.run("ip", "rule", "add", "from", address, "table", f"10{rail[-1]}")
        host.run("ip", "route", "add", "10.0.0.0/24", "dev", rail, "table", f"10{rail[-1]}")
    host.write("net/ipv4/conf/all/rp_filter", "0")
    left = [one["where"] for one in ask()]
    assert left == ["rail1"]  # 10.1.0.1, the other address of rail1, is not in that subnet's table
    host.run("ip", "rule", "add", "from", "10.1.0.1", "table", "101")
    assert ask() == []


def test_here_it_ends_with_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) in (0, 1)
    assert capsys.readouterr().out


def test_a_node_that_does_not_answer_is_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--socket", str(tmp_path / "nobody")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ulnet doctor: ")
    assert "no lnetd answers" in err
