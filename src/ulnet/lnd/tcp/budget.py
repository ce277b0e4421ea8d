"""How many attempts to connect are under way at once, and whose turn is next.

Peers that do not answer take a second of a place in turn while others wait, so that thousands of them cost
no more than a few do, and hold up nobody who answers. Where a peer has begun with TLS, or this node is at
work on that, they take some seconds: a busy machine needs them, and what it did is lost if the place goes to
others. Those to whom only answers are to be sent have half of the places at most: whom this node is to answer
others decide. On a router each hop whose messages have it connect has its turn, as the router itself has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ulnet.lnd.tcp.dialer import Dialer
    from ulnet.nid import Nid

__all__ = ["MOST_CALLS", "TLS_TURN", "TURN", "Budget"]

MOST_CALLS: Final = 128
MOST_ANSWERS: Final = 64  # of them, for answers alone
TURN: Final = 1.0  # seconds without an answer, after which a place goes to one who waits
TLS_TURN: Final = 5.0  # the same where the peer has begun with TLS, or waits for this node in that


class _Waiting:
    """Dialers that wait for a place, by whose messages are to go there (None: this node's own)."""

    __slots__ = ("_by_maker", "_makers")

    def __init__(self) -> None:
        self._by_maker: dict[Nid | None, dict[Dialer, None]] = {}  # the one whose turn it is comes first
        self._makers: dict[Dialer, Nid | None] = {}

    def __len__(self) -> int:
        return len(self._makers)

    def add(self, dialer: Dialer, maker: Nid | None) -> None:
        """It waits behind others of its maker."""
        if dialer not in self._makers:
            self._makers[dialer] = maker
            self._by_maker.setdefault(maker, {})[dialer] = None

    def remove(self, dialer: Dialer) -> Nid | None:
        """It waits no more; its maker is given back."""
        maker = self._makers.pop(dialer)
        own = self._by_maker[maker]
        del own[dialer]
        if not own:
            del self._by_maker[maker]
        return maker

    def has(self, dialer: Dialer) -> bool:
        """Whether it waits here."""
        return dialer in self._makers

    def take(self) -> Dialer:
        """The next one; others of its maker come after those of all other makers."""
        dialer = next(iter(next(iter(self._by_maker.values()))))
        maker = self.remove(dialer)
        left = self._by_maker.pop(maker, None)
        if left:
            self._by_maker[maker] = left
        return dialer


class Budget:
    """Places for attempts: who was not called yet, or is connected, comes before those that were silent."""

    __slots__ = ("_answers", "_calling", "_first", "_later", "_to_answer")

    def __init__(self) -> None:
        self._calling: dict[Dialer, bool] = {}  # whether for answers alone
        self._answers = 0  # of them that are
        self._first = _Waiting()
        self._to_answer = _Waiting()
        self._later = _Waiting()

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for a place."""
        return bool(self._first or self._later or self._to_answer)

    def enter(self, dialer: Dialer, silent: bool, answers: bool, maker: Nid | None = None) -> bool:
        """Whether a dialer may call now; else its `turn` comes.

        `silent`: its peer did not answer before; `answers`: nothing else is to be sent there; `maker`: by
        which hop that came; None: it is this node's own.
        """
        if dialer in self._calling:
            return True
        if len(self._calling) < MOST_CALLS and not (answers and self._answers >= MOST_ANSWERS):
            self._begin(dialer, answers)
            return True
        (self._to_answer if answers else self._later if silent else self._first).add(dialer, maker)
        return False

    def _begin(self, dialer: Dialer, answers: bool) -> None:
        self._calling[dialer] = answers
        self._answers += answers

    def hurry(self, dialer: Dialer) -> None:
        """More than answers is to be sent there now: it waits behind no answers."""
        if not self._to_answer.has(dialer):
            return
        maker = self._to_answer.remove(dialer)
        if len(self._calling) < MOST_CALLS:
            self._begin(dialer, False)
            dialer.turn()
        else:
            self._first.add(dialer, maker)

    def leave(self, dialer: Dialer) -> None:
        """It calls no more, or does not want to."""
        for waiting in (self._first, self._to_answer, self._later):
            if waiting.has(dialer):
                waiting.remove(dialer)
        if dialer not in self._calling:
            return
        self._answers -= self._calling.pop(dialer)
        answers = not self._first and bool(self._to_answer) and self._answers < MOST_ANSWERS
        waiting = self._to_answer if answers else self._first or self._later
        if waiting:
            following = waiting.take()
            self._begin(following, answers)
            following.turn()
