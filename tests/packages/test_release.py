"""`make release`: version, changelog, commit and tag, in a git repository made for the test."""

from __future__ import annotations

import datetime
import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

import release
from support.shared import ROOT

TODAY = datetime.date(2031, 2, 3)
SOURCE = '"""A package."""\n\n__version__ = "0.1.0"\n'
CHANGES = """# Changelog

## [Unreleased]

### Added

- Something.

## [0.1.0] - 2030-01-01

- All of it.
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean checkout of a project at 0.1.0."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed (Debian: apt-get install git)")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (tmp_path / "gitconfig").write_text("[user]\nname = A\nemail = a@localhost\n")
    root = tmp_path / "tree"
    (root / "src/ulnet").mkdir(parents=True)
    (root / release.SOURCE).write_text(SOURCE)
    (root / release.CHANGELOG).write_text(CHANGES)
    git(root, "init", "--quiet")
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "Begin")
    return root


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def state(root: Path) -> tuple[str, ...]:
    files = ((root / name).read_text() for name in (release.SOURCE, release.CHANGELOG))
    return (*files, git(root, "status", "--porcelain"), git(root, "log", "--format=%H"), git(root, "tag"))


def test_version_changelog_commit_and_tag(tree: Path) -> None:
    assert release.release("0.2.0", tree, TODAY) == "v0.2.0"
    assert (tree / release.SOURCE).read_text() == SOURCE.replace("0.1.0", "0.2.0")
    assert (tree / release.CHANGELOG).read_text() == CHANGES.replace(
        "## [Unreleased]\n", "## [Unreleased]\n\n## [0.2.0] - 2031-02-03\n"
    )
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "log", "--format=%s", "-1") == "Release 0.2.0\n"
    assert git(tree, "describe", "--exact-match") == "v0.2.0\n"
    assert git(tree, "show", "--format=", "--name-only").split() == [release.CHANGELOG, release.SOURCE]


def test_one_after_the_other(tree: Path) -> None:
    release.release("0.2.0rc1", tree, TODAY)
    with pytest.raises(release.ReleaseError, match="has no line of what changed"):
        release.release("0.2.0", tree, TODAY)
    changelog = tree / release.CHANGELOG
    changelog.write_text(changelog.read_text().replace("[Unreleased]\n", "[Unreleased]\n\n- More.\n"))
    git(tree, "commit", "--quiet", "-am", "More")
    release.release("0.2.0", tree, TODAY)
    assert git(tree, "tag").split() == ["v0.2.0", "v0.2.0rc1"]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.1.0", "version 0.1.0 is not higher than 0.1.0, which is in src/ulnet/__init__.py"),
        ("0.0.9", "version 0.0.9 is not higher"),
        ("0.1.0rc3", "version 0.1.0rc3 is not higher"),
        ("", "'' is no version: use three numbers, as in VERSION=0.2.0"),
        ("v0.2.0", "'v0.2.0' is no version"),
        ("0.2", "'0.2' is no version"),
        ("0.02.0", "'0.02.0' is no version"),
        ("0.2.0\n", "is no version"),
    ],
)
def test_versions_that_are_refused(
    tree: Path, version: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(tree)
    assert release.main([version], tree) == 1
    assert words in capsys.readouterr().err
    assert state(tree) == before


@pytest.mark.parametrize("change", ["new file", "edit", "staged"])
def test_a_tree_with_changes_is_refused(tree: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    if change == "new file":
        (tree / "new").touch()
    else:
        (tree / release.CHANGELOG).write_text(CHANGES + "- More.\n")
    if change == "staged":
        git(tree, "add", "-A")
    before = state(tree)
    assert release.main(["0.2.0"], tree) == 1
    assert "release: the tree has 1 changes, such as `" in capsys.readouterr().err
    assert state(tree) == before


def test_a_tag_that_exists_is_refused(tree: Path) -> None:
    git(tree, "tag", "v0.2.0")
    before = state(tree)
    with pytest.raises(release.ReleaseError, match=r"the tag v0\.2\.0 is there already"):
        release.release("0.2.0", tree, TODAY)
    assert state(tree) == before


def test_a_commit_that_a_hook_refuses_changes_nothing(tree: Path) -> None:
    hook = tree / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    before = state(tree)
    with pytest.raises(release.ReleaseError, match="not today"):
        release.release("0.2.0", tree, TODAY)
    assert state(tree) == before


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (release.SOURCE, "", "should have one line `__version__"),
        (release.CHANGELOG, "# Changelog\n", "should have one line `## .Unreleased"),
    ],
)
def test_files_of_another_form_are_refused(tree: Path, file: str, text: str, words: str) -> None:
    (tree / file).write_text(text)
    git(tree, "commit", "--quiet", "-am", "Empty")
    with pytest.raises(release.ReleaseError, match=words):
        release.release("0.2.0", tree, TODAY)


def test_versions_are_in_order() -> None:
    versions = [
        "0.1.0a1",
        "0.1.0a2",
        "0.1.0b1",
        "0.1.0rc1",
        "0.1.0rc10",
        "0.1.0",
        "0.1.1",
        "0.2.0",
        "0.10.0",
        "1.0.0",
    ]
    for lower, higher in itertools.pairwise(versions):
        assert release.order(lower) < release.order(higher)


def test_this_project_has_the_form_that_is_expected() -> None:
    changed = release.date_section((ROOT / release.CHANGELOG).read_text(), "99.0.0", TODAY)
    assert changed.count("## [99.0.0] - 2031-02-03\n") == 1
    from ulnet import __version__

    assert release.order(__version__) < release.order("99.0.0")
