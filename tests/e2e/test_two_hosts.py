"""Two hosts with two rails each, as an administrator runs them: lnetd, lnetctl, and a sniffer that judges."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.netns import Cluster, Host, Popen, stop
from ulnet.demo.worker import Job
from ulnet.wire.ping import MIN_INFO_SIZE

LNETD = [sys.executable, "-m", "ulnet.cli.lnetd"]
LNETCTL = [sys.executable, "-m", "ulnet.cli.lnetctl"]
PATIENCE = 60.0  # seconds for a daemon that starts
ULNET = [sys.executable, "-m", "ulnet"]


@dataclass
class Daemon:
    """One lnetd in one host."""

    host: Host
    socket: Path

    def ctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run lnetctl against it."""
        return self.host.run(*LNETCTL, "--socket", self.socket, *words, check=check)

    def show(self, *words: str) -> dict[str, Any]:
        """The YAML that lnetctl prints."""
        shown = yaml.safe_load(self.ctl(*words).stdout)
        assert isinstance(shown, dict)
        return shown


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster(hosts=2, rails=2)


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    with ExitStack() as stack:

        def start(host: Host, *words: str) -> Daemon:
            socket = tmp_path / f"{host.number}.sock"
            process = host.start(*LNETD, "--socket", socket, *words)
            stack.callback(stop, process)
            daemon = Daemon(host, socket)
            give_up = time.monotonic() + PATIENCE
            while not socket.exists() or daemon.ctl("net", "show", check=False).returncode:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < give_up, "lnetd does not answer"
                time.sleep(0.05)
            return daemon

        yield start


def with_two_nets(daemon: Daemon) -> Daemon:
    daemon.ctl("net", "add", "--net", "tcp", "--if", "rail0")
    daemon.ctl("net", "add", "--net", "tcp1", "--if", "rail1")
    return daemon


def lnet_packets(path: Path, *fields: str) -> list[list[str]]:
    """What tshark's LNet dissector makes of a capture, a row a packet."""
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed (Debian: apt-get install tshark)")
    words = ["tshark", "-r", str(path), "-Y", "lnet", "-T", "fields"]
    for field in fields:
        words += ["-e", field]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "HOME": "/"})
    return [line.split("\t") for line in done.stdout.splitlines()]


def malformed(path: Path) -> str:
    """Packets that tshark finds wrong; a PUT's opaque payload is one to it, kernel nodes' too.

    A capture may hold segments in another order than they were sent in: no fault of what is in them.
    """
    wrong = "(_ws.malformed and not _ws.malformed.reassembly) or lnet.bad_buflen or lnet.bad_type"
    words = [
        "tshark",
        "-o",
        "tcp.reassemble_out_of_order:TRUE",
        "-r",
        str(path),
        "-Y",
        f"({wrong}) and not (lnet.msg_type == 1 and lnet.payload_length > 0)",
    ]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.requirement("tst-005", "tst-010", "LND-sock", "cfg-060", "cfg-070")
