"""Files for an event loop to wait for, some of which are read at once (docs/design/hot-path.md).

To asyncio a file that is ready is an entry in a list, a handle in a queue and a context to enter: more than
all that a driver does with a small message. So the readers and writers of connections are called where the
kernel tells of them, and the loop has its turn when there is anything for it. All files are in one epoll.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE, SelectorKey
from time import monotonic
from typing import Final, Protocol

__all__ = ["Express"]

_MOST: Final = 64  # files told of in one call to the kernel
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT


class HasFileno(Protocol):
    """A file or socket."""

    def fileno(self) -> int:
        """Its descriptor."""


class Files:
    """The loop's files, by descriptor or by what has one: asyncio asks for both."""

    __slots__ = ("_express",)

    def __init__(self, express: Express) -> None:
        self._express = express

    def __len__(self) -> int:
        return len(self._express.numbers())

    def keys(self) -> list[int]:
        """Their descriptors."""
        return self._express.numbers()

    def __getitem__(self, fileobj: int | HasFileno) -> SelectorKey:
        return self._express.get_key(fileobj)

    def get(self, fileobj: int | HasFileno, default: SelectorKey | None = None) -> SelectorKey | None:
        """What is known of that file."""
        try:
            return self._express.get_key(fileobj)
        except KeyError:
            return default


class Express:
    """What asyncio wants of a selector. `failed` is told of an exception that one of them lets through.

    `news` is to be set when the loop has something to do: until then, and until it wants to be woken, those
    that only readers and writers here are called for come and go in `select`.
    """

    __slots__ = ("_epoll", "_failed", "_fresh", "_keys", "_masks", "_readers", "_writers", "news")

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._epoll = select.epoll()
        self._failed = failed
        self._keys: dict[int, SelectorKey] = {}  # the loop's
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._masks: dict[int, int] = {}  # what the kernel is to tell of each file
        self._fresh: set[int] = set()  # new ones since it last told
        self.news = False

    def read(self, number: int, reader: Callable[[], None]) -> None:
        """Call `reader` whenever there is something to read from that descriptor. Raises OSError."""
        self._watch(number, self._masks.get(number, 0) | _IN)
        self._readers[number] = reader

    def leave(self, number: int) -> None:
        """Do not, any more (if it was read at all)."""
        self._readers.pop(number, None)
        self._watch(number, self._wanted(number))

    def watch_room(self, number: int, writer: Callable[[], None]) -> None:
        """Call `writer` whenever that descriptor takes more. Raises OSError."""
        self._watch(number, self._masks.get(number, 0) | _OUT)
        self._writers[number] = writer

    def forget_room(self, number: int) -> None:
        """Do not, any more (if it was written at all)."""
        self._writers.pop(number, None)
        self._watch(number, self._wanted(number))

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """The loop's files that are ready, after at most that many seconds; meanwhile others are served."""
        self.news = False
        wait = -1.0 if timeout is None else timeout if timeout > 0 else 0.0
        until = monotonic() + wait if wait > 0 else 0.0
        ready: list[tuple[SelectorKey, int]] = []
        others: list[tuple[int, int]] = []
        fresh = self._fresh
        while True:
            fresh.clear()
            events = self._epoll.poll(wait, _MOST)
            for number, event in events:
                if number in fresh:  # that of a file which has just been closed
                    continue
                reader = self._readers.get(number)
                if reader is not None and event & ~_OUT:
                    self._call(reader)
                writer = self._writers.get(number)
                if writer is not None and event & ~_IN and number not in fresh:
                    self._call(writer)
                if number in self._keys:
                    others.append((number, event))
            for number, event in others:  # now that nobody closes any of them
                key = self._keys.get(number)
                if key is not None and number not in fresh:
                    wanted = (EVENT_WRITE if event & ~_IN else 0) | (EVENT_READ if event & ~_OUT else 0)
                    ready.append((key, key.events & wanted))
            others.clear()
            if ready or self.news or not events or wait == 0:
                return ready
            if wait > 0:
                wait = until - monotonic()
                if wait <= 0:
                    return ready

    def _call(self, ready: Callable[[], None]) -> None:
        try:
            ready()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as failure:
            self._failed(failure)

    # The loop's files ------------------------------------------------------------------------------

    def register(self, fileobj: int | HasFileno, events: int, data: object = None) -> SelectorKey:
        """Tell of a file. Raises KeyError, ValueError, OSError."""
        number = self._number_of(fileobj)
        if number in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        self._watch(number, _mask_of(events) | self._served(number))
        key = self._keys[number] = SelectorKey(fileobj, number, events, data)
        return key

    def unregister(self, fileobj: int | HasFileno) -> SelectorKey:
        """Do not, any more. Raises KeyError."""
        number = self._number_of(fileobj)
        if number not in self._keys:
            raise KeyError(f"{fileobj!r} is not registered")
        key = self._keys.pop(number)
        self._watch(number, self._served(number))
        return key

    def modify(self, fileobj: int | HasFileno, events: int, data: object = None) -> SelectorKey:
        """Tell of other events. Raises KeyError, OSError."""
        old = self.get_key(fileobj)
        self._watch(old.fd, _mask_of(events) | self._served(old.fd))
        key = self._keys[old.fd] = SelectorKey(old.fileobj, old.fd, events, data)
        return key

    def get_key(self, fileobj: int | HasFileno) -> SelectorKey:
        """What is known of a file. Raises KeyError."""
        key = self._keys.get(self._number_of(fileobj))
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        return key

    def get_map(self) -> Files:
        """All of the loop's files."""
        return Files(self)

    def numbers(self) -> list[int]:
        """The descriptors of the loop's files."""
        return list(self._keys)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._epoll.close()
        self._keys.clear()
        self._readers.clear()
        self._writers.clear()
        self._masks.clear()

    def _number_of(self, fileobj: int | HasFileno) -> int:
        if isinstance(fileobj, int):
            return fileobj
        number = fileobj.fileno()
        if number < 0:  # closed meanwhile
            for key in self._keys.values():
                if key.fileobj is fileobj:
                    return key.fd
            raise ValueError(f"{fileobj!r} is closed")
        return number

    def _served(self, number: int) -> int:
        """What readers and writers here want to hear of it."""
        return (_IN if number in self._readers else 0) | (_OUT if number in self._writers else 0)

    def _wanted(self, number: int) -> int:
        """That, and what the loop wants to hear."""
        key = self._keys.get(number)
        return self._served(number) | (0 if key is None else _mask_of(key.events))

    def _watch(self, number: int, mask: int) -> None:
        """Have the kernel tell just that of it."""
        before = self._masks.get(number, 0)
        if mask == before:
            return
        if not before:
            self._epoll.register(number, mask)
            self._fresh.add(number)
        elif mask:
            self._epoll.modify(number, mask)
        else:
            del self._masks[number]
            try:
                self._epoll.unregister(number)
            except OSError:  # closed before it was taken out
                pass
            return
        self._masks[number] = mask


def _mask_of(events: int) -> int:
    return (_IN if events & EVENT_READ else 0) | (_OUT if events & EVENT_WRITE else 0)
