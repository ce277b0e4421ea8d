"""What a program adds to the requests that a node takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ulnet.dlc.protocol import Answer

__all__ = ["Addition", "Setting"]


class Setting(NamedTuple):
    """How a setting is read and changed; changing it raises LNetError for what it cannot be."""

    get: Callable[[], int]
    set: Callable[[int], None]


class Addition(Protocol):
    """A part above the node: its requests, its on-off settings, and what it does as LNet comes and goes."""

    @property
    def handlers(self) -> Mapping[type[Any], Callable[[Any], Awaitable[Answer]]]:
        """What answers its requests, by their type. They raise LNetError."""

    @property
    def settings(self) -> Mapping[str, Setting]:
        """Its settings by name; a document of settings has a field for each."""

    def begin(self) -> None:
        """LNet is up. Raises LNetError."""

    async def end(self) -> None:
        """LNet is about to shut down."""
