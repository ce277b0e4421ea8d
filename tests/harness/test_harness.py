"""The test harness itself: marks, skips and leaks are caught (each case is a small run of pytest)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.shared import ROOT

CONFIG = """
[pytest]
pythonpath = {root}/src {root}/tests {root}/scripts
addopts = --import-mode=importlib --strict-markers -p no:cacheprovider -p no:hypothesispytest -p no:xdist
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
markers =
    requirement(*ids): x
    leaks(reason): x
"""
CONFTEST = """
pytest_plugins = ["support.leaks", "support.requirements", "support.skips"]

def pytest_configure():
    from support import leaks
    leaks._PATIENCE = 1.0  # what leaks here never ends
"""


def run_pytest(folder: Path, test: str, ci: bool = False) -> tuple[int, str]:
    """Exit status and output of a run over one test module."""
    (folder / "pytest.ini").write_text(CONFIG.format(root=ROOT))
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_case.py").write_text(test)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CI"))}
    if ci:
        environment["CI"] = "true"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(folder)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["snd-046", "SND-045", ""])
def test_a_mark_must_name_a_requirement(tmp_path: Path, name: str) -> None:
    test = f"import pytest\n@pytest.mark.requirement({name!r})\ndef test_it(): pass\n"
    status, output = run_pytest(tmp_path, test)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "which is no requirement" in output
    assert repr(name) in output


def test_a_mark_that_names_one_is_well(tmp_path: Path) -> None:
    test = 'import pytest\n@pytest.mark.requirement("snd-045", "LND-sock")\ndef test_it(): pass\n'
    status, output = run_pytest(tmp_path, test)
    assert status == 0, output


SKIPS = {
    "in the test": 'import pytest\ndef test_it(): pytest.skip("no tool")\n',
    "by mark": 'import pytest\n@pytest.mark.skip(reason="no tool")\ndef test_it(): pass\n',
    "whole module": 'import pytest\npytest.skip("no tool", allow_module_level=True)\n',
    "in a fixture": (
        'import pytest\n@pytest.fixture\ndef tool(): pytest.skip("no tool")\ndef test_it(tool): pass\n'
    ),
}


@pytest.mark.parametrize("case", SKIPS)
def test_a_skip_is_named_with_its_reason(tmp_path: Path, case: str) -> None:
    status, output = run_pytest(tmp_path, SKIPS[case])
    assert status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "1 NOT RUN" in output
    assert "NOT RUN test_case.py" in output
    assert "no tool" in output


@pytest.mark.parametrize("case", SKIPS)
def test_in_ci_a_skip_is_a_failure(tmp_path: Path, case: str) -> None:
    status, output = run_pytest(tmp_path, SKIPS[case], ci=True)
    assert status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "in CI every test must run: no tool" in output


def test_in_ci_a_shallow_clone_will_do(tmp_path: Path) -> None:
    test = "import pytest\nfrom support.shared import NO_HISTORY\ndef test_it(): pytest.skip(NO_HISTORY)\n"
    status, output = run_pytest(tmp_path, test, ci=True)
    assert status == 0, output
    assert "NOT RUN test_case.py::test_it: the history of this checkout" in output


def test_in_ci_only_the_folder_beside_the_checkout_may_be_missing(tmp_path: Path) -> None:
    missing = "import pytest\nfrom support import shared\ndef test_it(tmp_path, monkeypatch):\n"
    missing += (
        "    monkeypatch.setattr(shared, 'SHARED', tmp_path{})\n    shared.shared_path('spec/none.md')\n"
    )
    status, output = run_pytest(tmp_path, missing.format("/ 'nowhere'"), ci=True)
    assert status == 0, output
    assert "NOT RUN test_case.py::test_it: the folder ../shared is not beside this checkout" in output
    status, output = run_pytest(tmp_path, missing.format(""), ci=True)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "in CI every test must run: ../shared has no spec/none.md" in output


LEAKS = {
    "descriptor": "import os\ndef test_it(): os.dup(1)\n",
    "thread": (
        "import threading\n"
        "def test_it(): threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    ),
    "task": (
        "import asyncio\n"
        "kept = []\n"
        "async def test_it(): kept.append(asyncio.create_task(asyncio.sleep(99)))\n"
    ),
}


@pytest.mark.parametrize("case", LEAKS)
def test_what_a_test_leaves_behind_is_an_error(tmp_path: Path, case: str) -> None:
    status, output = run_pytest(tmp_path, LEAKS[case])
    assert status == pytest.ExitCode.TESTS_FAILED, output
    assert "left" in output
    assert case in output


def test_a_clean_async_test_leaves_nothing(tmp_path: Path) -> None:
    test = "import asyncio\nasync def test_it():\n    await asyncio.create_task(asyncio.sleep(0))\n"
    status, output = run_pytest(tmp_path, test)
    assert status == 0, output
