"""What a program adds to the requests that a node takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from ulnet.dlc.protocol import Answer
from ulnet.dlc.settings import SETTINGS

__all__ = ["ADDED_SETTINGS", "Addition", "KeptSettings", "Setting"]

ADDED_SETTINGS: Final = {name: one.most for name, one in SETTINGS.items() if one.added}


class Setting(NamedTuple):
    """How a setting of 0 to `most` is read and changed. Changing it may raise LNetError.

    `began` is what the program was told to begin with.
    """

    get: Callable[[], int]
    set: Callable[[int], None]
    most: int
    began: int = 0


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


class KeptSettings:
    """The settings of additions in a dry run: values that are kept, and that nothing follows from."""

    handlers: Mapping[type[Any], Callable[[Any], Awaitable[Answer]]] = {}

    def __init__(self) -> None:
        values = dict.fromkeys(ADDED_SETTINGS, 0)
        self.settings: dict[str, Setting] = {
            name: Setting(partial(values.__getitem__, name), partial(values.__setitem__, name), most)
            for name, most in ADDED_SETTINGS.items()
        }

    def begin(self) -> None:
        """Nothing to do."""

    async def end(self) -> None:
        """Nothing to do."""
