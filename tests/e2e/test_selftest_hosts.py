"""Selftest between two hosts with two rails: bulk both ways with full checks, while a rail is cut."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from support.netns import Cluster, Host, Popen, stop
from support.shared import ROOT

pytestmark = pytest.mark.requirement("LST")

PATIENCE = 150.0  # seconds; a request that was lost without a trace is given up after 64


class Nodes:
    """An lnetd with selftest on each host; `lst` runs on the first."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.processes: list[Popen] = []
        for host in cluster:
            self.start(host)

    def log(self, host: Host) -> Path:
        return self.folder / f"{host.number}.log"

    def socket(self, host: Host) -> Path:
        return self.folder / f"{host.number}" / "lnetd.sock"

    def start(self, host: Host) -> None:
        with self.log(host).open("w") as log:
            words: list[str | Path] = [
                sys.executable,
                "-m",
                "ulnet.cli.lnetd",
                "--selftest",
                "--socket",
                self.socket(host),
            ]
            self.processes.append(host.start(*words, stderr=log.fileno()))
        until(lambda: "ready" in self.log(host).read_text())
        nets = {0: "tcp", 1: "tcp1"}
        for rail in range(self.cluster.rails):
            self.lnetctl(host, "net", "add", "--net", nets[rail], "--if", host.interface(rail))
        self.lnetctl(host, "set", "transaction_timeout", "10")

    def lnetctl(self, host: Host, *words: str) -> str:
        program: list[str | Path] = [sys.executable, "-m", "ulnet.cli.lnetctl", "--socket", self.socket(host)]
        return host.run(*program, *words).stdout

    def lst(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        first = self.cluster.hosts[0]
        program = ["env", f"ULNET_SOCKET={self.socket(first)}", "LST_SESSION=7"]
        return first.run(*program, sys.executable, "-m", "ulnet.cli.lst", *words, check=check, timeout=180)

    def moved(self, group: str) -> float:
        """How much bulk the nodes of a group moved, in MiB/s."""
        shown = self.lst("stat", "--rpc", "--bw", "--avg", "--count", "1", "--delay", "1", group).stdout
        return sum(float(number) for number in re.findall(r"Avg: ([\d.]+)", shown))

    def close(self) -> None:
        for process in self.processes:
            stop(process)


def until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < give_up, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture
def nodes(make_cluster: Callable[..., Cluster], tmp_path: Path) -> Iterator[Nodes]:
    found = Nodes(make_cluster(2, 2, "200mbit"), tmp_path)
    yield found
    found.close()


def begin(nodes: Nodes) -> None:
    one, other = nodes.cluster.hosts
    nodes.lst("new_session", "rails")
    nodes.lst("add_group", "c", one.nid())
    nodes.lst("add_group", "s", other.nid())
    nodes.lst("add_batch", "b")
    for direction in ("write", "read"):
        words = (
            "--keep-going",
            "--concurrency",
            "8",
            "--from",
            "c",
            "--to",
            "s",
            "brw",
            direction,
            "size=128k",
            "check=full",
        )
        nodes.lst("add_test", "--batch", "b", *words)
    nodes.lst("run", "b")


def rail_bytes(host: Host, rail: int) -> int:
    return int(host.run("cat", f"/sys/class/net/{host.interface(rail)}/statistics/tx_bytes").stdout)


def test_a_sniffer_finds_both_rails_busy_and_nothing_malformed(
    nodes: Nodes, tmp_path: Path, tshark: Callable[..., str]
) -> None:
    host = nodes.cluster.hosts[0]
    capture = tmp_path / "lst.pcap"
    before = [rail_bytes(host, rail) for rail in (0, 1)]
    with host.capture(capture, packets="tcp port 988"):
        begin(nodes)
        until(lambda: all(rail_bytes(host, rail) > before[rail] + 4_000_000 for rail in (0, 1)))
        nodes.lst("stop", "b")
        nodes.lst("end_session")
    # Its dissector calls every PUT to portals of selftest malformed, those of kernel nodes, too.
    # Nor is a capture's order of segments always that in which they were sent.
    wrong = "(_ws.malformed and not _ws.malformed.reassembly) or lnet.bad_buflen or lnet.bad_type"
    opaque = "lnet.msg_type == 1 and lnet.payload_length > 0"
    in_order = ("-o", "tcp.reassemble_out_of_order:TRUE")
    assert tshark(capture, *in_order, "-Y", f"lnet and ({wrong}) and not ({opaque})") == ""
    assert not [one for one in decoded(capture) if "error" in one or one.get("status")]
    portals = tshark(capture, "-Y", "lnet", "-T", "fields", "-e", "lnet.ptl_index").split()
    seen = {int(value, 0) for line in portals for value in line.split(",")}
    assert {50, 51, 52} <= seen


def decoded(capture: Path) -> list[dict[str, Any]]:
    """The messages of selftest in a capture."""
    words = [sys.executable, "-m", "ulnet", "decode", "--json", str(capture)]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    found: list[dict[str, Any]] = [json.loads(line).get("selftest") for line in lines]
    told = [one for one in found if one]
    assert {one["service"] for one in told if "service" in one} >= {"MAKE_SESSION", "TEST", "BATCH", "BRW"}
    return told


@pytest.mark.parametrize("number", [0, 1], ids=["client's", "server's"])
def test_a_rail_is_cut_and_mended_under_bulk(nodes: Nodes, number: int) -> None:
    begin(nodes)
    cut = nodes.cluster.hosts[number]
    until(lambda: nodes.moved("c") > 0)
    nodes.cluster.set_cable(cut, 1, plugged=False)
    until(lambda: nodes.moved("c") > 0)  # over the other rail
    nodes.cluster.set_cable(cut, 1, plugged=True)
    before = rail_bytes(cut, 1)
    until(lambda: nodes.moved("c") > 0)
    until(lambda: rail_bytes(cut, 1) > before + 1_000_000)
    errors = nodes.lst("show_error", "c", "s").stdout
    stopped = nodes.lst("stop", "--force", "b")
    assert stopped.stdout.endswith("Batch is stopped\n")
    nodes.lst("end_session")
    for host in nodes.cluster:
        assert "corrupted" not in nodes.log(host).read_text(), errors
        assert "Traceback" not in nodes.log(host).read_text()
    assert "Total 0 error nodes in s" in errors or "0 brw errors" in errors.split("s:\n")[1], errors


def test_the_page_from_nothing_to_a_matrix(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """What docs/selftest.md tells a newcomer to type, on three hosts without lnetd, in a shorter time."""
    page = (ROOT / "docs/selftest.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    serve, session, run = [text for kind, text in blocks if not kind][:3]
    (plan,) = [text for kind, text in blocks if kind == "yaml"]
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool, module in (("ulnet", "ulnet"), ("lst", "ulnet.cli.lst")):
        (tools / tool).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (tools / tool).chmod(0o755)

    def shell(host: Host, text: str) -> list[str]:
        variables = [f"PATH={tools}:{os.environ['PATH']}", f"ULNET_SOCKET={tmp_path / str(host.number)}/s"]
        return ["env", "-C", str(tmp_path), *variables, "sh", "-ec", text]

    cluster = make_cluster(3, 1, "200mbit")
    for host in cluster:
        process = host.start(*shell(host, "exec " + serve.replace("eth0", "rail0").strip()))
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    first = cluster.hosts[0]
    shown = first.run(*shell(first, session.replace("--count 3", "--count 1 --delay 1")), timeout=180).stdout
    assert "[LNet Bandwidth of servers]" in shown and "Total 0 error nodes in servers" in shown
    assert shown.endswith("Batch is stopped\n")

    for words, shorter in (
        ("seconds: 10", "seconds: 1"),
        ("seconds: 2\n", "seconds: 0.5\n"),
        ("500", "0.01"),
    ):
        assert words in plan
        plan = plan.replace(words, shorter)
    (tmp_path / "plan.yaml").write_text(plan.replace("slowest: 0.5", "slowest: 0.001"))
    command, compare = run.splitlines()
    done = first.run(*shell(first, command), timeout=180).stdout
    cells = json.loads((tmp_path / "today.json").read_text())["tests"][1]["cells"]
    assert {(cell["source"][7], cell["sink"][7]) for cell in cells} == set(permutations("123", 2)), done
    assert all(cell["bandwidth"] > 0 and not cell["errors"] for cell in cells), done
    assert "10.0.0.1@tcp, rail 10.0.0.1@tcp: " in done and (tmp_path / "today.html").exists()
    (tmp_path / "yesterday.json").write_text((tmp_path / "today.json").read_text())
    assert "WORSE" not in first.run(*shell(first, compare)).stdout
