"""README tells the truth: its walk-through and its program are run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.shared import ROOT
from support.walks import CUT, PATIENCE, TCP1, blocks, environment, walk

README = (ROOT / "README.md").read_text()

# Where a reader waits a moment, a busy machine may need longer: what the next command needs is waited for.
WAITS = {
    CUT: f"{CUT}for side in left right; do {TCP1 % 'down'}; done\n",
    "sleep 2\n": (
        f"for side in left right; do {TCP1 % 'up'}; done\nuntil [ -s /tmp/rail1.pcap ]; do sleep 0.1; done\n"
    ),
    "sleep 1\nkill $!\n": "until ulnet decode /tmp/rail1.pcap | grep -q REPLY; do sleep 0.1; done\nkill $!\n",
    "sleep 1\nip netns exec": "while ip netns pids left | grep -q .; do sleep 0.1; done\nip netns exec",
}


def test_the_walk_through_works(namespaces_work: None, tmp_path: Path) -> None:
    if not shutil.which("tcpdump"):
        pytest.skip("tcpdump is not installed (Debian: apt-get install tcpdump)")
    said = walk(README, WAITS, tmp_path)
    # discover, peer show, lnetctl ping with a rail cut and for the capture, then ulnet ping over each rail
    assert said.count("primary nid: 10.0.0.2@tcp") == 6, said
    assert "status: down" in said, "the rail that was cut"
    assert re.search(r"tcp1 +no +link down", said), "explain leaves the net of that rail out"
    assert "net type: tcp1" in said
    assert re.search(r"GET +10\.1\.0\.1@tcp1 → 10\.1\.0\.2@tcp1 +ping", said), "the ping's GET, decoded"
    assert re.search(r"REPLY +10\.1\.0\.2@tcp1 → 10\.1\.0\.1@tcp1 +to ping", said), "and its REPLY"


@pytest.mark.parametrize("program", blocks(README, "python"))
def test_the_program_runs(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "5 bytes acknowledged: b'hello' from 127.0.0.2@tcp",
        "the server has 127.0.0.1@tcp 127.0.1.1@tcp1",
    ]


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)", page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_two_commands_are_make_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"^    make (\S+)", README, re.MULTILINE)
    assert commands == ["demo", "test"]
    assert all(re.search(rf"^{command}:", makefile, re.MULTILINE) for command in commands)
