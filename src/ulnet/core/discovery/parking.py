"""Who waits for the discovery of a peer, besides messages: callers of `discover`."""

from __future__ import annotations

from collections.abc import Callable

from ulnet.core.peer import Peer
from ulnet.core.status import LNetError
from ulnet.nid import Nid

__all__ = ["Waiter"]


class Waiter:
    """A caller of `discover`: `done` hears once of the error or the peer."""

    __slots__ = ("_done", "_mistake", "nid", "rounds")

    def __init__(
        self,
        nid: Nid,
        done: Callable[[LNetError | None, Peer | None], None],
        mistake: Callable[[BaseException, str], None],
    ) -> None:
        self.nid = nid
        self._done = done
        self._mistake = mistake
        self.rounds = 0  # how often its peer was replaced by another meanwhile

    def tell(self, error: LNetError | None, peer: Peer | None) -> None:
        """It is over."""
        try:
            self._done(error, peer)
        except BaseException as exc:  # a user's call must not break the node
            self._mistake(exc, f"who waited for the discovery of {self.nid} failed")
