"""Memory descriptors: who owns which bytes, and what may be done to them (spec md-me-eq.md §3)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from enum import IntFlag
from typing import TYPE_CHECKING

from ulnet.core.status import LNetError
from ulnet.nid import LO_NID
from ulnet.wire.lnet import LNET_MTU

if TYPE_CHECKING:
    from ulnet.core.event import Event
    from ulnet.core.msg import Incoming, Msg
    from ulnet.core.ni import NI
    from ulnet.core.path_load import InFlight
    from ulnet.core.peer import PeerNi
    from ulnet.core.portal import MatchEntry
    from ulnet.nid import Nid

__all__ = [
    "INFINITE",
    "MAX_FRAGMENTS",
    "Buffer",
    "EventHandler",
    "Md",
    "MdOption",
    "checked_timeout",
    "fragments_of",
]

Buffer = bytes | bytearray | memoryview
EventHandler = Callable[["Event"], None]
Keeper = Callable[["Md"], None]

INFINITE = -1
MAX_FRAGMENTS = 256
MAX_TIMEOUT = 1_000_000_000  # seconds


def checked_timeout(timeout: float) -> float:
    """Seconds that an operation may take. Raises LNetError(EINVAL)."""
    if not 0 <= timeout <= MAX_TIMEOUT:
        raise LNetError(errno.EINVAL, f"timeout {timeout:.15g}: must be 0 to {MAX_TIMEOUT} seconds")
    return timeout


class MdOption(IntFlag):
    """What may be done with memory, and how (bits of spec md-me-eq.md §3).

    - `OP_PUT`, `OP_GET`: peers may write, or read; attached memory has at least one.
    - `MANAGE_REMOTE`: the sender's `offset` decides where bytes land or begin; without it each operation
      begins where the one before ended, so that memory fills up.
    - `TRUNCATE`: what is longer than the room left is cut; without it such a message is dropped.
    - `MAX_SIZE`: no operation is longer than `max_size`, and the memory ends once less than that is left.
    - `ACK_DISABLE`: a PUT is never acknowledged, also where its sender asks for it.
    - `TRACK_RESPONSE`: answers to what is sent from this memory are waited for, whatever the node's
      `response_tracking` says; `NO_TRACK_RESPONSE`: they are not (of both, this one wins).
    """

    OP_PUT = 0x0001
    OP_GET = 0x0002
    MANAGE_REMOTE = 0x0004
    TRUNCATE = 0x0010
    ACK_DISABLE = 0x0020
    MAX_SIZE = 0x0080
    TRACK_RESPONSE = 0x0400
    NO_TRACK_RESPONSE = 0x0800


# Plain ints: IntFlag arithmetic costs about a microsecond a message.
OP_PUT = 0x0001
OP_GET = 0x0002
MANAGE_REMOTE = 0x0004
TRUNCATE = 0x0010
ACK_DISABLE = 0x0020
MAX_SIZE = 0x0080
TRACK_RESPONSE = 0x0400
NO_TRACK_RESPONSE = 0x0800
FOR_TARGETS = OP_PUT | OP_GET


def fragments_of(start: Buffer | Sequence[Buffer]) -> list[memoryview]:
    """The memory of an MD as flat byte views, without copying.

    Whatever lends its memory serves (an array, an mmap), and a list or tuple of such. Raises
    LNetError(EINVAL) for what has none, for more than 256 fragments, or memory that is not contiguous.
    """
    pieces: Sequence[Buffer]
    pieces = start if isinstance(start, (list, tuple)) else [start]  # type: ignore[list-item]
    if len(pieces) > MAX_FRAGMENTS:
        raise LNetError(
            errno.EINVAL,
            f"memory descriptor of {len(pieces)} fragments: at most {MAX_FRAGMENTS} are allowed; join some",
        )
    views = []
    for piece in pieces:
        try:
            view = memoryview(piece)
        except TypeError:
            raise LNetError(
                errno.EINVAL,
                f"memory of type {type(piece).__name__}: give bytes, a bytearray or a memoryview, "
                "or a list of such",
            ) from None
        if not view.c_contiguous:
            raise LNetError(
                errno.EINVAL, "memory descriptor over a strided view: give contiguous memory instead"
            )
        if view.ndim != 1 or view.format != "B":
            view = view.cast("B")
        views.append(view)
    return views


class Md:
    """One memory descriptor; made by the instance's `md_bind` and `md_attach`, ended by its last event.

    `length` is in bytes over all fragments, `threshold` counts the operations left (-1: no limit),
    `offset` is the running, locally managed one.
    """

    __slots__ = (
        "aborted",
        "acks_due",
        "arriving",
        "asked",
        "asked_too",
        "auto_unlink",
        "cpt",
        "deadline_slot",
        "fragments",
        "handle",
        "handler",
        "in_flight",
        "keepers",
        "key",
        "lasting",
        "length",
        "linked",
        "max_size",
        "me",
        "next_nid",
        "ni",
        "offset",
        "options",
        "put",
        "quiet",
        "refs",
        "replies_due",
        "sends",
        "sent_at",
        "threshold",
        "timeout",
        "until",
        "used",
        "user_ptr",
        "wheel_slot",
        "wmd",
    )

    def __init__(
        self,
        fragments: list[memoryview],
        handler: EventHandler | None,
        *,
        threshold: int = INFINITE,
        options: int = 0,
        max_size: int = 0,
        user_ptr: object = None,
        auto_unlink: bool = True,
        timeout: float | None = None,
    ) -> None:
        self.fragments: list[memoryview] = fragments
        self.length: int = (
            fragments[0].nbytes if len(fragments) == 1 else sum(view.nbytes for view in fragments)
        )
        self.handler: Callable[[Event], None] | None = handler
        self.threshold: int = threshold
        self.options: int = options
        self.max_size: int = max_size
        self.user_ptr: object = user_ptr
        self.auto_unlink: bool = auto_unlink
        self.cpt: int = 0  # where its memory is near
        self.timeout: float | None = None  # seconds; None: the transaction timeout, for responses
        self.handle: int = 0
        self.key: int = 0  # of its place in the deadlines: the first handle it had
        self.wmd: bytes = b""  # its handle on the wire (spec wire-lnet.md §3)
        self.lasting: bool = False  # bound anew when it is over: its places elsewhere are kept
        self.quiet: bool = False  # its owner does not want to hear that something has left
        self.me: MatchEntry | None = None
        self.offset: int = 0
        self.refs: int = 0  # operations under way
        self.arriving: list[Incoming] | None = None  # payloads, where its owner may reclaim it
        self.acks_due: int = 0  # answers that were asked for: others are not taken
        self.replies_due: int = 0
        self.asked: PeerNi | None = None  # whom its last request went to: only that node may answer …
        self.asked_too: set[Nid] | None = None  # … and NIDs asked before it, whose answers may still be due
        self.aborted: int = 0  # errno that successful completions turn into, after md_unlink while busy
        self.linked: bool = False
        self.sends: bool = False  # bound, and not about to go
        self.deadline_slot: int = -1  # when its answer is overdue; -1: none is waited for
        self.wheel_slot: int = -1  # where it is entered, which may be later than that is known to be over
        self.sent_at: float = 0.0
        self.until: float = 0.0  # what is sent before that time keeps the place in the deadlines
        self.next_nid: Nid | None = None  # the next hop of its last message
        self.ni: NI | None = None  # and where that left
        self.in_flight: list[InFlight] = []  # requests that await their answer
        self.put: Msg | None = None  # its PUT, whose ACK is due, that has an identity or may get one
        self.keepers: set[Keeper] | None = None  # who hold something of it from one message to the next
        self.used: bool = False  # its handle has been an identity
        _must_be_callable(handler)
        if options & MAX_SIZE and not 0 <= max_size <= self.length:
            raise LNetError(
                errno.EINVAL, f"max_size {max_size} of a memory descriptor: must lie in 0..{self.length}"
            )
        if threshold < INFINITE:
            raise LNetError(
                errno.EINVAL,
                f"threshold {threshold}: must be a number of operations, or {INFINITE} for no limit",
            )
        self.set_timeout(timeout)

    def set_timeout(self, timeout: float | None) -> None:
        """Give each operation so many seconds. Raises LNetError(EINVAL)."""
        self.timeout = None if timeout is None else checked_timeout(timeout)

    def asks(self, whom: PeerNi) -> None:
        """A request goes to another NID than the one before; it is counted among the answers due."""
        before = self.asked
        if self.acks_due + self.replies_due <= 1:
            self.asked_too = None
        elif before is not None and before.peer is not whom.peer:
            if self.asked_too is None:
                self.asked_too = set()
            self.asked_too.add(before.nid)
        self.asked = whom

    def has_asked(self, sender: PeerNi) -> bool:
        """Whether an answer of that sender is one that was asked for: of that NID, or another of its node."""
        asked = self.asked
        if asked is None:
            return False
        if asked is sender or asked.peer is sender.peer or asked.nid == sender.nid or sender.nid == LO_NID:
            return True
        others = self.asked_too
        return others is not None and (sender.nid in others or not others.isdisjoint(sender.peer.members))

    def keep(self, keeper: Keeper) -> None:
        """Call keeper when this descriptor is gone, or has another handle."""
        if self.keepers is None:
            self.keepers = set()
        self.keepers.add(keeper)

    def let_go(self, keeper: Keeper) -> None:
        """keeper has nothing of this descriptor any more."""
        if self.keepers is not None:
            self.keepers.discard(keeper)

    def forget_keepers(self) -> None:
        """Have all of them forget it."""
        keepers, self.keepers = self.keepers, None
        if keepers is not None:
            for keeper in keepers:
                keeper(self)

    @property
    def exhausted(self) -> bool:
        """Whether no further operation fits."""
        return self.threshold == 0 or (
            self.options & MAX_SIZE != 0 and self.offset + self.max_size > self.length
        )

    def slices(self, offset: int, length: int) -> list[memoryview]:
        """The views of `length` bytes from `offset`; the caller has checked the bounds."""
        fragments = self.fragments
        if len(fragments) == 1:
            if not offset and length == self.length:
                return fragments
            return [fragments[0][offset : offset + length]]
        found = []
        for view in fragments:
            size = view.nbytes
            if offset >= size:
                offset -= size
                continue
            take = min(size - offset, length)
            if take:
                found.append(view[offset : offset + take])
            length -= take
            offset = 0
            if not length:
                break
        return found


def _must_be_callable(handler: object) -> None:
    if handler is not None and not callable(handler):
        raise LNetError(
            errno.EINVAL,
            f"event handler of type {type(handler).__name__}: give a function of one event, or None",
        )


def check_bindable(md: Md) -> None:
    """The rules of MDBind: at most one message's payload, no target options. Raises LNetError(EINVAL)."""
    if md.length > LNET_MTU:
        raise LNetError(
            errno.EINVAL,
            f"memory descriptor of {md.length} bytes: one message carries at most {LNET_MTU}; send several",
        )
    if md.options & FOR_TARGETS:
        raise LNetError(errno.EINVAL, "OP_PUT and OP_GET belong to attached descriptors; bind without them")


def check_sink(md: Md) -> None:
    """A GET writes into its memory. Raises LNetError(EINVAL)."""
    for view in md.fragments:
        if view.readonly:
            raise LNetError(
                errno.EINVAL, "GET into read-only memory: give a bytearray or a writable memoryview"
            )


def check_attachable(md: Md) -> None:
    """The rules of MDAttach. Raises LNetError(EINVAL)."""
    if not md.options & (OP_PUT | OP_GET):
        raise LNetError(errno.EINVAL, "an attached memory descriptor needs OP_PUT or OP_GET or both")
    if md.options & OP_PUT and any(view.readonly for view in md.fragments):
        raise LNetError(errno.EINVAL, "OP_PUT on read-only memory: give a bytearray or a writable memoryview")
