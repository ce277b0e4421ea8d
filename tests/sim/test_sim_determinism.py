"""The same seed gives the same run, byte for byte, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ulnet.rpc.played  # noqa: F401 - registers its recipe
from ulnet.sim.random_run import RECIPES, replay

SCRIPT = """
import ulnet.rpc.played
from ulnet.sim.random_run import RECIPES, replay
for name in sorted(RECIPES):
    for seed in range(4):
        print(name, seed, replay(RECIPES[name], seed, trace=True).run.sim.digest)
"""


def digests(hash_seed: str) -> str:
    source = str(Path(__file__).resolve().parents[2] / "src")
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


def test_other_processes_with_other_hashes_have_the_same_traces() -> None:
    first = digests("1")
    count = len(RECIPES) * 4
    assert len(first.splitlines()) == count
    assert len({line.split()[2] for line in first.splitlines()}) == count
    assert digests("2") == first


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_trace_tells_every_header_and_every_event(seed: int) -> None:
    run = replay(RECIPES["plain"], seed, trace=True).run
    text = "\n".join(run.sim.trace)
    assert text.count(" event ") == len(run.plan.events)
    assert " send " in text
    assert " arrive " in text


def test_looking_harder_changes_nothing() -> None:
    plain = replay(RECIPES["mixed"], 11, trace=True)
    thorough = replay(RECIPES["mixed"], 11, trace=True, thorough=True)
    assert thorough.run.sim.checks == plain.run.sim.checks
    assert thorough.run.sim.digest == plain.run.sim.digest
