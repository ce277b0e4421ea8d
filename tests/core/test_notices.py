"""Log lines in floods: none hides what comes a second later, and the number of those left out is told."""

from __future__ import annotations

import pytest

from ulnet.core.notices import Notices


@pytest.mark.requirement("dbg-110", "dbg-115")
def test_each_kind_is_told_once_a_second_with_the_number_of_those_left_out() -> None:
    now, told = [0.0], list[str]()
    notices = Notices(lambda: now[0], told.append)
    for tenth in range(11):
        now[0] = tenth / 10
        notices.say("a", f"a{tenth}")
    notices.say("b", "b")
    assert told == ["a0", "a10 (and 9 more like this)", "b"]


def test_a_failure_of_thousands_of_paths_is_a_page_of_lines() -> None:
    now, told = [5.0], list[str]()
    notices = Notices(lambda: now[0], told.append)
    for path in range(10_000):
        notices.say(path, f"path {path} failed")
    assert told == [f"path {path} failed" for path in range(64)]
    now[0] += 1
    notices.say("later", "something else")
    assert told[64:] == ["9936 lines about other paths and peers were left out", "something else"]
    now[0] += 1
    notices.say("later", "something else")
    assert told[66:] == ["something else"]
