"""docs/dlc.md is what the library's own docstrings say."""

from __future__ import annotations

import pytest

from dlc_page import PAGE, page
from ulnet.dlc import calls


@pytest.mark.requirement("doc-015")
def test_the_reference_is_up_to_date_and_has_every_call() -> None:
    text = page()
    missing = [name for name in calls.__all__ if name[0].islower() and f"`{name}(" not in text]
    assert missing == []
    if PAGE.read_text() != text:
        pytest.fail("docs/dlc.md is out of date: run `make docs` and commit it", pytrace=False)
