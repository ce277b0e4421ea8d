"""The tutorial's commands and programs run as they stand, and show what the page says that they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.shared import ROOT
from support.walks import CUT, TCP1, walk

PAGE = (ROOT / "docs/tutorial.md").read_text()
WAITS = {
    CUT: f"{CUT}for side in left right; do {TCP1 % 'down'}; done\n",
    "sleep 2\n": f"for side in left right; do {TCP1 % 'up'}; done\n",
    "sleep 1\ncat > /tmp/receiver.py": (
        "while ip netns pids left | grep -q .; do sleep 0.1; done\n"
        "while ip netns pids right | grep -q .; do sleep 0.1; done\n"
        "cat > /tmp/receiver.py"
    ),
    "sleep 1\nip netns exec left": (
        "until ip netns exec right ss -Hltn | grep -q :988; do sleep 0.1; done\nip netns exec left"
    ),
}


@pytest.mark.requirement("doc-005")
def test_the_tutorial_works(namespaces_work: None, tmp_path: Path) -> None:
    said = walk(PAGE, WAITS, tmp_path)
    assert said.count("primary nid: 10.0.0.2@tcp") == 3, said  # discover, peer show, ping over what is left
    assert "status: down" in said, "the rail that was cut"
    assert re.search(r"tcp1 +no +link down", said), "explain leaves the net of that rail out"
    assert "received 1000 messages, the last from 10.0.0.1@tcp" in said, said
    shares = re.findall(r"10\.[01]\.0\.1@tcp1? sent (\d+) KiB", said)
    assert len(shares) == 2, said
    assert all(int(share) > 6400 for share in shares), "both rails carried a fair share of 64,000"
