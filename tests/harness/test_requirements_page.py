"""docs/requirements.md is what the tests' marks say."""

from __future__ import annotations

import pytest

from requirements_page import PAGE, check_ids, design_ids, marks, page, read_promises, render


def test_the_page_is_up_to_date() -> None:
    if PAGE.read_text() != page():
        pytest.fail("docs/requirements.md is out of date: run `make docs` and commit it", pytrace=False)


def test_every_id_has_a_promise_once() -> None:
    promises = read_promises()
    assert check_ids(promises) is None
    assert all(promise.text and promise.group for promise in promises)
    assert "more than once" in str(check_ids([*promises, promises[0]]))


def test_ranges_hold_the_ids_that_exist() -> None:
    rows = [
        "| ID | x |",
        "| --- | --- |",
        "| cfg-005, cfg-095 … cfg-110 | a |",
        "| HLD-order | b | c |",
        "text | x |",
    ]
    seed = "cfg-005\ncfg-095\ncfg-100 snd-100 cfg-110\ncfg-115"
    assert design_ids("\n".join(rows), seed) == ["cfg-005", "cfg-095", "cfg-100", "cfg-110", "HLD-order"]


MODULE = """
import pytest
pytestmark = [pytest.mark.long, pytest.mark.requirement("MD")]
@pytest.mark.requirement("snd-045", "snd-050")
def test_a(): ...
@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.requirement("RTR"))])
async def test_b(x): ...
@pytest.mark.requirement("CPT")
class TestC:
    @pytest.mark.requirement("ULP")
    def test_d(self): ...
"""


def test_marks_are_found_wherever_pytest_takes_them() -> None:
    assert list(marks(MODULE)) == [
        ("", "MD"),
        ("test_a", "snd-045"),
        ("test_a", "snd-050"),
        ("test_b", "RTR"),
        ("TestC", "CPT"),
        ("TestC::test_d", "ULP"),
    ]


def test_a_mark_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="plain strings, not NAME"):
        list(marks("@pytest.mark.requirement(NAME)\ndef test_a(): ...\n"))


def test_promises_without_test_are_listed() -> None:
    promises = read_promises()
    promises[0].tests.append("core/test_x.py::test_y")
    text = render(promises)
    assert f"1 of {len(promises)} are shown" in text
    assert f"| {promises[0].id} | {promises[0].text} | shown | `core/test_x.py::test_y` |" in text
    assert promises[0].id not in text.split("## Not shown yet")[1]
    assert promises[1].id in text.split("## Not shown yet")[1]
