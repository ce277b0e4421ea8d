"""The program of docs/dask.md runs as it stands; the page names all settings that there are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from support.ports import free_port
from support.shared import ROOT
from ulnet.dask.settings import Settings

PAGE = (ROOT / "docs/dask.md").read_text()


@pytest.mark.requirement("ULP")
def test_the_program_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "cluster.py"
    file.write_text(program)
    environment = {
        **os.environ,
        "DASK_DISTRIBUTED__COMM__ULNET__ACCEPT_PORT": str(free_port()),
        "DASK_TEMPORARY_DIRECTORY": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["sum: 8000000", "2 workers"]


def test_each_setting_is_told() -> None:
    told = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert told == [field.name.replace("_", "-") for field in fields(Settings)]
