"""Each program of examples/ runs as it stands, but for the port, on which others may listen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.ports import free_port
from support.shared import ROOT

PRINTED = {
    "fetch": ["11 bytes: page 004711", "LNetError 2"],
    "handlers": ["20000 acknowledged, 20000 arrived"],
    "inbox": ["1000 messages, the last: message 999"],
    "peer_gone": ["LNetConnectionError", "127.0.0.1@tcp is gone", "127.0.0.1@tcp is back"],
    "two_rails": ["64 MiB sent", "each rail carried some"],
    "why": ["case: Multi-Rail peer: any of its NIDs, from any NI", "same net: True"],
    "with_lnetctl": ["net:", "-     net type: tcp", "local NI(s):", "-     nid: 127.0.0.1@tcp", "status: up"],
}
PORT = "accept_port=9880"


@pytest.mark.requirement("doc-005")
def test_each_example_is_tried() -> None:
    assert sorted(PRINTED) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.requirement("doc-005")
@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    program = (ROOT / "examples" / f"{name}.py").read_text()
    assert program.count(PORT) == 1
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program.replace(PORT, f"accept_port={free_port()}")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = [line.strip() for line in done.stdout.splitlines()]
    assert printed[: len(PRINTED[name])] == PRINTED[name]
