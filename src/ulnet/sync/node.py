"""A node whose methods wait for their result."""

from __future__ import annotations

import atexit
import errno
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, ParamSpec, Self, TypeVar, cast

import ulnet.node
from ulnet.core.md import Buffer
from ulnet.core.selection import Explanation
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from ulnet.node.operations import PingResult
from ulnet.sync.thread import LoopThread

__all__ = ["Node", "Part"]

P = ParamSpec("P")
T = TypeVar("T")
_RUN: Final = "give a coroutine function (`async def`) and its arguments; node.do calls plain functions"
_DO: Final = "give a plain function and its arguments; node.run runs coroutine functions (`async def`)"
_DRAIN: Final = 5.0
_LAST_DRAIN: Final = 0.5  # seconds, at the end of the program
_PATIENCE: Final = 10.0  # seconds beyond that until a loop that does not answer is given up


class Part(ABC):
    """What lives on a node in one of its lives, and is closed before it."""

    def __init__(self, node: Node) -> None:
        _must_be_node(node)
        self._node = node
        self._thread = node.thread

    @abstractmethod
    async def _end(self) -> None:
        """End it, in the loop; a second call changes nothing."""

    def close(self) -> None:
        """End it; a second call changes nothing, nor does one in a process that was forked."""
        if self._thread.elsewhere:
            return
        self._thread.check()
        self._node.parts.pop(self, None)
        with suppress(LNetError, TimeoutError):  # its node was closed, or something blocks the loop
            self._thread.run(self._end, patience=_PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Node:
    """One LNet node, with a thread in which its event loop runs: `with Node() as node:`.

    Options are those of `ulnet.Node`. All methods may be called from any thread but the node's own, and by
    many at once. A program that ends without `close` has the node closed then.

    It lives in the process that started it. In one that is forked of that all calls raise
    LNetError(ENETDOWN), and `close` changes nothing: make a node there, or start processes by `spawn`.
    """

    def __init__(self, *, tcp: TcpParams | None = None, **options: Any) -> None:
        self.node: ulnet.Node = ulnet.node.Node(tcp=tcp, **options)
        self.parts: dict[Part, None] = {}  # in the order in which they were made
        self._thread: LoopThread | None = None
        self._lock = threading.Lock()  # of starting and closing

    # Life ------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Bring up LNet with `0@lo` alone; a second call changes nothing. Raises LNetError."""
        if self._thread is not None and self._thread.elsewhere:  # the lock may be held for good
            self._thread.check()
        with self._lock:
            if self._thread is None:
                thread = self._thread = LoopThread("ulnet node")
                try:
                    thread.run(self.node.start)
                except BaseException:
                    self._thread = None
                    thread.stop()
                    raise
                _open[self] = None
        return self

    def close(self, drain: float = _DRAIN) -> None:
        """Close what lives on it, then the node; messages under way get `drain` seconds.

        What other threads wait for ends with ESHUTDOWN. Raises LNetError(EDEADLK) in its own thread.
        """
        if self._thread is not None and self._thread.elsewhere:
            return
        with self._lock:
            thread = self._thread
            if thread is None:
                return
            thread.check()
            try:
                self.close_parts()
                thread.run(lambda: self.node.close(drain), patience=drain + _PATIENCE)
            except TimeoutError:
                pass  # something blocks the loop; its thread keeps nobody from going on
            finally:
                self._thread = None
                _open.pop(self, None)
                thread.stop()

    def close_parts(self) -> None:
        """Close what lives on it, the last first."""
        for part in reversed(list(self.parts)):
            part.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether the node is started, in this process."""
        return self._thread is not None and not self._thread.elsewhere

    @property
    def thread(self) -> LoopThread:
        """Its loop's thread. Raises LNetError(ENETDOWN) before `start`, after `close`, and in a fork."""
        thread = self._thread
        if thread is None:
            raise LNetError(errno.ENETDOWN, "LNet is not configured on this node: start it first")
        if thread.elsewhere:
            thread.check()
        return thread

    # Everything ------------------------------------------------------------------------------------

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function in the node's loop: `node.run(node.node.primary_nid, "10.0.0.2@tcp")`.

        Raises TypeError for a plain function: `do` calls those.
        """

        def make() -> Coroutine[Any, Any, T]:
            given: Any = function
            made: Any = given(*args, **kwargs) if callable(given) else given
            if not inspect.isawaitable(made):
                raise TypeError(f"node.run({_named(function)}): {_RUN}")
            return cast(Coroutine[Any, Any, T], made)

        return self.thread.run(make)

    def do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the node's thread, where it must not wait: `node.do(topic.publish, b"news")`.

        Raises TypeError for a coroutine function: `run` runs those.
        """

        async def call() -> T:
            made = function(*args, **kwargs)
            if inspect.iscoroutine(made):
                made.close()
                raise TypeError(f"node.do({_named(function)}): {_DO}")
            return made

        return self.thread.run(call)

    # Configuration ---------------------------------------------------------------------------------

    def add_ni(self, nid: Nid | str, **options: Any) -> Nid:
        """Add the NI of one address, with the options of `ulnet.Node.add_ni`. Raises LNetError."""
        return self.do(lambda: self.node.add_ni(nid, **options).nid)

    def del_ni(self, nid: Nid | str) -> None:
        """Remove an NI; messages that it sends or receives fail. Raises LNetError."""
        self.do(self.node.del_ni, nid)

    # Messages --------------------------------------------------------------------------------------

    def put(
        self,
        target: Nid | str,
        portal: int,
        match_bits: int,
        data: Buffer | list[Buffer],
        *,
        ack: bool = True,
        offset: int = 0,
        hdr_data: int = 0,
        source: Nid | str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Send up to 1 MiB; answers how many bytes were taken. See `ulnet.Node.put`. Raises LNetError."""
        return self.run(
            self.node.put,
            target,
            portal,
            match_bits,
            data,
            ack=ack,
            offset=offset,
            hdr_data=hdr_data,
            source=source,
            timeout=timeout,
        )

    def get(
        self,
        target: Nid | str,
        portal: int,
        match_bits: int,
        buffer: bytearray | memoryview,
        *,
        offset: int = 0,
        source: Nid | str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Fetch up to len(buffer) bytes; answers how many came. See `ulnet.Node.get`. Raises LNetError."""
        return self.run(
            self.node.get, target, portal, match_bits, buffer, offset=offset, source=source, timeout=timeout
        )

    def ping(self, target: Nid | str, *, timeout: float = 1.0, source: Nid | str | None = None) -> PingResult:
        """Ask a node for its NIDs. Raises LNetError."""
        return self.run(self.node.ping, target, timeout=timeout, source=source)

    def discover(
        self, target: Nid | str, *, force: bool = False, timeout: float | None = None
    ) -> tuple[Nid, ...]:
        """Find out anew which NIDs the node behind `target` has: the primary one first. Raises LNetError."""

        async def discover() -> tuple[Nid, ...]:
            peer = await self.node.discover(target, force=force, timeout=timeout)
            return tuple(peer.nids())

        return self.run(discover)

    def explain(self, target: Nid | str, *, source: Nid | str | None = None, size: int = 0) -> Explanation:
        """Which path a request of `size` bytes would take now, and why. Raises LNetError."""
        return self.do(self.node.explain, target, source=source, size=size)


def _must_be_node(node: object) -> None:
    if not isinstance(node, Node):
        raise TypeError(f"{type(node).__name__} in place of the node: give a started ulnet.sync.Node")


def _named(function: object) -> str:
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else repr(function)


_open: dict[Node, None] = {}  # in the order in which they began


def _close_all() -> None:
    """At the end of the program. Nothing is waited for longer than a few seconds."""
    nodes = list(reversed(_open))
    for node in nodes:
        node.close_parts()
    for node in nodes:
        node.close(_LAST_DRAIN)


atexit.register(_close_all)
