"""The namespaces that other tests stand on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.netns import Cluster

SEND = """
import socket
with socket.create_connection(("{to}", 5000), source_address=("{source}", 0)) as s:
    s.sendall(b"over rail {rail}")
"""
RECEIVE = """
import socket
for address in {addresses}:
    server = socket.create_server((address, 5000))
    print("ready", flush=True)
    peer, where = server.accept()
    print(where[0], peer.recv(100).decode(), flush=True)
    peer.close()
    server.close()
"""


def test_each_rail_carries_its_own_traffic(
    two_hosts: Cluster, tmp_path: Path, tshark: Callable[..., str]
) -> None:
    one, two = two_hosts
    addresses = [two.address(0), two.address(1)]
    receiver = two.start(sys.executable, "-c", RECEIVE.format(addresses=addresses))
    assert receiver.stdout is not None
    with one.capture(tmp_path / "rail1.pcap", "rail1"):
        for rail in (0, 1):
            assert receiver.stdout.readline() == b"ready\n"
            program = SEND.format(to=two.address(rail), source=one.address(rail), rail=rail)
            one.run(sys.executable, "-c", program)
            assert receiver.stdout.readline().decode() == f"10.{rail}.0.1 over rail {rail}\n"
    seen = tshark(tmp_path / "rail1.pcap", "-T", "fields", "-e", "ip.dst", "-Y", "tcp.len > 0")
    assert seen.split() == ["10.1.0.2"]


def test_links_go_down_and_up_from_both_ends(two_hosts: Cluster) -> None:
    one, _ = two_hosts

    def flags() -> set[str]:
        line = one.run("ip", "-o", "link", "show", "rail1").stdout
        return set(line[line.index("<") + 1 : line.index(">")].split(","))

    assert {"UP", "LOWER_UP"} <= flags()
    two_hosts.set_cable(one, 1, plugged=False)
    assert {"UP", "NO-CARRIER"} <= flags()
    two_hosts.set_cable(one, 1, plugged=True)
    assert {"UP", "LOWER_UP"} <= flags()
    one.set_link(1, up=False)
    assert "UP" not in flags()
    one.set_link(1, up=True)
    assert {"UP", "LOWER_UP"} <= flags()
    assert "fd00:1::1/64" in one.run("ip", "-6", "address", "show", "rail1").stdout


def test_rails_may_have_rates_of_their_own(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(hosts=2, rails=2, rate=["400mbit", "100mbit"])
    for host in cluster:
        assert "rate 400Mbit" in host.run("tc", "qdisc", "show", "dev", "rail0").stdout
        assert "rate 100Mbit" in host.run("tc", "qdisc", "show", "dev", "rail1").stdout


def test_nothing_is_left_of_a_cluster(namespaces_work: None) -> None:
    cluster = Cluster(hosts=2, rails=1)
    sleeper = cluster.hosts[0].start("sleep", "1000")
    names = [cluster.switch, *(host.name for host in cluster)]
    cluster.close()
    assert sleeper.returncode is not None
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not [name for name in names if name in listed.split()]
