"""Ready files: connections are served at once, the loop hears of its own (docs/design/message-path.md).

To asyncio a file that is ready is an entry in a list, a handle in a queue and a context to enter: more than
all that a driver does with a small message. So all files of a driver are in one epoll, whose readers and
writers are called as soon as the kernel tells of them. A loop of ours (`ulnet.lnd.loop`) has this selector
for its own, and a turn only when there is anything else to do; any other loop watches the epoll as one file.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE, SelectorKey
from time import monotonic
from typing import Final, Protocol

__all__ = ["Corked", "Selector"]

_MOST: Final = 64  # files told of in one call to the kernel: then others in the loop have their turn
_KEPT: Final = 16  # files that have more to read and stay with the kernel: it tells of them in vain
_GROUP: Final = 16  # files that are served before what they led to is sent
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT


class HasFileno(Protocol):
    """A file or socket."""

    def fileno(self) -> int:
        """Its descriptor."""


class Corked(Protocol):
    """Something that sends nothing while a group of files is served."""

    def uncork(self) -> None:
        """The group is served."""


class Files:
    """The loop's files, by descriptor or by what has one: asyncio asks for both."""

    __slots__ = ("_selector",)

    def __init__(self, selector: Selector) -> None:
        self._selector = selector

    def __len__(self) -> int:
        return len(self._selector.numbers())

    def keys(self) -> list[int]:
        """Their descriptors."""
        return self._selector.numbers()

    def __getitem__(self, fileobj: int | HasFileno) -> SelectorKey:
        return self._selector.get_key(fileobj)

    def get(self, fileobj: int | HasFileno, default: SelectorKey | None = None) -> SelectorKey | None:
        """What is known of that file."""
        try:
            return self._selector.get_key(fileobj)
        except KeyError:
            return default


