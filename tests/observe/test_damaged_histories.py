"""Histories that no recorder wrote so: each is told in words, and a terminal is not obeyed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from observe.test_history import START, A, ni, seen, ulnet
from ulnet.observe.history import History, HistoryError
from ulnet.observe.summary import summarize


def altered(tmp_path: Path, *statements: str) -> str:
    """A history of three readings, and what somebody did to it."""
    path = str(tmp_path / "h.db")
    with History(path, create=True) as history:
        for at in range(3):
            history.add(seen(ni(A, at * 1000)), START + at * 10)
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return path


@pytest.mark.parametrize("value", ["'text'", "NULL", "x'ff'", "9e999"])
@pytest.mark.parametrize("column", ["sent", "health", "sent_bytes", "up"])
def test_counters_that_are_no_numbers_are_told(tmp_path: Path, column: str, value: str) -> None:
    history = History(altered(tmp_path, f"UPDATE rails SET {column} = {value}"))
    with history, pytest.raises(HistoryError, match="is damaged: a row has float, str, "):
        summarize(history, START, START + 60)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET why = CAST(x'ff41' AS TEXT)",
        "UPDATE events SET kind = x'ff41'",
        "UPDATE node SET name = x'ff41'",
        "UPDATE readings SET up = 'x', seconds = 'abc'",
        "ALTER TABLE rails DROP COLUMN up",
        "DROP TABLE node",
    ],
)
def test_rows_that_no_recorder_wrote_are_told(tmp_path: Path, statement: str) -> None:
    add = "INSERT INTO events (at, kind, subject, before, after, why) VALUES (?, 'a', 'b', 'c', 'd', 'e')"
    with (
        History(altered(tmp_path, add.replace("?", str(START)), statement)) as history,
        pytest.raises(HistoryError, match="is damaged"),
    ):
        summarize(history, START, START + 60)


def test_a_view_that_never_ends_is_not_read(tmp_path: Path) -> None:
    endless = (
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, 1 AS at FROM n"
    )
    path = altered(tmp_path, "DROP TABLE events", f"CREATE VIEW events AS {endless}")
    with pytest.raises(HistoryError, match="is damaged: it has views or triggers"):
        History(path)


def test_a_file_whose_pages_are_damaged_is_told(tmp_path: Path) -> None:
    path = altered(tmp_path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = bytearray(Path(path).read_bytes())
    for at in range(4096, len(pages), 97):
        pages[at] ^= 0xFF
    Path(path).write_bytes(pages)
    done = ulnet("report", "--since", "2020-01-01", path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"ulnet report: {path} is damaged: ")
    assert "Traceback" not in done.err


def test_a_time_that_is_none_ends_the_recorder_in_words(tmp_path: Path) -> None:
    with (
        History(altered(tmp_path, "UPDATE readings SET at = 'x' WHERE at > 1700000015")) as history,
        pytest.raises(HistoryError, match="the last time is str"),
    ):
        history.add(seen(ni(A, 1)), START + 60)


def test_terminals_get_no_control_characters_of_a_history(tmp_path: Path) -> None:
    evil = "'\x1b]0;title\x07\x1b[2J$\\frac$'"
    add = "INSERT INTO events (at, kind, subject, before, after, why) VALUES (?, %, %, %, %, %)"
    path = altered(
        tmp_path,
        f"UPDATE node SET name = {evil}",
        f"UPDATE rails SET rail = {evil} WHERE rail != 'node'",
        add.replace("?", str(START)).replace("%", evil),
    )
    page = str(tmp_path / "page.html")
    for words in ([], ["--json"], ["--html", page]):
        done = ulnet("report", "--since", "2020-01-01", *words, path)
        assert done.code == 0
        assert "title" in done.out
        assert "\x1b" not in done.err
        assert all(one.isprintable() or one == "\n" for one in done.out)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE node SET name = CAST(x'ff1b5b324a' AS TEXT)")
    done = ulnet("report", "--since", "2020-01-01", path)
    assert done.code == 2
    assert "\x1b" not in done.err
