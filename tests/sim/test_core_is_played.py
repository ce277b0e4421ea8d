"""What the simulator's ordinary runs never enter of the core is listed, with a reason for each function.

Played are random runs of the common recipes, and all scenarios. A function that
is new and not entered fails here, and so does one that is listed and entered, or gone: then the list gets
shorter. `ULNET_RENEW=1` writes it anew; what needs a reason then stands under the first heading.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import ulnet.core
from ulnet.sim.random_run import RECIPES, replay
from ulnet.sim.run import play
from ulnet.sim.scenario import read_scenario

CORE: Final = Path(ulnet.core.__file__).parent
ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = ROOT / "tests" / "data" / "never_played.txt"
RUNS: Final = {"mixed": 40, "discovery": 15, "administrators": 15, "naming": 15}
UNEXPLAINED: Final = "no reason is given yet"

pytestmark = pytest.mark.pure  # compiled functions are not seen

Place = tuple[str, int]  # a file of the core, and the first line of a function


def defined() -> dict[Place, str]:
    """The functions of the core, as `FILE CLASS.NAME`."""
    found: dict[Place, str] = {}
    for path in sorted(CORE.rglob("*.py")):
        file = path.relative_to(CORE).as_posix()
        for name, node in functions(ast.parse(path.read_text()), ""):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found[file, first] = f"{file} {name}"
    return found


def functions(tree: ast.AST, outer: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions in a tree, with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield outer + node.name, node
            yield from functions(node, f"{outer}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{outer}{node.name}.")
        else:
            yield from functions(node, outer)


def played() -> set[Place]:
    """The functions of the core that the runs enter."""
    folder = str(CORE) + os.sep
    seen: set[Any] = set()  # of code objects

    def enter(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        for name, count in RUNS.items():
            for seed in range(1, count + 1):
                assert replay(RECIPES[name], seed).ok, f"recipe {name}, seed {seed}"
        for path in sorted((ROOT / "scenarios").glob("*.yaml")):
            assert play(read_scenario(path)).ok, path.name
    finally:
        sys.setprofile(before)
    return {
        (Path(code.co_filename).relative_to(CORE).as_posix(), code.co_firstlineno)
        for code in seen
        if code.co_filename.startswith(folder)
    }


def listed() -> dict[str, str]:
    """The functions of the list, each with its reason."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in LIST.read_text().splitlines():
        if line.startswith("== "):
            reason = line[3:]
        elif line and not line.startswith("#"):
            assert reason, f"{line} stands under no reason"
            assert line not in reasons, f"{line} is listed twice"
            reasons[line] = reason
    return reasons


def renew(never: set[str]) -> None:
    """Write the list anew; reasons stay."""
    reasons = listed()
    text = [line for line in LIST.read_text().splitlines() if line.startswith("#")]
    unexplained = sorted(name for name in never if reasons.get(name, UNEXPLAINED) == UNEXPLAINED)
    for reason in dict.fromkeys([UNEXPLAINED, *reasons.values()]):
        names = unexplained if reason == UNEXPLAINED else [n for n in never if reasons.get(n) == reason]
        if names:
            text += ["", f"== {reason}", *sorted(names)]
    LIST.write_text("\n".join(text) + "\n")


def test_what_is_never_played_is_listed_with_a_reason() -> None:
    places = played()
    never = {name for place, name in defined().items() if place not in places}
    if os.environ.get("ULNET_RENEW"):
        renew(never)
    reasons = listed()
    assert sorted(never - reasons.keys()) == [], "never entered, and not listed: play them, or give a reason"
    assert sorted(reasons.keys() - never) == [], "listed, and entered or gone: take them off the list"
    assert UNEXPLAINED not in reasons.values(), "give a reason for each"
