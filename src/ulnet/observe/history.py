"""History of a node in an SQLite file: what its rails carried in each interval, and what happened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, Self

from ulnet.observe.changes import Event, RailCounts, changes, rails
from ulnet.observe.snapshot import Snapshot

__all__ = ["History", "HistoryError", "Reading", "Stored"]

_VERSION: Final = 1
_MARK: Final = 0x554C4E54  # "ULNT": whose file this is
_SCHEMA: Final = """
CREATE TABLE node (name TEXT NOT NULL);
CREATE TABLE readings (at REAL PRIMARY KEY, up INTEGER NOT NULL, seconds REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE rails (
    at REAL NOT NULL, rail TEXT NOT NULL, sent INTEGER, received INTEGER, dropped INTEGER, resent INTEGER,
    failed INTEGER, sent_bytes INTEGER, received_bytes INTEGER, health INTEGER, up INTEGER,
    PRIMARY KEY (at, rail)
) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
    before TEXT NOT NULL, after TEXT NOT NULL, why TEXT NOT NULL
);
CREATE INDEX events_at ON events (at);
"""
_FULL: Final = 0.75  # of the size: above it the oldest goes; the journal of that needs room, too
_GIVE_UP: Final = 0.1  # of what there is goes when the file is full
_LEAST_SIZE: Final = 1 << 20
_MOST_EVENTS: Final = 200  # of one reading: more are counted together
_NUMBER: Final = (int, float)
_RAIL: Final[tuple[type | tuple[type, ...], ...]] = (_NUMBER, str, *[int] * len(RailCounts._fields))


class HistoryError(Exception):
    """The file is none of ours, or cannot be used, and why."""


class Reading(NamedTuple):
    """One reading of the node: seconds since 1970, whether it answered, how long that took."""

    at: float
    up: bool
    seconds: float


class Stored(NamedTuple):
    """An event and when it was seen."""

    at: float
    event: Event


class History:
    """One file of one node. What `add` has returned from stays, whatever ends the process."""

    def __init__(self, path: str, *, create: bool = False, max_size: int = 256 << 20) -> None:
        """`max_size` in bytes, at least 1 MiB, for file and journal: the oldest goes. Raises HistoryError."""
        self.path = path
        self._max_size = max(max_size, _LEAST_SIZE)
        self._before: Snapshot | None = None
        self._shown: Snapshot | None = None  # the last one in which the node answered
        self._counts: dict[str, RailCounts] = {}
        if not create and not os.path.exists(path):
            raise HistoryError(f"{path}: there is no such file; `ulnet record` makes one")
        try:
            self._db = sqlite3.connect(path, timeout=5.0, isolation_level=None)
        except sqlite3.Error as failed:
            raise HistoryError(f"{path}: {failed}") from None
        try:
            self._open(create)
        except sqlite3.Error as failed:
            self._db.close()
            raise HistoryError(f"{path}: {failed}") from None
        except HistoryError:
            self._db.close()
            raise

    def _open(self, create: bool) -> None:
        (mark,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables and create:
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._db.execute("PRAGMA journal_mode = WAL")
            with closing(self._db.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA.split(";"):
                    cursor.execute(statement)
                cursor.execute(f"PRAGMA application_id = {_MARK}")
                cursor.execute(f"PRAGMA user_version = {_VERSION}")
                cursor.execute("COMMIT")
        elif mark != _MARK:
            raise HistoryError(f"{self.path} is no history of ulnet: name another file")
        elif version != _VERSION:
            raise HistoryError(f"{self.path} is of version {version}; this ulnet reads {_VERSION}")
        elif self._db.execute("SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone():
            raise self._damaged("it has views or triggers")  # which may never end
        self._db.execute("PRAGMA synchronous = NORMAL")  # with WAL: only a power failure loses the last ones
        (page,) = self._db.execute("PRAGMA page_size").fetchone()
        most = max(self._max_size // 16 // page, 1)  # pages of the journal before it is taken over
        self._db.execute(f"PRAGMA wal_autocheckpoint = {min(most, 1000)}")

    # Writing ---------------------------------------------------------------------------------------

    def add(self, snapshot: Snapshot, now: float) -> list[Event]:
        """Keep what a reading shows, by one transaction. The events in it. Raises HistoryError.

        `now` is in seconds since 1970; a clock that was set back goes on from the last reading.
        """
        found = list(changes(self._before, snapshot, self._shown))
        if len(found) > _MOST_EVENTS:
            rest = len(found) - _MOST_EVENTS
            found = [*found[:_MOST_EVENTS], Event("and more", f"{rest} events")]
        counts = rails(snapshot) if snapshot.up else {}
        grown = [(rail, *_growth(self._counts.get(rail), one)) for rail, one in counts.items()]
        try:
            (last,) = self._db.execute("SELECT max(at) FROM readings").fetchone()
            if last is not None and not isinstance(last, _NUMBER):
                raise self._damaged(f"the last time is {type(last).__name__}")
            if last is not None and now <= last:
                now = last + 0.001
            self._db.execute("BEGIN IMMEDIATE")
            if not self._db.execute("SELECT 1 FROM node").fetchone():
                self._db.execute("INSERT INTO node VALUES (?)", (snapshot.node,))
            self._db.execute("INSERT INTO readings VALUES (?, ?, ?)", (now, snapshot.up, snapshot.seconds))
            self._db.executemany(
                f"INSERT INTO rails VALUES (?, ?{', ?' * len(RailCounts._fields)})",
                [(now, *one) for one in grown],
            )
            self._db.executemany(
                "INSERT INTO events (at, kind, subject, before, after, why) VALUES (?, ?, ?, ?, ?, ?)",
                [(now, *event) for event in found],
            )
            self._db.execute("COMMIT")
            self._bound()
        except sqlite3.Error as failed:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise HistoryError(f"{self.path}: {failed}") from None
        if snapshot.up:
            self._counts, self._shown = counts, snapshot
        self._before = snapshot
        return found

    def forget(self, before: float) -> None:
        """Drop what is older than that. Raises HistoryError."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for table in ("readings", "rails", "events"):
                self._db.execute(f"DELETE FROM {table} WHERE at < ?", (before,))
            self._db.execute("COMMIT")
            self._db.execute("PRAGMA incremental_vacuum").fetchall()
        except sqlite3.Error as failed:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise HistoryError(f"{self.path}: {failed}") from None

    @property
    def size(self) -> int:
        """Bytes of the file that are used."""
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        (page,) = self._db.execute("PRAGMA page_size").fetchone()
        return int((pages - free) * page)

    def _bound(self) -> None:
        while self.size > self._max_size * _FULL:
            first, last = self._db.execute("SELECT min(at), max(at) FROM readings").fetchone()
            if first == last:
                return
            self.forget(first + (last - first) * _GIVE_UP + 1e-6)
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # Reading ---------------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        """How the node was asked. This and the others raise HistoryError."""
        return next((str(name) for (name,) in self._rows("SELECT name FROM node LIMIT 1", (str,))), "")

    def readings(self, since: float, until: float) -> list[Reading]:
        """In order."""
        rows = self._rows(
            "SELECT * FROM readings WHERE at BETWEEN ? AND ? ORDER BY at",
            (_NUMBER, int, _NUMBER),
            (since, until),
        )
        return [Reading(at, bool(up), seconds) for at, up, seconds in rows]

    def rails(self, since: float, until: float) -> Iterator[tuple[float, str, RailCounts]]:
        """What each rail, and `node`, did since the reading before, in order."""
        rows = self._rows("SELECT * FROM rails WHERE at BETWEEN ? AND ? ORDER BY at", _RAIL, (since, until))
        for at, rail, *counts in rows:
            yield at, rail, RailCounts(*counts)

    def events(self, since: float, until: float) -> list[Stored]:
        """In order."""
        rows = self._rows(
            "SELECT at, kind, subject, before, after, why FROM events WHERE at BETWEEN ? AND ? ORDER BY id",
            (_NUMBER, *[str] * len(Event._fields)),
            (since, until),
        )
        return [Stored(at, Event(*event)) for at, *event in rows]

    def _rows(
        self, asked: str, types: Sequence[type | tuple[type, ...]], values: tuple[float, ...] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Rows whose values are of these types: SQLite keeps any in any column. Raises HistoryError."""
        try:
            for row in self._db.execute(asked, values):
                if len(row) != len(types) or not all(map(isinstance, row, types)):
                    kinds = ", ".join(type(value).__name__ for value in row)
                    raise self._damaged(f"a row has {kinds}")
                yield row
        except sqlite3.Error as failed:
            raise self._damaged(str(failed)) from None

    def _damaged(self, why: str) -> HistoryError:
        return HistoryError(
            f"{self.path} is damaged: {why}: name a copy, or have `ulnet record` begin another"
        )

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _growth(before: RailCounts | None, after: RailCounts) -> RailCounts:
    """What was counted meanwhile; health and status are as they are. Of a first reading nothing is known."""
    if before is None:
        before = after
    grown = [
        new - old if new >= old else new  # it began anew
        for old, new in zip(before[:-2], after[:-2], strict=True)
    ]
    return after._replace(**dict(zip(RailCounts._fields[:-2], grown, strict=True)))
