"""docs/benchmarks.md is kept part by part: what a run did not measure stays, and tells what it is of."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import aims
import hotspots
import page
import plot
import private_net
import report
import run
import sections
from page import Part
from players import Competitor
from runner import Run
from support.shared import ROOT

PAGE = ROOT / "docs/benchmarks.md"
WHOLE = [
    Part("crowd", "## Many peers\n\n| 1 |\n", "### Many peers\n\nabc.\n\n| many peers | 0.10× |\n"),
    Part("loopback", "## Over loopback\n\n| 2 |\n", "### Over loopback\n\nabc.\n\n| 1 MiB | 0.84× |\n"),
    Part("start", "## Starting\n\n| 3 |\n"),
]


def texts(path: Path) -> dict[str, str]:
    """What the page has of each part, and of its aims."""
    text = path.read_text()
    names = [name for part in page.NAMES for name in (part, f"{part}, its aims")]
    return {name: found for name in names if (found := page._find(text, name))}


def test_a_part_measured_anew_replaces_its_own_text_and_aims_only(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    page.write(path, WHOLE)
    before, first = texts(path), path.read_text()
    assert list(before) == ["loopback", "loopback, its aims", "crowd", "crowd, its aims", "start"]
    page.write(path, [Part("crowd", "## Many peers\n\n| 9 |\n", "### Many peers\n\ndef.\n\n| now 0.9× |\n")])
    after = texts(path)
    assert {name for name in before if before[name] != after[name]} == {"crowd", "crowd, its aims"}
    assert "| 9 |" in after["crowd"] and "def.\n\n| now 0.9× |" in after["crowd, its aims"]
    page.write(path, WHOLE[:1])
    assert path.read_text() == first


def test_what_was_never_measured_is_named(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    page.write(path, WHOLE[1:])
    assert (
        "\nNever measured here: choice, calls, crowd, selftest, dask, secured, access, simulator.\n"
        in path.read_text()
    )
    page.write(path, [Part(name, "## X\n", "### X\n") for name in aims.PARTS])
    assert "Never measured" not in path.read_text()


def test_the_projects_own_page_has_nothing_that_a_run_would_drop(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(PAGE.read_text())
    page.write(copy, [])
    assert copy.read_text() == PAGE.read_text(), "docs/benchmarks.md is written by `make bench` alone"


def test_every_part_of_the_projects_own_page_tells_what_it_is_of() -> None:
    found = texts(PAGE)
    assert set(page.NAMES) | {f"{name}, its aims" for name in aims.PARTS} == set(found)
    for name, text in found.items():
        if name != "loopback":  # that one has a list of all it depends on
            assert re.search(r"^ulnet \S+, commit \S+, \d{4}-\d\d-\d\d; .* CPUs[.;]", text, re.MULTILINE), (
                name
            )


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A page of a former run; measuring takes no time and finds the same each time."""

    def measure(works: list[Any], players: list[Any], *_: object) -> run.Runs:
        return {
            work.name: {player.name: [Run(64, 0.5, 0.1, 70, 90)] for player in players if player.takes(work)}
            for work in works
        }

    def section(name: str, *_: object) -> sections.Section:
        found = sections.Section(name, name.title(), [f"New: {name}."], origin="a new run")
        found.figures = {"10 nodes": 5.0} if name == "simulator" else {}
        return found

    path = tmp_path / "docs/benchmarks.md"
    path.parent.mkdir()
    page.write(path, [Part(name, f"Old: {name}.", f"Old: {name}.") for name in page.NAMES])
    monkeypatch.setattr(run, "PAGE", path)
    monkeypatch.setattr(private_net, "enter", lambda: None)
    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(hotspots, "hotspots", lambda work: {})
    monkeypatch.setattr(plot, "draw", lambda summaries, picture, caption: picture.write_text("<svg/>"))
    monkeypatch.setattr(sections, "measure", section)
    monkeypatch.setattr(Competitor, "missing", lambda player: None)
    return path


def bench(monkeypatch: pytest.MonkeyPatch, path: Path, *words: str) -> set[str]:
    """`make bench` with these words: which texts of the page it wrote anew."""
    before = texts(path)
    monkeypatch.setattr("sys.argv", ["run.py", *words, "--json", str(path.parent / "runs.json")])
    assert run.main() == 0
    after = texts(path)
    return {name for name in before if before[name] != after.get(name)}


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["--only", "simulator"], {"simulator", "simulator, its aims"}),
        (["--only", "loopback"], {"loopback", "loopback, its aims"}),
        (
            ["--only", "crowd", "choice"],
            {f"{name}{of}" for name in ("crowd", "choice") for of in ("", ", its aims")},
        ),
        ([], {*page.NAMES, *(f"{name}, its aims" for name in page.NAMES)}),
        (["--only", "c", "zmq_push"], set()),
        (["--only", "c", "--work", "small-ack"], set()),
        (["--work", "small-ack"], set()),
        (["--work", "small-ack", "--only", "loopback", "crowd"], set()),
        (["--quick"], set()),
        (["--quick", "--only", "simulator"], set()),
    ],
)
def test_a_run_writes_what_it_measured_wholly(
    words: list[str], written: set[str], pretended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = pretended.read_text()
    assert bench(monkeypatch, pretended, *words) == written
    assert (pretended.read_text() == former) == (not written)
    assert pretended.with_suffix(".svg").exists() == ("loopback" in written)


def test_the_aims_of_a_run_tell_what_they_are_of(pretended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "machine", lambda: {"ulnet": "9.9, commit abc", "CPU": "a pocket calculator"})
    bench(monkeypatch, pretended, "--only", "loopback", "simulator", "start")
    found = texts(pretended)
    assert re.search(
        r"\nulnet 9\.9, commit abc, \d{4}-\d\d-\d\d; a pocket calculator\.\n", found["loopback, its aims"]
    )
    assert (
        "| 1 MiB one-way | rate, compiled | C program | ≥ 0.9× | 1.00× | reached |"
        in found["loopback, its aims"]
    )
    assert "\na new run.\n" in found["simulator, its aims"]
    assert (
        "| simulator, 10 nodes | events/s, compiled | itself before | ≥ 4× | 5× | reached |"
        in found["simulator, its aims"]
    )
    assert "New: start." in found["start"]
    assert "start, its aims" not in found, "nothing was aimed at"
    assert "Old: crowd." in found["crowd, its aims"]


def test_the_page_itself_makes_no_code_dirty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        words = ("git", "-C", str(tmp_path), *who, *words)
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    for name in ("docs/benchmarks.md", "docs/benchmarks.svg", "docs/other.md", "src/code.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old\n")
    assert report._commit(tmp_path / "src") == "", "no repository"
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    commit = f", commit {git('rev-parse', '--short', 'HEAD')}"
    assert report._commit(tmp_path / "src") == commit
    for suffix in ("md", "svg"):
        (tmp_path / f"docs/benchmarks.{suffix}").write_text("new\n")
    assert report._commit(tmp_path / "src") == commit, "a part was measured before this one"
    (tmp_path / "docs/other.md").write_text("new\n")
    assert report._commit(tmp_path / "src") == f"{commit}-dirty"
