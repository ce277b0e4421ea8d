"""A release by one command: `make release VERSION=0.2.0`.

It writes the version into src/ulnet/__init__.py and the day into CHANGELOG.md, commits the two, and tags the
commit `v0.2.0`. A tree with changes, a version that is not higher, and an empty changelog are refused;
then nothing is changed. Nothing is pushed.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src/ulnet/__init__.py"
CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## [Unreleased]"
_FORM = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:(a|b|rc)([1-9]\d*))?")
_LINE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_STAGES = {"a": 0, "b": 1, "rc": 2, None: 3}


class ReleaseError(Exception):
    """Why this cannot be released."""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Release the version that the command line names."""
    parser = argparse.ArgumentParser(description="Set the version, date the changelog, commit and tag.")
    parser.add_argument("version", nargs="?", default="", help="such as 0.2.0 or 0.2.0rc1")
    options = parser.parse_args(arguments)
    try:
        tag = release(options.version, root, datetime.datetime.now(datetime.UTC).date())
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"release: {tag} is committed and tagged here; `git push --follow-tags` publishes it")
    return 0


def release(version: str, root: Path, today: datetime.date) -> str:
    """Commit and tag this version; the tag. Raises ReleaseError, with nothing changed."""
    source, changelog = root / SOURCE, root / CHANGELOG
    text, changes = source.read_text(), changelog.read_text()
    found = _LINE.findall(text)
    if len(found) != 1:
        raise ReleaseError(f"{SOURCE}: it should have one line `__version__ = …`, and has {len(found)}")
    if order(version) <= order(found[0]):
        raise ReleaseError(f"version {version} is not higher than {found[0]}, which is in {SOURCE}")
    dirty = git(root, "status", "--porcelain").splitlines()
    if dirty:
        raise ReleaseError(
            f"the tree has {len(dirty)} changes, such as `{dirty[0].strip()}`: commit or stash them"
        )
    tag = f"v{version}"
    if git(root, "tag", "--list", tag):
        raise ReleaseError(f"the tag {tag} is there already: name a higher version, or `git tag -d {tag}`")
    dated = date_section(changes, version, today)
    source.write_text(_LINE.sub(f'__version__ = "{version}"', text))
    changelog.write_text(dated)
    try:
        git(root, "commit", "--quiet", "--message", f"Release {version}", "--", SOURCE, CHANGELOG)
    except ReleaseError:
        source.write_text(text)
        changelog.write_text(changes)
        raise
    git(root, "tag", "--annotate", "--message", f"ulnet {version}", tag)
    return tag


def order(version: str) -> tuple[int, ...]:
    """A key that sorts versions; raises ReleaseError for what is none."""
    match = _FORM.fullmatch(version)
    if match is None:
        raise ReleaseError(
            f"{version!r} is no version: use three numbers, as in VERSION=0.2.0 or VERSION=0.2.0rc1"
        )
    return (*map(int, match.group(1, 2, 3)), _STAGES[match[4]], int(match[5] or 0))


def date_section(changes: str, version: str, today: datetime.date) -> str:
    """The changelog with its unreleased section named and dated, and an empty one above it."""
    if changes.count(f"{UNRELEASED}\n") != 1:
        raise ReleaseError(f"{CHANGELOG}: it should have one line `{UNRELEASED}`")
    head, _, rest = changes.partition(f"{UNRELEASED}\n")
    section = re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    if not re.search(r"^- ", section, re.MULTILINE):
        raise ReleaseError(f"{CHANGELOG}: its section {UNRELEASED[3:]} has no line of what changed")
    return f"{head}{UNRELEASED}\n\n## [{version}] - {today.isoformat()}\n{rest}"


def git(root: Path, *words: str) -> str:
    """Run git; what it said. Raises ReleaseError with its words."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"`git {' '.join(words[:2])}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
