"""Whether the tests of each requirement notice that it does not hold: one planted mistake after another.

`tests/data/mutants.toml` has the mistakes: a requirement, a file of `src/ulnet`, and text that is replaced
there. All tests that show these requirements run once without a mistake, and are timed. Each mistake is then
planted in a copy of the sources, and the tests that are marked with its requirement run on that, the quickest
first, up to the first that fails. A mistake that they do not find has survived: their row of
docs/requirements.md says more than they show. `make mutants` tries all, which takes an hour or more;
`ARGS="dyn-010 dbg-025"` those of some requirements. `--times FILE` keeps what the run without a mistake told,
and takes it from there the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from requirements_page import gather, read_promises

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/data/mutants.toml"
SECONDS = 900.0  # for the tests of one requirement
ELSEWHERE = "verbs/"  # tests that run in guests only
_KEYS = {"requirement", "file", "old", "new"}
_SOME_FAILED = 1  # pytest's exit status where a test failed


FAILED = "failed"  # without a mistake, too
NOT_RUN = "not run"  # skipped here, or too long
Times: TypeAlias = "dict[str, float | str]"  # by test: the seconds that it takes, FAILED or NOT_RUN


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
    """The tests that show each requirement, as pytest takes them; without those that need guests."""
    promises = read_promises()
    gather(promises)
    return {
        promise.id: [f"tests/{test}" for test in promise.tests if not test.startswith(ELSEWHERE)]
        for promise in promises
    }


def try_one(
    mutant: Mutant, tests: Sequence[str], seconds: float = SECONDS, root: Path = ROOT
) -> tuple[Fate, str]:
    """Plant one mistake in a copy of the sources, and run these tests on it up to the first that fails.

    The second of what it returns names that test.
    """
    with tempfile.TemporaryDirectory(prefix="ulnet-mutant-") as name:
        copy = Path(name)
        shutil.copytree(root / "src/ulnet", copy / "ulnet", ignore=shutil.ignore_patterns("__pycache__"))
        mutant.plant(copy / "ulnet")
        return _run_tests(copy, ["-x", *tests], seconds, root)


def time_tests(tests: Sequence[str], seconds: float, root: Path = ROOT) -> Times:
    """How long each of these tests takes without a mistake."""
    with tempfile.TemporaryDirectory(prefix="ulnet-mutant-") as name:
        copy = Path(name)
        shutil.copytree(root / "src/ulnet", copy / "ulnet", ignore=shutil.ignore_patterns("__pycache__"))
        report = copy / "report.xml"
        _run_tests(copy, [f"--junitxml={report}", *tests], seconds, root)
        return read_report(report, tests) if report.exists() else dict.fromkeys(tests, FAILED)


def read_report(report: Path, tests: Sequence[str]) -> Times:
    """What became of each of these tests, or modules of tests, by a report of pytest's in JUnit's form."""
    found: Times = {}
    names = {test.replace(".py", "").replace("/", ".").replace("::", "."): test for test in tests}
    for case in ElementTree.parse(report).iter("testcase"):
        module, name = case.get("classname", ""), case.get("name", "").partition("[")[0]
        test = names.get(f"{module}.{name}") or names.get(module)
        if test is None or case.find("skipped") is not None:
            continue
        before = found.get(test, 0.0)
        if case.find("failure") is not None or case.find("error") is not None:
            found[test] = FAILED
        elif not isinstance(before, str):
            found[test] = before + float(case.get("time", "0"))
    return dict.fromkeys(tests, NOT_RUN) | found


def _run_tests(copy: Path, words: Sequence[str], seconds: float, root: Path) -> tuple[Fate, str]:
    """Run pytest with these words on a copy of the sources."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-p", "no:support.order"]  # in the order given, not the slow ones first
    command += ["-o", f"pythonpath={copy} tests scripts benchmarks", *words]
    environment = os.environ | {
        "PYTHONPATH": str(copy),
        "ULNET_SOURCE": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return Fate.TIMED_OUT, ""
        finally:
            _end(process)
        output.seek(0)
        text = output.read().decode(errors="replace")
        if status in (0, _SOME_FAILED):
            failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
            return (Fate.FOUND, failed[1] if failed else "") if status else (Fate.SURVIVED, "")
        sys.stderr.write(text[-2000:])
        return Fate.BROKEN, ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the tests, and daemons that they have left: one with a mistake may not end when it should."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(
    mutants: Iterable[Mutant],
    tests: dict[str, list[str]],
    times: Times,
    seconds: float = SECONDS,
) -> list[str]:
    """Try them all, telling of each; a line for each that was not found."""
    left = []
    for mutant in mutants:
        shown = [test for test in tests.get(mutant.requirement, []) if times[test] != NOT_RUN]
        if any(times[test] == FAILED for test in shown):
            fate, by = Fate.BROKEN, ""
        else:
            quickest = sorted(shown, key=lambda test: times[test])
            fate, by = try_one(mutant, quickest, seconds) if shown else (Fate.SURVIVED, "")
        line = f"{mutant.requirement}: {mutant.file}: {mutant.old.strip().splitlines()[0]!r}: {fate.value}"
        print(f"{line} by {by}" if by else line, flush=True)
        if fate not in (Fate.FOUND, Fate.TIMED_OUT):
            left.append(line)
    return left


def times_of(
    mutants: Iterable[Mutant], tests: dict[str, list[str]], seconds: float, kept: Path | None
) -> Times:
    """The seconds of the tests of these mistakes' requirements: what was kept, and else by running them."""
    times: Times = json.loads(kept.read_text()) if kept and kept.exists() else {}
    wanted = dict.fromkeys(test for mutant in mutants for test in tests.get(mutant.requirement, []))
    if unknown := [test for test in wanted if test not in times]:
        print(f"{len(unknown)} tests run without a mistake", flush=True)
        times |= time_tests(unknown, seconds * 10)
        if kept:
            kept.write_text(json.dumps(times, indent=1))
    return times


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 1 if a mistake survived, 2 if the list is wrong."""
    parser = argparse.ArgumentParser(
        description="Plant mistakes, and see whether each requirement's tests find them."
    )
    parser.add_argument("requirements", nargs="*", help="only those of these requirements")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="for the tests of one requirement (900)"
    )
    parser.add_argument("--times", type=Path, metavar="FILE", help="keeps how long each test takes")
    given = parser.parse_args(words)
    try:
        mutants = read()
        tests = shown_by()
        unknown = set(given.requirements) - {mutant.requirement for mutant in mutants}
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: no mistake of {LIST.name} is for that")
        chosen = [one for one in mutants if not given.requirements or one.requirement in given.requirements]
        times = times_of(chosen, tests, given.seconds, given.times)
        left = run(chosen, tests, times, given.seconds)
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
