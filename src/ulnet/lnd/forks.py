"""Nodes in processes that are forked: the threads, files and event loops of a parent are not its child's."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
from collections.abc import Iterable
from selectors import BaseSelector
from typing import Any, Protocol
from weakref import WeakSet

from ulnet.core.status import LNetError
from ulnet.lnd.loop import Loop
from ulnet.lnd.selector import Selector

__all__ = ["Forked", "forked", "in_forks", "lead_nowhere", "let_go", "of_this_process"]

_log = logging.getLogger("ulnet")


class Forked(Protocol):
    """Something that lives in one process."""

    def forked(self) -> None:
        """In a child of that process: nothing is done with it any more."""


class HasFileno(Protocol):
    """A file or socket."""

    def fileno(self) -> int:
        """Its descriptor; negative: it is closed."""


def in_forks(thing: Forked) -> None:
    """Call `forked` of it in each child that is forked from now on."""
    _things.add(thing)


def of_this_process(file: HasFileno) -> None:
    """In each child that is forked from now on, its descriptor leads nowhere.

    The number stays taken, for `file` still has it.
    """
    _files.add(file)


def forked(name: str) -> LNetError:
    """Why a thing of that name is of no use in this process."""
    return LNetError(
        errno.ENETDOWN,
        f"{name} lives in the process that started it, and this one ({os.getpid()}) was forked from that: "
        'make a node of its own here, or start processes with "spawn"',
    )


def lead_nowhere(numbers: Iterable[int]) -> None:
    """In a child: what is written to those descriptors is lost, and nothing comes. Raises OSError."""
    inherited = [number for number in numbers if number >= 0]
    if inherited:
        instead, other = socket.socketpair()
        other.detach()  # open for ever: nothing is told to have ended
        with instead:
            instead.setblocking(False)
            for number in inherited:
                os.dup2(instead.fileno(), number, inheritable=False)


def let_go(loop: asyncio.AbstractEventLoop) -> None:
    """In a child: have its copy of the parent's loop watch nothing but its own wake-up. Raises OSError.

    A child shares the epoll: what it takes out of that, the parent's loop watches no more, and it reads what
    is the parent's. The child shares the wake-up, too, so that each takes those of the other.
    """
    if loop.is_closed():
        return
    selector = loop.selector if isinstance(loop, Loop) else getattr(loop, "_selector", None)
    wake_up: list[Any] = [getattr(loop, name, None) for name in ("_ssock", "_csock")]
    if not isinstance(selector, Selector | BaseSelector) or None in wake_up:
        return  # a loop of another kind, with ways of its own
    kept = selector.get_key(wake_up[0])
    if isinstance(selector, Selector):
        selector.forked()
    else:
        if hasattr(selector, "fileno"):  # it is an epoll
            with select.epoll() as own:
                os.dup2(own.fileno(), selector.fileno(), inheritable=False)
        for key in list(selector.get_map().values()):
            selector.unregister(key.fileobj)
    for mine, inherited in zip(socket.socketpair(), wake_up, strict=True):
        with mine:
            mine.setblocking(False)
            os.dup2(mine.fileno(), inherited.fileno(), inheritable=False)
    selector.register(kept.fileobj, kept.events, kept.data)


_things: WeakSet[Forked] = WeakSet()
_files: WeakSet[HasFileno] = WeakSet()


def _tell() -> None:
    try:
        lead_nowhere(file.fileno() for file in list(_files))
        _files.clear()
    except OSError as error:
        _log.error("a forked process has its parent's connections: %s", error)
    for thing in list(_things):
        try:
            thing.forked()
        except Exception:
            _log.exception("a forked process goes on with what is its parent's")
    _things.clear()


os.register_at_fork(after_in_child=_tell)
