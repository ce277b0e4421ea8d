"""Which test shows which promise: reads `@pytest.mark.requirement(...)` marks, writes docs/requirements.md.

The promises are in tests/data/requirement_ids.txt; their IDs must be those of the design's requirements page
(../shared/design/requirements.md) where that is at hand.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PAGE = ROOT / "docs/requirements.md"
PROMISES = TESTS / "data/requirement_ids.txt"
DESIGN = ROOT.parent / "shared/design/requirements.md"
SEED = ROOT.parent / "shared/seeds/multi-rail-requirements.txt"

_ID = re.compile(r"[A-Za-z]{2,6}(-[A-Za-z0-9]+)*")


@dataclass(slots=True)
class Promise:
    """One requirement and what shows it."""

    id: str
    text: str
    group: str
    tests: list[str] = field(default_factory=list)


def read_promises(path: Path = PROMISES) -> list[Promise]:
    """All promises of the data file, in its order."""
    group = ""
    found = []
    for line in path.read_text().splitlines():
        if line.startswith("= "):
            group = line[2:]
        elif line and not line.startswith("#"):
            name, _, text = line.partition(" ")
            found.append(Promise(name, text.strip(), group))
    return found


def design_ids(design: str, seed: str) -> list[str]:
    """IDs in the first column of the design page's tables; `a-1 … a-9`: those that the seed document has."""
    in_seed = sorted(set(re.findall(r"\b[a-z]{3}-\d{3}\b", seed)))
    found: list[str] = []
    for line in design.splitlines():
        if not line.startswith("| ") or line.startswith(("| ---", "| ID ")):
            continue
        for part in line.split("|")[1].split(","):
            first, dots, last = (word.strip() for word in part.partition("…"))
            ids = [name for name in in_seed if first <= name <= last] if dots else [first]
            if not ids or not all(_ID.fullmatch(name) for name in ids):
                raise ValueError(f"cannot read the IDs in {part!r}")
            found += ids
    return found


def check_ids(promises: list[Promise]) -> str | None:
    """What is wrong with the data file's IDs, in one sentence; None if nothing is.

    It may have IDs of the seed document that the design page leaves out.
    """
    have = [promise.id for promise in promises]
    twice = sorted({name for name in have if have.count(name) > 1})
    if twice:
        return f"{PROMISES.name} has {', '.join(twice)} more than once; keep one line each."
    if not DESIGN.exists():
        return None
    seed = SEED.read_text()
    want = design_ids(DESIGN.read_text(), seed)
    differences = [f"+{name}" for name in want if name not in have] + [
        f"-{name}" for name in have if name not in want and name not in seed
    ]
    if differences:
        return (
            f"{PROMISES.name} does not hold the IDs of the design's requirements page "
            f"({', '.join(differences)}); add (+) or remove (-) these lines, each with its promise."
        )
    return None


def marks(source: str) -> Iterator[tuple[str, str]]:
    """(test name, requirement ID) for each mark in a test module; a module's own marks have the name ''."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            yield from (("", name) for name in _marked(node.value))
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _marks_of(node, "")


def _marks_of(
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, prefix: str
) -> Iterator[tuple[str, str]]:
    name = prefix + node.name
    for decorator in node.decorator_list:  # also inside parametrize: pytest.param(..., marks=...)
        yield from ((name, requirement) for requirement in _marked(decorator))
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _marks_of(child, f"{name}::")


def _marked(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.requirement"):
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"requirement marks take plain strings, not {ast.unparse(argument)}")
                yield argument.value


def gather(promises: list[Promise], tests: Path = TESTS) -> None:
    """Fill in the tests that show each promise."""
    by_id = {promise.id: promise for promise in promises}
    for path in sorted(tests.rglob("test_*.py")):
        for name, requirement in marks(path.read_text()):
            test = path.relative_to(tests).as_posix() + (f"::{name}" if name else "")
            if requirement not in by_id:
                raise ValueError(
                    f"{test} is marked with {requirement!r}, which is no requirement: see {PROMISES.name}."
                )
            if test not in by_id[requirement].tests:
                by_id[requirement].tests.append(test)


def render(promises: list[Promise]) -> str:
    """The page."""
    shown = [promise for promise in promises if promise.tests]
    lines = [
        "# Requirements and the tests that show them",
        "",
        "Written by `make docs` from the tests' `@pytest.mark.requirement` marks; do not edit. The promises",
        "are in `tests/data/requirement_ids.txt`. *shown*: at least one test names this promise; *open*: no",
        "test shows it yet, whatever the code does.",
        "",
        f"{len(shown)} of {len(promises)} are shown.",
    ]
    for group in dict.fromkeys(promise.group for promise in promises):
        lines += ["", f"## {group}", "", "| ID | Promise | State | Tests |", "| --- | --- | --- | --- |"]
        for promise in (promise for promise in promises if promise.group == group):
            tests = "<br>".join(f"`{test}`" for test in promise.tests)
            text = promise.text.replace("|", "\\|")
            lines.append(f"| {promise.id} | {text} | {'shown' if promise.tests else 'open'} | {tests} |")
    missing = ", ".join(promise.id for promise in promises if not promise.tests)
    lines += ["", "## Not shown yet", "", f"{missing or 'none'}", ""]
    return "\n".join(lines)


def page() -> str:
    """The page as it should be now; ValueError says what stands in the way."""
    promises = read_promises()
    if problem := check_ids(promises):
        raise ValueError(problem)
    gather(promises)
    return render(promises)


def main() -> int:
    """Write docs/requirements.md."""
    try:
        text = page()
    except ValueError as problem:
        print(f"requirements_page: {problem}", file=sys.stderr)
        return 1
    PAGE.write_text(text)
    print(f"{PAGE.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
