"""Control messages between slaves, on the reserved portal (docs/wire-bond.md).

Strangers get nothing but the GET of a beacon, which nodes that know no bonding drop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_GET, TRUNCATE, Md
from ulnet.core.status import LNetError
from ulnet.wire.bond import BEACON_SIZE, KIND_BITS, MATCH_BITS, Beacon, Kind
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import PING_PORTAL

if TYPE_CHECKING:
    from ulnet.bond.contract import MasterUpcalls
    from ulnet.core.ni import NI
    from ulnet.nid import Nid

__all__ = ["VERSION", "ControlChannel", "Received"]

VERSION: Final = 1
_BUFFER_SIZE: Final = 4096  # the longest HELLO takes about half

Received = Callable[[Kind, bytes, "Nid", "Nid"], None]


class ControlChannel:
    """Of one node. `received` gets kind, bytes, the slave's NID that they came to, and their sender's."""

    def __init__(self, core: MasterUpcalls, received: Received) -> None:
        self._core = core
        self._received = received
        # Who believes that its HELLO was taken sends no other: what is given up is not acknowledged.
        # fmt: off
        self._buffers = core.reserve(self._arrived, match_bits=MATCH_BITS, ignore_bits=KIND_BITS,
                                     size=_BUFFER_SIZE, ack=False)
        # fmt: on
        self._beacon: Md | None = None
        self._under_way: dict[_Exchange, None] = {}
        self._open = False

    def open(self) -> None:
        """Take messages; once is enough."""
        if self._open:
            return
        self._open = True
        memory = self._core.memory
        me = memory.me_attach(PING_PORTAL, match_bits=MATCH_BITS)
        self._beacon = memory.md_attach(me, b"", options=OP_GET | TRUNCATE | MANAGE_REMOTE, auto_unlink=False)
        self._buffers.open()

    def close(self) -> None:
        """Take no more, and give up what is under way: nobody hears of it."""
        self._open = False
        for exchange in list(self._under_way):
            exchange.abandon()
        self._under_way.clear()
        self._buffers.close()
        if self._beacon is not None:
            self._core.memory.md_unlink(self._beacon)
            self._beacon = None

    def show(self, incarnations: list[tuple[int, int]]) -> None:
        """What a beacon tells from now on: nets and incarnations."""
        if self._beacon is not None:
            data = memoryview(Beacon(VERSION, tuple(incarnations)).pack())
            self._beacon.fragments = [data]
            self._beacon.length = data.nbytes

    # Sending ---------------------------------------------------------------------------------------

    def ask(self, ni: NI, nid: Nid, timeout: float, done: Callable[[Beacon | None], None]) -> None:
        """Is there anybody at nid, seen from ni, who knows bonding? `done` hears once, later."""
        sink = bytearray(BEACON_SIZE)

        def heard(event: Event | None) -> None:
            try:
                done(Beacon.unpack(sink[: event.mlength]) if event is not None else None)
            except WireError:
                done(None)

        exchange = _Exchange(self._core, EventKind.REPLY, heard, self._under_way)
        md = exchange.bind(sink, timeout, TRUNCATE)
        self._start(
            exchange, lambda: self._core.get(md, nid, PING_PORTAL, MATCH_BITS, source=ni.nid, exact=True)
        )

    def tell(
        self, ni: NI, nid: Nid, kind: Kind, data: bytes, timeout: float, done: Callable[[bool], None]
    ) -> None:
        """Send a message to somebody who knows bonding; `done` hears once, later, whether it arrived."""
        exchange = _Exchange(
            self._core, EventKind.ACK, lambda event: done(event is not None), self._under_way
        )
        md = exchange.bind(data, timeout, 0)
        self._start(exchange, lambda: self._core.put(md, nid, PING_PORTAL, MATCH_BITS | kind, source=ni.nid))

    def _start(self, exchange: _Exchange, send: Callable[[], None]) -> None:
        try:
            send()
        except LNetError:  # the node shuts down
            self._core.defer(exchange.end, None)

    # Receiving -------------------------------------------------------------------------------------

    def _arrived(self, event: Event) -> None:
        kind = event.match_bits & KIND_BITS
        whole = event.kind is EventKind.PUT and not event.status
        # What claims to come from somebody else could have answers sent to a node that must not get them.
        if whole and event.sender == event.source and Kind.BEACON < kind <= Kind.ANSWER:
            self._received(Kind(kind), bytes(event.data), event.target, event.source)


class _Exchange:
    """One message and its answer."""

    __slots__ = ("_all", "_core", "_done", "_md", "_wanted")

    def __init__(
        self,
        core: MasterUpcalls,
        wanted: EventKind,
        done: Callable[[Event | None], None],
        all_of_them: dict[_Exchange, None],
    ) -> None:
        self._core = core
        self._wanted = wanted
        self._done: Callable[[Event | None], None] | None = done
        self._md: Md | None = None
        self._all = all_of_them

    def bind(self, data: bytes | bytearray, timeout: float, options: int) -> Md:
        """Its memory descriptor."""
        self._all[self] = None
        self._md = self._core.memory.md_bind(
            data, self._handle, threshold=2, timeout=timeout, options=options
        )
        return self._md

    def _handle(self, event: Event) -> None:
        if event.kind is self._wanted and not event.status:
            self.end(event)
        elif event.status or event.unlinked:
            self.end(None)

    def end(self, event: Event | None) -> None:
        """The request was answered, or (None) never will be."""
        done, self._done = self._done, None
        self._all.pop(self, None)
        self._release()
        if done is not None:
            done(event)

    def abandon(self) -> None:
        """Forget the request: nobody waits for its answer any more."""
        self._done = None
        self._release()

    def _release(self) -> None:
        md, self._md = self._md, None
        if md is not None:
            self._core.memory.md_unlink(md)
