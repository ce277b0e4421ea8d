"""Functions of core and control plane that ordinary simulator runs never enter are listed with a reason.

Played are random runs of the common recipes, and all scenarios. A function that
is new and not entered fails here, and so does one that is listed and entered, or gone: then the list gets
shorter. `ULNET_RENEW=1` writes it anew; what needs a reason then stands under the first heading.
"""

from __future__ import annotations

import ast
import gc
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

import ulnet
from ulnet.sim.random_run import RECIPES, replay
from ulnet.sim.run import play
from ulnet.sim.scenario import read_scenario

ULNET: Final = Path(ulnet.__file__).parent
ROOMS: Final = ("core", "control")
ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = ROOT / "tests" / "data" / "never_played.txt"
RUNS: Final = {
    "mixed": 40,
    "discovery": 15,
    "administrators": 15,
    "naming": 15,
    "routed": 10,
    "dlc": 15,
    "faults": 15,
    "access": 15,
}
MESSAGE_PATH: Final = (
    *("sender", "completion", "credits", "loads", "path", "paths"),
    *("receiver", "reception", "match", "msg", "memory", "responses", "portal", "md", "path_load"),
    *("selection.paths", "selection.choose", "selection.candidates"),
)
TRIES: Final = 4  # seeds in which a function must be missed
UNEXPLAINED: Final = "no reason is given yet"

pytestmark = pytest.mark.pure  # compiled functions are not seen

Place = tuple[str, int]  # a file of a room, and the first line of a function


def defined() -> dict[Place, str]:
    """The functions of both rooms, as `FILE CLASS.NAME`."""
    found: dict[Place, str] = {}
    for path in sorted(file for room in ROOMS for file in (ULNET / room).rglob("*.py")):
        file = path.relative_to(ULNET).as_posix()
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


@pytest.fixture(scope="module")
def played() -> dict[CodeType, list[int]]:
    """The functions of both rooms that the runs enter; of each the first seeds of `mixed` that do."""
    folders = tuple(str(ULNET / room) + os.sep for room in ROOMS)
    seen: set[CodeType] = set()
    found: dict[CodeType, list[int]] = {}

    def enter(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    def gather(seed: int | None = None) -> None:
        for code in seen:
            if code.co_filename.startswith(folders):
                seeds = found.setdefault(code, [])
                if seed is not None and len(seeds) < TRIES:
                    seeds.append(seed)
        forget()

    def forget() -> None:
        """Coroutines of ended runs, and of earlier tests, enter functions as they are collected."""
        gc.collect()
        seen.clear()

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        forget()
        for name, count in RUNS.items():
            for seed in range(1, count + 1):
                assert replay(RECIPES[name], seed).ok, f"recipe {name}, seed {seed}"
                gather(seed if name == "mixed" else None)
        for path in sorted((ROOT / "scenarios").glob("*.yaml")):
            assert play(read_scenario(path)).ok, path.name
    finally:
        sys.setprofile(before)
    gather()
    return found


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


def test_what_is_never_played_is_listed_with_a_reason(played: dict[CodeType, list[int]]) -> None:
    places = {(Path(code.co_filename).relative_to(ULNET).as_posix(), code.co_firstlineno) for code in played}
    never = {name for place, name in defined().items() if place not in places}
    if os.environ.get("ULNET_RENEW"):
        renew(never)
    reasons = listed()
    assert sorted(never - reasons.keys()) == [], "never entered, and not listed: play them, or give a reason"
    assert sorted(reasons.keys() - never) == [], "listed, and entered or gone: take them off the list"
    assert UNEXPLAINED not in reasons.values(), "give a reason for each"


def methods(played: dict[CodeType, list[int]]) -> Iterator[tuple[type, str, Any]]:
    """The methods of the message path that `mixed` enters."""
    for name in MESSAGE_PATH:
        module = import_module(f"ulnet.core.{name}")
        for owner in list(vars(module).values()):
            if isclass(owner) and owner.__module__ == module.__name__:
                for word, method in list(vars(owner).items()):
                    if isfunction(method) and word != "__init__" and played.get(method.__code__):
                        yield owner, word, method


def test_an_exception_planted_in_the_message_path_fails_a_seed(
    played: dict[CodeType, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(*arguments: object, **more: object) -> None:
        raise ZeroDivisionError("planted")

    def notices(owner: type, word: str, seeds: list[int]) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(owner, word, planted)
            patch.setattr(sys, "unraisablehook", lambda raised: None)
            try:
                return not all(replay(RECIPES["mixed"], seed).ok for seed in seeds)
            except ZeroDivisionError:  # of a configuration, before the run
                return True
            finally:
                gc.collect()  # coroutines of the failed run meet the planted exception here, as they end

    found = list(methods(played))
    assert len(found) > 50
    missed = [
        f"{owner.__name__}.{word}"
        for owner, word, method in found
        if not notices(owner, word, played[method.__code__])
    ]
    assert missed == []