def test_pings_over_both_rails_and_what_a_sniffer_says(
    cluster: Cluster, start_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    a, b = (with_two_nets(start_daemon(host)) for host in cluster)
    capture = tmp_path / "rails.pcap"
    with a.host.capture(capture, packets="tcp port 988"):
        for rail, net in ((0, "tcp"), (1, "tcp1")):
            nid = b.host.nid(rail, net)
            (found,) = a.show("ping", nid)["ping"]
            assert found["primary nid"] == nid, "as asked: the peer is not discovered"
            assert [one["nid"] for one in found["peer_ni"]] == [b.host.nid(0), b.host.nid(1, "tcp1")]
        b.ctl("ping", a.host.nid(0), a.host.nid(1, "tcp1"))
    assert malformed(capture) == ""
    rows = lnet_packets(
        capture, "ip.src", "ip.dst", "lnet.msg_type", "lnet.nid.net_interface", "lnet.src_pid"
    )
    kinds = Counter((source, target, kind) for source, target, kind, _, _ in rows)
    for rail in (0, 1):
        here, there = a.host.address(rail), b.host.address(rail)
        assert kinds[here, there, "2"] == kinds[there, here, "3"] == 1  # GET, REPLY
        assert kinds[there, here, "2"] == kinds[here, there, "3"] == 1
    assert sum(kinds.values()) == 8
    assert all(pid == "12345" for *_, pid in rows)
    # And our own decoder reads the same conversation.
    decoded = a.host.run(*ULNET, "decode", "--json", capture).stdout
    assert decoded.count("REPLY") >= 4


@pytest.mark.requirement("cfg-010", "cfg-060", "cfg-080", "dbg-010", "dbg-015")
def test_configuration_as_an_administrator_meets_it(
    cluster: Cluster, start_daemon: Callable[..., Daemon]
) -> None:
    a, b = (with_two_nets(start_daemon(host)) for host in cluster)
    nets = {net["net type"]: net["local NI(s)"] for net in a.show("net", "show")["net"]}
    assert nets == {
        "lo": [{"nid": "0@lo", "status": "up"}],
        "tcp": [{"nid": a.host.nid(0), "status": "up", "interfaces": {0: "rail0"}}],
        "tcp1": [{"nid": a.host.nid(1, "tcp1"), "status": "up", "interfaces": {0: "rail1"}}],
    }
    again = a.ctl("net", "add", "--net", "tcp", "--if", "rail0", check=False)
    assert again.returncode
    assert yaml.safe_load(again.stderr)["add"][0]["errno"] == -17
    a.ctl("peer", "add", "--prim_nid", b.host.nid(0), "--nid", b.host.nid(1, "tcp1"))
    (peer,) = a.show("peer", "show")["peer"]
    assert [one["nid"] for one in peer["peer ni"]] == [b.host.nid(0), b.host.nid(1, "tcp1")]
    taken = a.ctl("peer", "add", "--prim_nid", "10.9.9.9@tcp", "--nid", b.host.nid(1, "tcp1"), check=False)
    assert taken.returncode
    assert b.host.nid(1, "tcp1") in taken.stderr
    a.ctl("ping", b.host.nid(0))
    statistics = a.show("stats", "show")["statistics"]
    assert (statistics["send_count"], statistics["recv_count"], statistics["drop_count"]) == (1, 1, 0)
    a.ctl("net", "del", "--net", "tcp1")
    gone = a.ctl("ping", "10.1.0.99@tcp1", check=False)
    assert gone.returncode
    assert "-113" in gone.stdout + gone.stderr
    exported = a.ctl("export", "--backup").stdout
    a.ctl("lnet", "unconfigure")
    assert yaml.safe_load(a.ctl("net", "show", check=False).stderr)["show"][0]["errno"] == -100
    restored = a.socket.with_suffix(".yaml")
    restored.write_text(exported)
    a.ctl("lnet", "configure")
    assert set(yaml.safe_load(exported)) >= {"net", "peer", "global"}


def test_ping_without_daemon_says_why_it_fails(cluster: Cluster, start_daemon: Callable[..., Daemon]) -> None:
    a, b = cluster
    start_daemon(b, "--accept", "secure").ctl("net", "add", "--net", "tcp", "--if", "rail0")
    good = a.run(*ULNET, "ping", b.nid(0))
    assert b.nid(0) in good.stdout
    as_nobody = ["setpriv", "--bounding-set=-net_bind_service", "--"]
    cases = {
        (*as_nobody, *ULNET, "ping", b.nid(0)): ("source port", "accept"),
        (*ULNET, "ping", b.nid(1)): (f"{b.address(1)}:988",),
        (*ULNET, "ping", b.nid(0, "tcp9")): ("tcp9",),
        (*ULNET, "ping", "10.77.0.1@tcp"): ("route",),
    }
    for words, expected in cases.items():
        done = a.run(*words, check=False)
        assert done.returncode == 1, words
        for text in expected:
            assert text in done.stdout, (words, done.stdout)


@pytest.mark.requirement("snd-045", "LND-sock")
def test_a_file_crosses_both_rails(cluster: Cluster, tmp_path: Path) -> None:
    a, b = cluster
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(os.urandom(24 << 20))
    nids = {host.number: [host.nid(0), host.nid(1, "tcp1")] for host in cluster}
    receive = Job("receive", nids[2], nids[1], str(copy), 24 << 20, 988)
    send = Job("send", nids[1], nids[2], str(source), 24 << 20, 988)
    receiver = b.start(*WORKER, json.dumps(asdict(receive)), stdin=subprocess.PIPE, stderr=None)
    assert told_until(receiver, "ready")
    capture = tmp_path / "file.pcap"
    with a.capture(capture, packets="tcp port 988 and greater 100"):
        sender = a.start(*WORKER, json.dumps(asdict(send)), stdin=subprocess.PIPE, stderr=None)
        sent, told = told_until(sender, "done"), told_until(receiver, "done")
        for worker in (sender, receiver):
            worker.communicate()  # no more orders: both have all, so they end
            assert worker.returncode == 0
    assert told[-1]["digest"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert sent[-1]["digest"] == told[-1]["digest"]
    assert copy.read_bytes() == source.read_bytes()
    rails = told[-2]["rails"]
    assert sum(rails.values()) == 24 << 20
    assert rails[b.nid(0)] >= 6 << 20 and rails[b.nid(1, "tcp1")] >= 6 << 20
    assert malformed(capture) == ""
    rows = lnet_packets(
        capture, "ip.src", "ip.dst", "lnet.msg_type", "lnet.payload_length", "lnet.nid.net_interface"
    )
    puts = [row for row in rows if row[2] == "1" and int(row[3]) > MIN_INFO_SIZE]  # no pushes
    for rail in (0, 1):
        on_rail = [row for row in puts if row[:2] == [a.address(rail), b.address(rail)]]
        assert on_rail
        assert {(length, net) for *_, length, net in on_rail} == {(str(1 << 20), f"{rail},{rail}")}


WORKER = [sys.executable, "-m", "ulnet.demo.worker"]


def told_until(worker: Popen, state: str) -> list[dict[str, Any]]:
    """What a worker of the demo tells, up to the first line with that state; fails if it hangs up."""
    assert worker.stdout is not None
    told: list[dict[str, Any]] = []
    while not told or told[-1]["state"] != state:
        line = worker.stdout.readline()
        assert line, f"it ended before it was {state}: {told[-3:]}"
        told.append(json.loads(line))
    return told
