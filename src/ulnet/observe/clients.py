"""Clients of a server of which so many may be connected: who gives way to one too many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

__all__ = ["who_gives_way"]

_Client = TypeVar("_Client")


def who_gives_way(clients: Iterable[tuple[str, _Client]]) -> _Client | None:
    """Of those of the address that has most, the one that is named first."""
    by_address: dict[str, list[_Client]] = {}
    for address, client in clients:
        by_address.setdefault(address, []).append(client)
    most = max(by_address.values(), key=len, default=[])
    return most[0] if most else None
