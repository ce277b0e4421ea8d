"""Files of ../shared (specifications, vectors, transcripts), beside the checkout where they exist."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
NOT_BESIDE = "the folder ../shared is not beside this checkout"
NO_HISTORY = "the history of this checkout does not reach back that far"  # a shallow clone, an archive


def shared_path(name: str) -> Path:
    """The file or folder ../shared/NAME; the test is skipped where it is not."""
    if not SHARED.exists():
        pytest.skip(f"{NOT_BESIDE} ({name} is needed)")
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"../shared has no {name}")
    return path


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder ../shared."""
    return shared_path(".")
