"""Selection policies as `udsp show` and `selection … show` print them (spec udsp.md §6, §7)."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

__all__ = ["Action", "SelectionDocument", "SelectionView", "UdspDocument", "UdspView"]


class Action(Struct):
    """`action:`."""

    priority: int | UnsetType = UNSET
    weight: int | UnsetType = UNSET


class UdspView(Struct):
    """One rule; `effect`, `matches` (objects at this moment), of these `overridden`: for the curious."""

    idx: int
    src: str | UnsetType = UNSET
    dst: str | UnsetType = UNSET
    rte: str | UnsetType = UNSET
    action: Action | UnsetType = UNSET
    effect: str | UnsetType = UNSET
    matches: int | UnsetType = UNSET
    overridden: int | UnsetType = UNSET  # by rules before this one


class UdspDocument(Struct):
    """`udsp show`."""

    udsp: list[UdspView]


class SelectionView(Struct):
    """One rule in the documents' form; `side` is set where it is about local or about remote ones only."""

    type: str
    id: int
    net: str | UnsetType = UNSET
    nid: str | UnsetType = UNSET
    local: str | UnsetType = UNSET
    remote: str | UnsetType = UNSET
    side: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    weight: int | UnsetType = UNSET


class SelectionDocument(Struct):
    """`selection net|nid|peer show`."""

    selection: list[SelectionView]
