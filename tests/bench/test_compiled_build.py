"""The compiled build: what may be compiled, what is built anew when, and what is said where it cannot be."""

from __future__ import annotations

import ast
import fcntl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import compiled
import setup_env

ROOT = compiled.ROOT
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
    "hooks"
]


def compiled_modules() -> set[Path]:
    """What pyproject.toml gives to mypyc."""
    found: set[Path] = set()
    for pattern in HOOK["mypyc"]["include"]:
        place = ROOT / pattern.lstrip("/")
        found |= set(place.rglob("*.py")) if place.is_dir() else set(ROOT.glob(pattern.lstrip("/")))
    left_out = {ROOT / pattern.lstrip("/") for pattern in HOOK["mypyc"]["exclude"]}
    return {path for path in found if path not in left_out and path.name != "__init__.py"}


def classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def imported(path: Path) -> set[tuple[str, str]]:
    """The (module, name) pairs of its `from … import …` lines."""
    tree = ast.walk(ast.parse(path.read_text()))
    lines = [node for node in tree if isinstance(node, ast.ImportFrom) and node.module]
    return {(str(line.module), name.name) for line in lines for name in line.names}


def test_no_interpreted_class_derives_from_a_compiled_one() -> None:
    """mypyc refuses that when such a class is used, not before."""
    inside = compiled_modules()
    assert len(inside) > 40
    owned = {
        (".".join(path.relative_to(ROOT / "src").with_suffix("").parts), node.name)
        for path in inside
        for node in classes(path)
    }
    for path in sorted((ROOT / "src/ulnet").rglob("*.py")):
        if path in inside:
            continue
        forbidden = {name for module, name in imported(path) & owned}
        derived = {base.id for node in classes(path) for base in node.bases if isinstance(base, ast.Name)}
        assert not forbidden & derived, f"{path}: {forbidden & derived} is compiled"


def test_it_is_built_anew_when_a_room_changes_that_compiled_modules_import() -> None:
    lines = [line for path in compiled_modules() for line in imported(path)]
    rooms = {module.split(".")[1] for module, _ in lines if module.startswith("ulnet.")}
    assert rooms
    assert rooms <= set(compiled.SEEN)


def test_rooms_that_no_compiled_room_sees_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, home = tmp_path / "src/ulnet", tmp_path / "build/compiled"
    for room in ("core", "cli", "node"):
        (package / room).mkdir(parents=True)
        (package / room / "some.py").write_text("x = 1\n")
        (home / "ulnet" / room).mkdir(parents=True)
        (home / "ulnet" / room / "gone.py").write_text("x = 0\n")
    (package / "__init__.py").write_text("__version__ = '9'\n")
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(compiled, "HOME", home)
    before = compiled.fingerprint()
    compiled.bring_up_to_date()
    assert sorted(path.name for path in (home / "ulnet/cli").iterdir()) == ["some.py"]
    assert sorted(path.name for path in (home / "ulnet/core").iterdir()) == ["gone.py"]
    assert (home / "ulnet/__init__.py").read_text() == "__version__ = '9'\n"
    (package / "cli/some.py").write_text("x = 2\n")
    assert compiled.fingerprint() == before
    (package / "core/some.py").write_text("x = 2\n")
    assert compiled.fingerprint() != before


@pytest.mark.parametrize(("option", "status"), [([], 0), (["--must"], 1), (["--wheel"], 1)])
def test_without_a_compiler_there_is_a_note(
    option: list[str],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(compiled, "HOME", tmp_path / "old")
    (tmp_path / "old").mkdir()
    monkeypatch.setattr("shutil.which", lambda tool: None)
    monkeypatch.setattr("sys.argv", ["compiled.py", *option])
    assert compiled.main() == status
    told = capsys.readouterr().out
    assert "no C compiler here (Debian: apt-get install gcc)" in told
    assert "going on with pure Python, which differs in speed only" in told
    assert not (tmp_path / "old").exists()


def test_a_build_that_fails_leaves_its_words_and_pure_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled, "HOME", tmp_path / "compiled")
    monkeypatch.setattr(compiled, "follow", lambda words, more: (1, "error: no such thing\n"))
    assert compiled.build("stamp") == 1
    told = capsys.readouterr()
    assert "error: no such thing" in told.err
    assert "going on with pure Python" in told.out
    assert not (tmp_path / "compiled").exists()


