"""Nodes in processes that are forked: the threads and sockets of a parent are not its child's."""

from __future__ import annotations

import errno
import os
from typing import Protocol
from weakref import WeakSet

from ulnet.core.status import LNetError

__all__ = ["Forked", "forked", "in_forks"]


class Forked(Protocol):
    """Something that lives in one process."""

    def forked(self) -> None:
        """In a child of that process: nothing is done with it any more."""


def in_forks(thing: Forked) -> None:
    """Call `forked` of it in each child that is forked from now on."""
    _things.add(thing)


def forked(name: str) -> LNetError:
    """Why a thing of that name is of no use in this process."""
    return LNetError(
        errno.ENETDOWN,
        f"{name} lives in the process that started it, and this one ({os.getpid()}) was forked from that: "
        'make a node of its own here, or start processes with "spawn"',
    )


_things: WeakSet[Forked] = WeakSet()


def _tell() -> None:
    for thing in list(_things):
        thing.forked()
    _things.clear()


os.register_at_fork(after_in_child=_tell)
