"""What tests of configuration share."""

from __future__ import annotations

import pytest

from support.shared import shared_path
from support.transcripts import Step, read_steps


@pytest.fixture(scope="session")
def transcript() -> list[Step]:
    """All commands given to real nodes; the test is skipped where the transcripts are not."""
    return read_steps(shared_path("reference"))
