"""Who waits for the discovery of a peer: messages, and callers of `discover`."""

from __future__ import annotations

from collections.abc import Callable

from ulnet.core.peer import Peer
from ulnet.core.status import LNetError
from ulnet.nid import Nid

__all__ = ["Waiter"]


class Waiter:
    """A caller of `discover`: `done` hears once of the error or the peer."""

    __slots__ = ("done", "nid", "rounds")

    def __init__(self, nid: Nid, done: Callable[[LNetError | None, Peer | None], None]) -> None:
        self.nid = nid
        self.done = done
        self.rounds = 0  # how often its peer was replaced by another meanwhile
