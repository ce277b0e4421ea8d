"""The script that plants mistakes: they fit the sources; what tests find is told from what they do not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import mutants
from mutants import ROOT, Fate, Mutant, read, run, shown_by, time_tests, try_one
from requirements_page import read_promises

NUMBERS = "def double(number: int) -> int:\n    return 2 * number\n"
CHECK = """
import time
from ulnet.numbers import double
def test_double(): assert double(3) == 6
def test_zero(): assert double(0) == 0
def test_hangs(): time.sleep(60 * (double(1) > 2))
"""
OTHERS = """
import pytest
def test_fails(): assert False
@pytest.mark.skip
def test_skips(): pass
@pytest.mark.parametrize("number", [1, 2])
def test_has_cases(number): pass
"""
DAEMON = """
import subprocess
def test_leaves_a_daemon():
    open("daemon", "w").write(str(subprocess.Popen(["sleep", "600"]).pid))
"""
TESTS = "tests/test_numbers.py"
WRONG = Mutant("X", "numbers.py", "2 * number", "3 * number")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with one module and its tests."""
    package = tmp_path / "src/ulnet"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "numbers.py").write_text(NUMBERS)
    (tmp_path / "tests").mkdir()
    (tmp_path / TESTS).write_text(CHECK)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def is_running(number: int) -> bool:
    """Whether a process of that number is there, and no zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except OSError:
        return False


def test_each_mistake_has_its_place_and_a_requirement() -> None:
    known = {promise.id for promise in read_promises()}
    for mutant in read():
        assert mutant.requirement in known
        assert (ROOT / "src/ulnet" / mutant.file).read_text().count(mutant.old) == 1, mutant


def test_every_row_that_is_shown_has_a_mistake() -> None:
    planted = {mutant.requirement for mutant in read()}
    assert [name for name, tests in shown_by().items() if tests and name not in planted] == []


def test_what_the_tests_notice_is_found_and_the_sources_stay(root: Path) -> None:
    found_by = f"{TESTS}::test_double"
    assert try_one(WRONG, [f"{TESTS}::test_zero", found_by], root=root) == (Fate.FOUND, found_by)
    assert try_one(WRONG, [f"{TESTS}::test_zero"], root=root) == (Fate.SURVIVED, "")
    assert try_one(WRONG, [f"{TESTS}::test_none_such"], root=root) == (Fate.BROKEN, "")
    assert (root / "src/ulnet/numbers.py").read_text() == NUMBERS


def test_tests_that_do_not_end_have_found_it(root: Path) -> None:
    assert try_one(WRONG, [f"{TESTS}::test_hangs"], seconds=5, root=root) == (Fate.TIMED_OUT, "")


def test_what_tests_leave_behind_is_ended(root: Path) -> None:
    (root / "tests/test_daemon.py").write_text(DAEMON)
    assert try_one(WRONG, ["tests/test_daemon.py"], root=root)[0] is Fate.SURVIVED
    number = int((root / "daemon").read_text())
    while is_running(number):
        time.sleep(0.01)


def test_tests_are_timed_without_a_mistake(root: Path) -> None:
    (root / "tests/test_others.py").write_text(OTHERS)
    module, kinds = "tests/test_others.py", ["fails", "skips", "has_cases", "none_such"]
    fails, skips, has_cases, none = (f"{module}::test_{kind}" for kind in kinds)
    times = time_tests([TESTS, fails, skips, has_cases], 60, root)
    assert (times[fails], times[skips]) == (mutants.FAILED, mutants.NOT_RUN)
    assert all(isinstance(times[test], float) for test in (TESTS, has_cases))
    assert time_tests([none], 60, root) == {none: mutants.NOT_RUN}


def test_text_that_is_not_there_once_is_refused(root: Path) -> None:
    for old, count in (("4 * number", 0), ("number", 2)):
        with pytest.raises(ValueError, match=f"{count} times"):
            try_one(Mutant("X", "numbers.py", old, ""), [TESTS], root=root)
    with pytest.raises(ValueError, match="0 times"):
        try_one(Mutant("X", "elsewhere.py", "x", ""), [TESTS], root=root)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ('requirement = "X"', "has texts by the names"),
        ('requirement = "X"\nfile = "a"\nold = "b"\nnew = 3', "has texts by the names"),
        ('requirement = "X"\nfile = "a"\nold = "b"\nnew = "b"', "must differ"),
        ('requirement = "X"\nfile = "a"\nold = ""\nnew = "b"', "must differ"),
    ],
)
def test_items_that_make_no_sense_are_refused(tmp_path: Path, item: str, words: str) -> None:
    path = tmp_path / "list.toml"
    path.write_text(f"[[mutant]]\n{item}\n")
    with pytest.raises(ValueError, match=words):
        read(path)


def test_survivors_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fates = {"a.py": Fate.FOUND, "b.py": Fate.SURVIVED, "c.py": Fate.TIMED_OUT}
    orders = []

    def fate(mutant: Mutant, tests: list[str], seconds: float) -> tuple[Fate, str]:
        orders.append(tests)
        return fates[mutant.file], tests[0] if mutant.file == "a.py" else ""

    monkeypatch.setattr(mutants, "try_one", fate)
    of = {"X": ["slow", "quick", "skipped"], "Y": ["quick", "fails anyway"], "Z": []}
    planted = [Mutant(name, file, "old", "new") for name in "XYZ" for file in fates]
    left = run(
        planted, of, {"slow": 9.0, "quick": 0.1, "skipped": mutants.NOT_RUN, "fails anyway": mutants.FAILED}
    )
    assert [line.split(": ", 3)[:2] for line in left] == [
        ["X", "b.py"],
        *(["Y", file] for file in fates),
        *(["Z", file] for file in fates),
    ]
    assert orders == [["quick", "slow"]] * 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9 and lines[0].endswith("found by quick")


def test_times_that_were_kept_are_not_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def take(tests: list[str], seconds: float) -> mutants.Times:
        asked.append(tests)
        return dict.fromkeys(tests, 1.0)

    monkeypatch.setattr(mutants, "time_tests", take)
    kept = tmp_path / "times.json"
    for name in ("X", "X", "Y"):
        times = mutants.times_of([Mutant(name, "", "", "")], {"X": ["a", "b"], "Y": ["b", "c"]}, 1.0, kept)
    assert asked == [["a", "b"], ["c"]] and times == dict.fromkeys("abc", 1.0)


def test_what_nobody_planted_anything_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["no-such"]) == 2
    assert "no-such" in capsys.readouterr().err


def test_the_tests_of_a_requirement_are_those_that_are_marked() -> None:
    assert "tests/control/test_policies.py::test_pairs_by_pattern" in shown_by()["cfg-130"]
