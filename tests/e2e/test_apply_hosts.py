"""`ulnet plan`, `ulnet apply` and `lnetctl import --apply` where lnetd runs in another network namespace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.daemon import PATIENCE, Daemon, environment
from support.netns import Cluster

ULNET = [sys.executable, "-m", "ulnet"]
LNETCTL = [sys.executable, "-m", "ulnet.cli.lnetctl"]
FILE = """\
net:
    - {net: tcp, intf: rail0}
    - {net: tcp1, intf: rail1}
peer: [{primary nid: 10.0.0.2@tcp, peer ni: [{nid: 10.1.0.2@tcp1}]}]
"""


def run(words: Sequence[str]) -> tuple[int, str, str]:
    done = subprocess.run(
        words, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def left(two_hosts: Cluster, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "left.sock", before=two_hosts.hosts[0].words())
    yield daemon
    daemon.end()


def test_the_interfaces_are_those_of_the_daemon(left: Daemon, two_hosts: Cluster, tmp_path: Path) -> None:
    """From here, where there is no rail0, and from a host where rail0 has another address."""
    file = tmp_path / "lnet.yaml"
    file.write_text(FILE)
    words = ["--socket", str(left.path), str(file)]
    assert left.lnetctl("import", str(file)).code == 0
    before = left.lnetctl("export", "--backup").out
    assert "conns_per_peer: 2" in before  # what suits a link of 10 Gb/s
    callers: list[list[str]] = [[], two_hosts.hosts[1].words()]
    for caller in callers:
        assert run([*caller, *ULNET, "plan", *words]) == (0, "nothing to change\n", "")
        assert run([*caller, *ULNET, "apply", *words]) == (0, "nothing to change\n", "")
        applied = run([*caller, *LNETCTL, *words[:2], "import", "--apply", *words[2:]])
        assert applied == (0, "apply: nothing to change\n", "")
    for caller, tos in zip(callers, (8, 16), strict=True):
        file.write_text(FILE.replace("intf: rail1", f"intf: rail1, lnd tunables: {{tos: {tos}}}"))
        was = -1 if tos == 8 else 8
        line = f"~ net tcp1 NI rail1: tos {was} -> {tos}\n"
        assert run([*caller, *ULNET, "plan", *words]) == (1, line, "")
        assert run([*caller, *ULNET, "apply", *words]) == (0, line, "")
    file.write_text(FILE.replace("rail1", "rail7"))
    for caller in callers:
        status, text, _ = run([*caller, *ULNET, "apply", *words])
        assert status == 3
        assert "no interface is named 'rail7': this host has" in text and "rail1" in text
    more = "    - {net: tcp2, nid: 10.1.0.1@tcp2}\n"
    file.write_text(FILE.replace("peer:", f"{more}peer:"))
    status, text, _ = run([*callers[1], *ULNET, "plan", "--import", *words])
    assert status == 3  # what is there already, as with import itself
    assert "+ net tcp2 NI rail1:" in text
    assert left.lnetctl("export", "--backup").out == before.replace("tos: -1", "tos: 16").replace(
        "tos: 16", "tos: -1", 1
    )
    log = left.stop().err
    assert "net.del" not in log
