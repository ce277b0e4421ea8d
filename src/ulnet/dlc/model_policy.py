"""Requests about selection policies, in today's form and in the documents' (spec udsp.md §6, §7)."""

from __future__ import annotations

from typing import Literal

from ulnet.dlc.request import BaseRequest as _Request
from ulnet.dlc.request import Verbosity

__all__ = [
    "SelectionAdd",
    "SelectionDel",
    "SelectionShow",
    "UdspAdd",
    "UdspDel",
    "UdspShow",
]


class UdspAdd(_Request, tag="udsp.add"):
    """Add a selection rule, at `idx` or at the end; one that matches the same is changed."""

    verb = "add"
    entity = "udsp"
    src: str | None = None
    dst: str | None = None
    rte: str | None = None
    priority: int | None = None
    weight: int | None = None
    idx: int | None = None


class UdspDel(_Request, tag="udsp.del"):
    """Delete a selection rule by its place or by what it matches, or all."""

    verb = "add"  # under which the real tool files these errors
    entity = "udsp"
    idx: int | None = None
    all: bool = False
    src: str | None = None
    dst: str | None = None
    rte: str | None = None


class UdspShow(_Request, tag="udsp.show"):
    """Selection rules; with verbosity also what they do and how much they match."""

    verb = "show"
    entity = "udsp"
    idx: int | None = None
    verbosity: Verbosity = 0


class _Selection(_Request):
    """A rule in the documents' form: a `net` or `nid`, or `local` and `remote` NIDs of a pair."""

    entity = "selection"
    kind: Literal["net", "nid", "peer"]
    net: str | None = None
    nid: str | None = None
    local: str | None = None
    remote: str | None = None


class SelectionAdd(_Selection, tag="selection.add"):
    """Add a rule or change its priority and weight; `side` restricts a net or nid to local or remote ones."""

    verb = "add"
    priority: int | None = None
    weight: int | None = None
    side: Literal["both", "local", "remote"] = "both"


class SelectionDel(_Selection, tag="selection.del"):
    """Delete a rule by ID, by what it matches, or by both, if they agree."""

    verb = "del"
    id: int | None = None
    side: Literal["both", "local", "remote"] = "both"


class SelectionShow(_Selection, tag="selection.show"):
    """Rules of a kind, or those for a pattern."""

    verb = "show"
