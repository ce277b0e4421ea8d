"""Drivers of other packages: each is an entry point of the group `ulnet.lnd`, a function that makes one.

[project.entry-points."ulnet.lnd"]
gni = "gnilnd.driver:make"
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ulnet.core.lnd import Lnd
    from ulnet.lnd.contract import Upcalls

__all__ = ["GROUP", "MakeDriver", "installed_drivers"]

GROUP = "ulnet.lnd"


class MakeDriver(Protocol):
    """What an entry point names."""

    def __call__(self, core: Upcalls, loop: asyncio.AbstractEventLoop) -> Lnd:
        """A driver for one node; a method `close` of it is called when the node is closed."""


@cache
def installed_drivers() -> dict[str, Callable[[], MakeDriver]]:
    """How each is loaded, by its name."""
    from importlib.metadata import entry_points  # late: it takes longer than a node to start

    return {one.name: one.load for one in entry_points(group=GROUP)}
