"""`ulnet demo` as a newcomer runs it, and what it must refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = [sys.executable, "-m", "ulnet", "demo"]


def run(*words: str, code: int = 0) -> str:
    done = subprocess.run([*DEMO, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.requirement("tst-010")
def test_a_random_file_over_two_rails() -> None:
    told = run("--size", "40M")
    assert "every rail carried its share" in told
    assert "127.0.1.2@tcp" in told and "127.0.2.2@tcp" in told
    assert told.count("send_count") == 4
    sums = [line.split()[-1] for line in told.splitlines() if line.startswith("sha256")]
    assert len(sums) == 2 and sums[0] == sums[1]


def test_a_file_of_ones_own_over_three_rails(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_bytes(bytes(range(256)) * 4567)
    assert "every rail carried its share" in run("--file", str(path), "--rails", "3")
    assert path.stat().st_size == 256 * 4567


@pytest.mark.parametrize("size", [0, 1, 4097])
def test_tiny_files_arrive_too(tmp_path: Path, size: int) -> None:
    path = tmp_path / "tiny"
    path.write_bytes(bytes(size))
    assert "Every byte arrived" in run("--file", str(path))


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--file", "/nonexistent"), 1, "/nonexistent is not a file"),
        (("--size", "12Q"), 2, "no size"),
        (("--rails", "0"), 2, "1 to 16 rails"),
        (("--size", "9999999G"), 1, "free and the demo needs"),
    ],
)
def test_bad_words_are_refused(words: tuple[str, ...], code: int, text: str) -> None:
    assert text in run(*words, code=code)