def test_a_build_keeps_nobody_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test` compiles beside the first tests; what else make is asked for must not wait for that."""
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(compiled, "HOME", tmp_path / "compiled")
    monkeypatch.setattr(compiled, "STAMP", tmp_path / "compiled/STAMP")
    monkeypatch.setattr(compiled, "what_is_missing", lambda: "")
    taken: list[str] = []

    def build(stamp: str, quick: bool) -> int:
        with open(tmp_path / "pyproject.toml", "rb") as setup, open(tmp_path / "compiled.lock", "rb") as own:
            fcntl.flock(setup, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with pytest.raises(BlockingIOError):
                fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        taken.append(stamp)
        return 0

    monkeypatch.setattr(compiled, "build", build)
    monkeypatch.setattr("sys.argv", ["compiled.py"])
    assert compiled.main() == 0
    assert len(taken) == 1


def built(level: str, monkeypatch: pytest.MonkeyPatch, option: list[str]) -> list[bool]:
    """Whether the script compiles, and how, where the last build had this at the end of its stamp."""
    compiled.HOME.mkdir(parents=True, exist_ok=True)
    compiled.STAMP.write_text(f"{compiled.fingerprint()}{level}")
    made: list[bool] = []

    def build(stamp: str, quick: bool) -> int:
        made.append(quick)
        return 0

    monkeypatch.setattr(compiled, "build", build)
    monkeypatch.setattr(compiled, "bring_up_to_date", lambda: None)
    monkeypatch.setattr("sys.argv", ["compiled.py", *option])
    assert compiled.main() == 0
    return made


def test_what_is_made_for_tests_serves_for_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "HOME", tmp_path / "compiled")
    monkeypatch.setattr(compiled, "STAMP", tmp_path / "compiled/STAMP")
    monkeypatch.setattr(compiled, "what_is_missing", lambda: "")
    assert built("", monkeypatch, []) == []
    assert built("", monkeypatch, ["--quick"]) == [], "optimised code does for tests"
    assert built(compiled.QUICK, monkeypatch, ["--quick"]) == []
    assert built(compiled.QUICK, monkeypatch, []) == [False]
    assert built("older", monkeypatch, ["--quick"]) == [True]
    assert built(compiled.QUICK, monkeypatch, ["--wheel"]) == [False]


def test_c_for_tests_is_compiled_by_the_same_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    own.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda tool: str(own))
    words = [compiled.hasty_compiler(tmp_path), "-O2", "-c", "a file.c"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[:3] == words[1:]
    assert [word for word in told if word.startswith("-O")][-1] == "-Og", "the last one counts"


def test_a_long_build_tells_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled, "TELL_EVERY", 0.05)
    status, output = compiled.follow(["sh", "-c", "sleep 0.4; echo words; exit 3"], {})
    assert (status, output) == (3, "words\n")
    assert "compiled build: 0 s so far" in capsys.readouterr().out


@pytest.mark.parametrize("prefix", ["/usr", "/opt/python"])
def test_a_fresh_debian_gets_a_compiler(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", prefix)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    dev = {f"python3.{sys.version_info.minor}-dev"} if prefix == "/usr" else set()
    assert setup_env.compiler_packages() == dev
    monkeypatch.setattr("shutil.which", lambda tool, path=None: None)
    assert setup_env.compiler_packages() == {"gcc", "libc6-dev"} | dev
    (tmp_path / "Python.h").touch()
    assert setup_env.compiler_packages() == {"gcc", "libc6-dev"}
