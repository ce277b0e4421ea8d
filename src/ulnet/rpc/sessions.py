"""A server's sessions: which request is new, which one is a repetition, and which is too old.

No I/O, no clock: times are arguments, in seconds.
"""

from __future__ import annotations

import heapq
from enum import Enum, auto
from itertools import count, islice
from typing import Final, Generic, TypeVar

from ulnet.nid import Nid
from ulnet.rpc.lane import Lane

__all__ = ["Session", "Sessions", "Slot", "Verdict"]

T = TypeVar("T")


class Verdict(Enum):
    """What a request is."""

    NEW = auto()
    RUNNING = auto()  # a repetition of one that runs, or waits for its turn
    ANSWERED = auto()  # a repetition, and the reply is kept
    FORGOTTEN = auto()  # a repetition, and the reply is not kept any more
    OLD = auto()  # its call has ended
    WRONG = auto()  # there is no such slot


_NEW: Final = Verdict.NEW  # enumerations are not compiled
_LEAST: Final = 4  # sessions that any client may have …
_LOOKED_AT: Final = 16  # … and how many of its own are looked at, for one that can make room for another
_SIZES: Final = 64  # classes of accounts, by the bits of the bytes of their replies, or of a count
_EXPIRE: Final = 1000  # replies that are looked at together: very many may be kept until one moment
_GONE: Final = 64  # entries of sessions that are gone, that may stay in the heap


class Slot(Generic[T]):
    """The last request of a slot: while it runs `running`, then its `reply` as long as that is kept."""

    __slots__ = ("given_up", "keep_until", "number", "reply", "running", "watched")

    def __init__(self) -> None:
        self.number: int = 0
        self.running: T | None = None
        self.reply: bytes | None = None
        self.given_up: bool = False
        self.keep_until: float = 0.0
        self.watched: bool = False  # it is in the heap of those whose reply is to be forgotten


class Account(Generic[T]):
    """What is kept of one client: its sessions by number, its replies, the oldest first, and their bytes.

    `quiet` are sessions that had only kept replies when they were last looked at, the first of them first.
    """

    __slots__ = ("count", "kept", "quiet", "replies", "sessions", "size")

    def __init__(self) -> None:
        self.sessions: dict[int, Session[T]] = {}
        self.replies: dict[Slot[T], Session[T]] = {}
        self.kept: int = 0
        self.size: int = 0  # the class of accounts that it is in, by the bytes of its replies …
        self.quiet: dict[int, Session[T]] = {}
        self.count: int = 0  # … and by how many these are


class Session(Generic[T]):
    """What the server keeps of one client; `client` is its primary NID, `inbox` the match bits there.

    `owner` is the primary NID that it had when the session was made: what a client may have counts by that.
    `nids` are others that it has told, from which it may ask as well. `lanes` are the ways of replies, by the
    NID that asked and the one that it asked; `lane` is the last one.
    """

    __slots__ = (
        "account",
        "busy",
        "client",
        "id",
        "inbox",
        "knows",
        "lane",
        "lanes",
        "largest",
        "nids",
        "owner",
        "replies",
        "slots",
        "used",
        "width",
    )

    def __init__(
        self, account: Account[T], number: int, client: Nid, inbox: int, width: int, largest: int
    ) -> None:
        self.account: Account[T] = account
        self.id: int = number
        self.client: Nid = client
        self.owner: Nid = client
        self.inbox: int = inbox
        self.width: int = width
        self.largest: int = largest
        self.slots: dict[int, Slot[T]] = {}
        self.nids: tuple[Nid, ...] = ()
        self.knows: int = 0  # bits, as CONNECT and CONNECTED have them
        self.lanes: dict[tuple[Nid, Nid], Lane] = {}
        self.lane: Lane | None = None
        self.used: bool = True  # since it was last to be forgotten
        self.busy: int = 0  # requests that run or wait, and replies that are kept
        self.replies: int = 0  # of these, the replies

    def judge(self, slot: int, number: int) -> Verdict:
        """What a request with that number is. It counts once `begin` was called."""
        if slot >= self.width or not number:
            return Verdict.WRONG
        held = self.slots.get(slot)
        if held is None or number > held.number:
            return _NEW
        if number < held.number or held.given_up:
            return Verdict.OLD
        if held.running is not None:
            return Verdict.RUNNING
        return Verdict.FORGOTTEN if held.reply is None else Verdict.ANSWERED


