"""The corpus of `make fuzz`: what once reached code of its own raises nothing that is not announced."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz_targets import TARGETS

CORPUS = Path(__file__).parents[1] / "corpus"


def test_each_target_has_a_corpus() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_survived(name: str) -> None:
    inputs = list((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        TARGETS[name](path.read_bytes())
