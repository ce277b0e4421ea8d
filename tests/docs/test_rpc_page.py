"""The programs of docs/rpc.md run as they stand, but for the port, on which others may listen."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from support.ports import free_port
from support.shared import ROOT

PAGE = (ROOT / "docs/rpc.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = [
    ["8388608 bytes, as they were: True", "errno 2, executed: yes"],
    ["67108864 bytes, all right: True"],
    ["50 peers heard 1000 notifications"],
    ["answers as 127.0.8.1@tcp", "3145728 bytes", "4 titles"],
]


PORT = "accept_port=9881"


@pytest.mark.requirement("ULP")
@pytest.mark.parametrize(
    ("program", "printed"),
    list(zip(PROGRAMS, PRINTED, strict=True)),
    ids=["values", "file", "news", "threads"],
)
def test_a_program_runs(program: str, printed: list[str]) -> None:
    assert program.count(PORT) == 1
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program.replace(PORT, f"accept_port={free_port()}")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    of_a_busy_machine = ("resending over ", "path ")  # which path is preferred while nothing goes on
    # What it had under way, where its peer has told before that it has that NID no more.
    of_the_rail_that_goes = ("peer NI 127.0.7.1@tcp1: message failed", "peer 127.0.7.1@tcp1: all paths ")
    expected = of_a_busy_machine + of_the_rail_that_goes
    log = [line for line in done.stderr.splitlines() if not line.startswith(expected)]
    assert log == []
    assert done.stdout.splitlines() == printed