class Sessions(Generic[T]):
    """Those of one server: `most` of them, and at most `kept_bytes` of replies.

    A client has as many as others leave free, at most: so there is always room for the next one. Where there
    are too many bytes of replies, a client that has most of them (or at least half as many as who has most)
    loses its oldest reply. Where all sessions are busy, a client that has most of those with nothing but kept
    replies (or half as many) loses the oldest of them.
    """

    def __init__(self, most: int, kept_bytes: int) -> None:
        self._most = most
        self._room = kept_bytes
        self.kept: int = 0  # bytes of replies
        self._by_id: dict[int, Session[T]] = {}
        self._idle: dict[int, Session[T]] = {}  # of these; who may be forgotten first, first
        self._of: dict[Nid, Account[T]] = {}  # all, by owner
        self._by_size: list[dict[Account[T], None]] = [{} for _ in range(_SIZES)]
        self._by_count: list[dict[Account[T], None]] = [{} for _ in range(_SIZES)]  # of quiet sessions
        self._gone = 0  # entries of the heap whose sessions are gone
        self._heap: list[tuple[float, int, Session[T], Slot[T]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, number: int) -> Session[T] | None:
        """The session of that number, which is used now."""
        session = self._by_id.get(number)
        if session is not None:
            session.used = True
        return session

    def make(self, number: int, client: Nid, inbox: int, width: int, largest: int) -> Session[T] | None:
        """A new one; None if there is no room for it in all or for this client, or the number is taken."""
        if number in self._by_id or not number:
            return None
        own = self._of.get(client)
        free = self._most - len(self._by_id)
        if own is not None and len(own.sessions) >= max(free, _LEAST):
            has_room = self._forget_one_of(own.sessions)
        else:
            has_room = free > 0 or self._forget_one()
        if not has_room:
            return None
        own = self._of.get(client)
        if own is None:
            own = self._of[client] = Account()
        session: Session[T] = Session(own, number, client, inbox, width, largest)
        self._by_id[number] = self._idle[number] = own.sessions[number] = session
        return session

    def _forget_one(self) -> bool:
        """Of those in which nothing is under way, one that was not used since it was last looked at.

        If there is none: one of which only replies are kept, of who has most of these.
        """
        for _ in range(2 * len(self._idle)):
            session = self._idle.pop(next(iter(self._idle)))
            if not session.used:
                self._remove(session)
                return True
            session.used = False
            self._idle[session.id] = session
        for accounts in reversed(self._by_count):
            while accounts:
                if self._forget_quiet_one(next(iter(accounts))):
                    return True
        return False

    def _forget_quiet_one(self, account: Account[T]) -> bool:
        """The same of a client's that are quiet; those in which something runs are not any more."""
        quiet = account.quiet
        while quiet:  # at most twice
            session = quiet.pop(next(iter(quiet)))
            if session.busy == session.replies:
                if not session.used:
                    self._remove(session)
                    break
                session.used = False
                quiet[session.id] = session
        self._count_quiet(account)
        return session.id not in self._by_id

    def _forget_one_of(self, own: dict[int, Session[T]]) -> bool:
        """The same of one client's, of which a few are looked at."""
        for session in list(islice(own.values(), _LOOKED_AT)):
            if not session.busy:
                self._remove(session)
                return True
            own[session.id] = own.pop(session.id)
        return False

    def _remove(self, session: Session[T]) -> None:
        if self._by_id.pop(session.id, None) is None:
            return
        self._idle.pop(session.id, None)
        if session.account.quiet.pop(session.id, None) is not None:
            self._count_quiet(session.account)
        for slot in session.slots.values():
            self._drop_reply(session, slot)
        del session.account.sessions[session.id]
        if not session.account.sessions:
            del self._of[session.owner]
        self._gone += sum([slot.watched for slot in session.slots.values()])
        if self._gone > max(_GONE, len(self._heap) >> 1):  # else they would stay until the time of the reply
            self._heap = [entry for entry in self._heap if entry[2].id in self._by_id]
            heapq.heapify(self._heap)
            self._gone = 0

    def end(self, session: Session[T]) -> list[T]:
        """The client has closed it; what still runs in it."""
        self._remove(session)
        running = []
        for slot in session.slots.values():
            if slot.running is not None:
                running.append(slot.running)
        return running

    def _is_less_busy(self, session: Session[T]) -> None:
        session.busy -= 1
        if session.id not in self._by_id:
            return
        if not session.busy:
            self._idle[session.id] = session
        elif session.busy == session.replies:
            self._is_quiet(session)

    def _is_quiet(self, session: Session[T]) -> None:
        """It has kept replies, and nothing else."""
        account = session.account
        if session.id not in account.quiet:
            account.quiet[session.id] = session
            self._count_quiet(account)

    def _count_quiet(self, account: Account[T]) -> None:
        count = len(account.quiet).bit_length()
        if count != account.count:
            if account.count:
                del self._by_count[account.count][account]
            if count:
                self._by_count[count][account] = None
            account.count = count

    # Requests --------------------------------------------------------------------------------------

    def begin(self, session: Session[T], slot: int, number: int, request: T) -> T | None:
        """A new request was taken; the one that still runs in its slot, which its client has given up."""
        held = session.slots.get(slot)
        if held is None:
            held = session.slots[slot] = Slot()
        before = held.running
        if before is None:
            session.busy += 1
            self._idle.pop(session.id, None)
        self._drop_reply(session, held)
        held.number = number
        held.running = request
        held.given_up = False
        return before

    def end_request(
        self, session: Session[T], slot: int, number: int, reply: bytes | None, keep_until: float
    ) -> bool:
        """A request has ended; its reply is kept until that time. False: nobody waits for it any more."""
        held = session.slots[slot]
        if held.number != number or held.running is None:
            return False
        held.running = None
        if reply is None or session.id not in self._by_id:
            self._is_less_busy(session)
            held.given_up = reply is None
            return reply is not None
        held.reply = reply  # it is busy as before, with its reply
        session.replies += 1
        if session.busy == session.replies:
            self._is_quiet(session)
        held.keep_until = keep_until
        session.account.replies[held] = session
        self._count(session.account, len(reply))
        if not held.watched:
            held.watched = True
            heapq.heappush(self._heap, (keep_until, next(self._order), session, held))
        while self.kept > self._room:
            self._forget_for_room()
        return True

    def take_back(self, session: Session[T], slot: int, number: int) -> None:
        """A request that had only waited was sent away: it is new when it comes again."""
        held = session.slots.get(slot)
        if held is not None and held.number == number and held.running is not None:
            held.running = None
            held.number = number - 1
            held.given_up = True  # of the one before nobody knows any more: it has ended
            self._is_less_busy(session)

    def give_up(self, session: Session[T], slot: int, number: int) -> T | None:
        """The client gives a request up, which may not even be here yet; what is to be cancelled."""
        if slot >= session.width:
            return None
        held = session.slots.get(slot)
        if held is None:
            held = session.slots[slot] = Slot()
        if number < held.number:
            return None
        self._drop_reply(session, held)
        running, held.running = held.running, None
        if running is not None:
            self._is_less_busy(session)
        held.number = number
        held.given_up = True
        return running

    # Replies that are kept -------------------------------------------------------------------------

    def _drop_reply(self, session: Session[T], slot: Slot[T]) -> None:
        if slot.reply is not None:
            del session.account.replies[slot]
            self._count(session.account, -len(slot.reply))
            slot.reply = None
            session.replies -= 1
            self._is_less_busy(session)

    def _count(self, account: Account[T], change: int) -> None:
        """So many bytes more are kept of a client."""
        self.kept += change
        account.kept += change
        size = account.kept.bit_length()
        if size != account.size:
            if account.size:
                del self._by_size[account.size][account]
            if size:
                self._by_size[size][account] = None
            account.size = size

    def _forget_for_room(self) -> None:
        """The oldest reply of a client of which most is kept: nobody's excess makes others lose theirs."""
        for accounts in reversed(self._by_size):
            for account in accounts:
                slot, session = next(iter(account.replies.items()))
                self._drop_reply(session, slot)
                return

    def _forget_first(self) -> None:
        _, _, session, slot = heapq.heappop(self._heap)
        slot.watched = False
        if session.id not in self._by_id:
            self._gone -= 1
        self._drop_reply(session, slot)

    def expire(self, now: float) -> float | None:
        """Forget replies that nobody can ask for any more, some at a time.

        Returns when there is something to forget next: that may be before now.
        """
        heap = self._heap
        for _ in range(_EXPIRE):
            if not heap or heap[0][0] > now:
                break
            _, order, session, slot = heap[0]
            if slot.reply is not None and slot.keep_until > now:
                heapq.heapreplace(heap, (slot.keep_until, order, session, slot))
            else:
                self._forget_first()
        return heap[0][0] if heap else None
