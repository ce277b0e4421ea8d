"""`--part quick` and `--part slow` divide all tests; the list of slow files names files that are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.order import SLOW
from support.shared import ROOT

CONFTEST = 'pytest_plugins = ["support.order"]\n'
TEST = "def test_it() -> None:\n    pass\n"


def test_slow_files_are_there() -> None:
    assert [name for name in SLOW if not list((ROOT / "tests").rglob(f"{name}.py"))] == []
    assert len(set(SLOW)) == len(SLOW)


@pytest.mark.parametrize(
    ("part", "run"),
    [
        ("quick", ["core/test_any.py"]),
        ("slow", ["sim/test_sim_random.py"]),
        ("all", ["sim/test_sim_random.py", "core/test_any.py"]),
    ],
)
def test_a_part_is_run(part: str, run: list[str], tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {ROOT}/tests\n"
        "addopts = --import-mode=importlib -p no:cacheprovider -p no:xdist\n"
    )
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for folder, name in (("core", "test_any"), ("sim", "test_sim_random")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "--part", part],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line] == run, done.stderr