class Selector:
    """Readers and writers of files, and what asyncio wants of a selector. Level-triggered.

    `failed` is told of an exception that a reader or writer lets through. `news` is to be set when the loop
    has something to do: until then, and until the loop wants to be woken, `select` calls readers and writers
    and does not return. A reader that had its turn and has more to read comes `again` behind all others.
    """

    __slots__ = (
        "_corked",
        "_epoll",
        "_failed",
        "_fresh",
        "_keys",
        "_later",
        "_masks",
        "_readers",
        "_writers",
        "in_group",
        "is_loops",
        "news",
    )

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._epoll: select.epoll | None = None
        self._failed = failed
        self._keys: dict[int, SelectorKey] = {}  # the loop's
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._masks: dict[int, int] = {}  # what the kernel is to tell of each file
        self._fresh: set[int] = set()  # new ones since it last told
        self._corked: list[Corked] = []
        self._later: dict[
            int, Callable[[], None]
        ] = {}  # readers of files that have more than their turn took
        self.in_group: bool = False  # several files are being served: `uncork_later` is of use
        self.news: bool = False
        self.is_loops: bool = (
            False  # this is the selector of the loop, which so learns of those that come again
        )

    def open(self) -> None:
        """Be ready to watch files. Raises OSError."""
        self._epoll = select.epoll()

    def fileno(self) -> int:
        """The descriptor of the epoll: readable while `serve` has something to do."""
        assert self._epoll is not None
        return self._epoll.fileno()

    def watch(self, number: int, reader: Callable[[], None]) -> None:
        """Call `reader` whenever there is something to read from that descriptor. Raises OSError."""
        self._watch(number, self._masks.get(number, 0) | _IN)
        self._readers[number] = reader

    def forget(self, number: int) -> None:
        """Call no reader of that descriptor any more (if there was one at all)."""
        self._readers.pop(number, None)
        self._later.pop(number, None)
        self._watch(number, self._wanted(number))

    def again(self, number: int) -> bool:
        """There is more to read from that descriptor: its reader is called when all others had a turn.

        False where the loop is another one, whose turns are its own: then the kernel tells, as ever.
        """
        reader = self._readers.get(number)
        if reader is None or not self.is_loops:
            return False
        del self._readers[number]
        self._later[number] = reader
        if len(self._later) > _KEPT:  # fewer stay with the kernel, whose word of them is passed over
            self._watch(number, self._wanted(number))
        return True

    def watch_room(self, number: int, writer: Callable[[], None]) -> None:
        """Call `writer` whenever that descriptor takes more. Raises OSError."""
        self._watch(number, self._masks.get(number, 0) | _OUT)
        self._writers[number] = writer

    def forget_room(self, number: int) -> None:
        """Call no writer of that descriptor any more (if there was one at all)."""
        self._writers.pop(number, None)
        self._watch(number, self._wanted(number))

    def uncork_later(self, corked: Corked) -> None:
        """Call `uncork` when the present group of files is served."""
        self._corked.append(corked)

    def serve(self) -> None:
        """Call the readers and writers of files that are ready now, as many as are one loop's turn."""
        epoll = self._epoll
        if epoll is None:  # closed by what the loop called just before
            return
        self._fresh.clear()
        events = epoll.poll(0, _MOST)
        if len(events) == 1:
            self._call(events[0][0], events[0][1])
        else:
            self._serve(events)

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """The loop's files that are ready, after at most that many seconds; meanwhile others are served."""
        self.news = False
        wait = -1.0 if timeout is None else timeout if timeout > 0 else 0.0
        until = monotonic() + wait if wait > 0 else 0.0
        epoll = self._epoll
        assert epoll is not None
        while True:
            self._fresh.clear()
            more = bool(self._later)
            events = epoll.poll(0.0 if more else wait, _MOST)
            if len(events) == 1:
                self._call(events[0][0], events[0][1])
            else:
                self._serve(events)
            if self._later:
                self._serve_later()
            ready = self._ready(events) if len(events) != 1 or events[0][0] in self._keys else []
            if ready or self.news or not (events or more) or wait == 0:
                return ready
            if wait > 0:
                wait = until - monotonic()
                if wait <= 0:
                    return ready

    def _ready(self, events: list[tuple[int, int]]) -> list[tuple[SelectorKey, int]]:
        """The loop's files among those, now that nobody closes any of them."""
        ready: list[tuple[SelectorKey, int]] = []
        for number, event in events:
            key = self._keys.get(number)
            if key is not None and number not in self._fresh:
                wanted = (EVENT_WRITE if event & ~_IN else 0) | (EVENT_READ if event & ~_OUT else 0)
                ready.append((key, key.events & wanted))
        return ready

    def _serve(self, events: list[tuple[int, int]]) -> None:
        """Call the readers and writers of several files in groups, behind which what they led to is sent."""
        for first in range(0, len(events), _GROUP):
            self.in_group = True
            try:
                for number, event in events[first : first + _GROUP]:
                    self._call(number, event)
            finally:
                self.in_group = False
                corked, self._corked = self._corked, []
                for one in corked:
                    one.uncork()

    def _serve_later(self) -> None:
        """One of those that have more to read has its next turn."""
        number = next(iter(self._later))
        self.watch(number, self._later.pop(number))
        self._fresh.discard(number)
        self._call(number, _IN)

    def _call(self, number: int, event: int) -> None:
        """Call who reads and writes that file, which may be closed meanwhile and its number another one's."""
        if number in self._fresh:
            return
        try:
            reader = self._readers.get(number)
            if reader is not None and event & ~_OUT:
                reader()
            if event & ~_IN and number not in self._fresh:
                writer = self._writers.get(number)
                if writer is not None:
                    writer()
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
        """Tell of a file no more. Raises KeyError."""
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
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None
        self._clear()

    def forked(self) -> None:
        """In a child of the process: watch nothing, and leave the parent's epoll alone. Raises OSError."""
        if self._epoll is not None:
            with select.epoll() as own:
                os.dup2(own.fileno(), self._epoll.fileno(), inheritable=False)
        self._clear()

    def _clear(self) -> None:
        self._keys.clear()
        self._readers.clear()
        self._writers.clear()
        self._later.clear()
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
        """The events of the connection, and those that the loop wants to hear of."""
        key = self._keys.get(number)
        return self._served(number) | (0 if key is None else _mask_of(key.events))

    def _watch(self, number: int, mask: int) -> None:
        """Have the kernel tell just that of it."""
        before = self._masks.get(number, 0)
        if mask == before:
            return
        epoll = self._epoll
        assert epoll is not None
        if not before:
            epoll.register(number, mask)
            self._fresh.add(number)
        elif mask:
            epoll.modify(number, mask)
        else:
            del self._masks[number]
            try:
                epoll.unregister(number)
            except OSError:  # closed before it was taken out
                pass
            return
        self._masks[number] = mask


def _mask_of(events: int) -> int:
    return (_IN if events & EVENT_READ else 0) | (_OUT if events & EVENT_WRITE else 0)
