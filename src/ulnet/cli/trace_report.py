"""Pieces of a live trace as rows: what each pair carried since the last piece, which pairs came and went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ulnet.nid.errors import escaped

__all__ = ["Report", "Row", "as_text"]

Row: TypeAlias = dict[str, Any]
_Pair: TypeAlias = tuple[str, str]


class Report:
    """Compares each piece with the one before; `session` and `cursor` are what to ask the next one with."""

    def __init__(self) -> None:
        self.session = 0
        self.cursor: int = 0
        self._untold = 0
        self._before: dict[_Pair, Row] = {}
        self._carrying: dict[str, set[_Pair]] = {}  # by peer, in the last interval in which it had messages

    def rows(self, piece: Row) -> list[Row]:
        """What is new, oldest first; nothing for the first piece."""
        first, anew = not self.session, self.session not in (0, piece["session"])
        if anew:
            self._before, self._untold = {}, 0
        self.session, self.cursor = piece["session"], piece["cursor"]
        pairs = {(one["from"], one["to"]): one for one in piece["pairs"]}
        since = {} if first else self._since(pairs)
        self._before = pairs
        untold, self._untold = piece["untold"] - self._untold, piece["untold"]
        if first:
            return []
        rows: list[Row] = [{"kind": "anew"}] if anew else []
        rows += [{"kind": "message", **one} for one in piece["messages"]]
        if piece["lost"]:
            rows.append({"kind": "lost", "messages": piece["lost"]})
        if untold:
            rows.append({"kind": "untold", "messages": untold})
        if not piece["messages"]:
            rows += self._changes(since)
            rows += [{"kind": "pair", **one} for one in since.values()]
        return [{"at": piece["at"], **row} for row in rows]

    def _since(self, pairs: dict[_Pair, Row]) -> dict[_Pair, Row]:
        """What each pair carried since the last piece; those that carried nothing are left out."""
        grown = {}
        for pair, now in pairs.items():
            old = self._before.get(pair, {})
            if now["messages"] != old.get("messages", 0):
                grown[pair] = {key: _minus(value, old.get(key)) for key, value in now.items()}
        return grown

    def _changes(self, since: dict[_Pair, Row]) -> Iterator[Row]:
        peers: dict[str, set[_Pair]] = {}
        for pair, row in since.items():
            peers.setdefault(row["peer"], set()).add(pair)
        for peer, pairs in peers.items():
            had = self._carrying.get(peer)
            self._carrying[peer] = pairs
            if had is None:
                continue
            reasons: dict[str, int] = {}
            for pair in pairs - had or pairs:
                for reason, count in since[pair]["reasons"].items():
                    reasons[reason] = reasons.get(reason, 0) + count
            reason = max(reasons, key=lambda name: reasons[name], default="?")
            for kind, changed in (("began", pairs - had), ("ended", had - pairs)):
                for source, target in sorted(changed):
                    yield {"kind": kind, "peer": peer, "from": source, "to": target, "reason": reason}


def _minus(value: Any, old: Any) -> Any:
    if isinstance(value, dict):
        return {key: left for key, count in value.items() if (left := count - (old or {}).get(key, 0))}
    return value - (old or 0) if isinstance(value, int) else value


def as_text(row: Row) -> str:
    """A row as a line for people; methods of rpc are what strangers named them."""
    return f"{row['at']:9.3f}  {escaped(_TEXTS[row['kind']](row))}"


def _way(row: Row) -> str:
    return f"{row['from']} -> {row['to']}"


def _pair(row: Row) -> str:
    types = ", ".join(f"{name} {count}" for name, count in row["types"].items())
    reasons = ", ".join(f"{name} {count}" for name, count in row["reasons"].items())
    return f"  {_way(row)}: {row['messages']} messages ({types}), {row['bytes']} bytes; by {reasons}"


def _message(row: Row) -> str:
    changed = f" (before: {' -> '.join(row['before'])})" if row["before"] else ""
    frame = row.get("rpc")
    rpc = "" if frame is None else f", rpc {' '.join(filter(None, (frame['kind'], frame.get('method'))))}"
    return f"{_way(row)}: {row['type']} of {row['bytes']} bytes{rpc}; by {row['reason']}{changed}"


_TEXTS: dict[str, Callable[[Row], str]] = {
    "pair": _pair,
    "message": _message,
    "began": lambda row: f"+ {_way(row)} carries messages now; by {row['reason']}",
    "ended": lambda row: f"- {_way(row)} carries none any more; the others by {row['reason']}",
    "lost": lambda row: f"! {row['messages']} messages more, too many to be told: leave out --all",
    "untold": lambda row: (
        f"! {row['messages']} messages more, of more pairs than a trace has: name one with --to"
    ),
    "anew": lambda row: "! the node began its trace anew: what was before is not known",
}
