"""Whether the tests of each requirement notice that it does not hold: one planted mistake after another.

`tests/data/mutants.toml` has the mistakes: a requirement, a file of `src/ulnet`, and text that is replaced
there. Each is planted in a copy of the sources. The tests that are marked with that requirement run on that,
after they have passed on a copy without it. A mistake that they do not find has survived: their row of
docs/requirements.md says more than they show. `make mutants` tries all, which takes an hour or more;
`ARGS="dyn-010 dbg-025"` those of some requirements.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from requirements_page import gather, read_promises

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/data/mutants.toml"
SECONDS = 900.0  # for the tests of one requirement
_KEYS = {"requirement", "file", "old", "new"}
_FAILED = 1  # pytest's exit status where a test failed


class Fate(Enum):
    """What became of a planted mistake."""

    FOUND = "found"
    SURVIVED = "SURVIVED"
    TIMED_OUT = "found: the tests did not end"
    BROKEN = "BROKEN: the tests did not run, or fail without it"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake: `old` stands once in `file` (of src/ulnet), and is `new` in the copy."""

    requirement: str
    file: str
    old: str
    new: str

    def plant(self, sources: Path) -> None:
        """Make the mistake in a copy of src/ulnet. Raises ValueError if the text is not there once."""
        path = sources / self.file
        text = path.read_text() if path.is_file() else ""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(
                f"{self.requirement}: {self.file} has {self.old.strip()!r} {count} times, and must have it "
                f"once: change its item of {LIST.name}"
            )
        path.write_text(text.replace(self.old, self.new))


def read(path: Path = LIST) -> list[Mutant]:
    """All mistakes of the list. Raises ValueError for an item that cannot be read."""
    found = []
    for number, item in enumerate(tomllib.loads(path.read_text()).get("mutant", []), 1):
        if item.keys() != _KEYS or not all(isinstance(value, str) for value in item.values()):
            raise ValueError(
                f"item {number} of {path.name}: it has texts by the names {', '.join(sorted(_KEYS))}"
            )
        if item["old"] == item["new"] or not item["old"]:
            raise ValueError(f"item {number} of {path.name}: 'old' and 'new' must differ, and 'old' be there")
        found.append(Mutant(**item))
    return found


def shown_by() -> dict[str, list[str]]:
    """The tests that show each requirement, as pytest takes them."""
    promises = read_promises()
    gather(promises)
    return {promise.id: [f"tests/{test}" for test in promise.tests] for promise in promises}


def try_one(mutant: Mutant | None, tests: Sequence[str], seconds: float = SECONDS, root: Path = ROOT) -> Fate:
    """Plant one mistake, or none, in a copy of the sources, and run these tests on it."""
    with tempfile.TemporaryDirectory(prefix="ulnet-mutant-") as name:
        copy = Path(name)
        shutil.copytree(root / "src/ulnet", copy / "ulnet", ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            mutant.plant(copy / "ulnet")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["-o", f"pythonpath={copy} tests scripts benchmarks", *tests]
        environment = os.environ | {"PYTHONPATH": name, "ULNET_SOURCE": name, "PYTHONDONTWRITEBYTECODE": "1"}
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command, cwd=root, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                return Fate.TIMED_OUT
            finally:
                _end(process)
            if status in (0, _FAILED):
                return Fate.FOUND if status else Fate.SURVIVED
            output.seek(0)
            sys.stderr.write(output.read().decode(errors="replace")[-2000:])
            return Fate.BROKEN


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the tests, and what they have started."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
        process.wait()


def run(mutants: Iterable[Mutant], tests: dict[str, list[str]], seconds: float = SECONDS) -> list[str]:
    """Try them all, telling of each; a line for each that was not found."""
    left = []
    passes: dict[str, bool] = {}
    for mutant in mutants:
        name = mutant.requirement
        shown = tests.get(name, [])
        if name not in passes:
            passes[name] = not shown or try_one(None, shown, seconds) is Fate.SURVIVED
        fate = try_one(mutant, shown, seconds) if shown else Fate.SURVIVED
        if not passes[name]:
            fate = Fate.BROKEN
        line = f"{mutant.requirement}: {mutant.file}: {mutant.old.strip().splitlines()[0]!r}: {fate.value}"
        print(line, flush=True)
        if fate not in (Fate.FOUND, Fate.TIMED_OUT):
            left.append(line)
    return left


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 1 if a mistake survived, 2 if the list is wrong."""
    parser = argparse.ArgumentParser(
        description="Plant mistakes, and see whether each requirement's tests find them."
    )
    parser.add_argument("requirements", nargs="*", help="only those of these requirements")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="for the tests of one requirement (900)"
    )
    given = parser.parse_args(words)
    try:
        mutants = read()
        tests = shown_by()
        unknown = set(given.requirements) - {mutant.requirement for mutant in mutants}
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: no mistake of {LIST.name} is for that")
        chosen = [one for one in mutants if not given.requirements or one.requirement in given.requirements]
        left = run(chosen, tests, given.seconds)
    except ValueError as wrong:
        print(f"mutants: {wrong}", file=sys.stderr)
        return 2
    print(f"{len(chosen) - len(left)} of {len(chosen)} were found")
    for line in left:
        print(f"  {line}")
    without = [
        name for name, shown in tests.items() if shown and not any(one.requirement == name for one in mutants)
    ]
    if not given.requirements and without:
        print(f"without a planted mistake: {', '.join(without)}")
    return int(bool(left))


if __name__ == "__main__":
    raise SystemExit(main())
