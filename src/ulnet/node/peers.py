"""What a node's user says and asks of peers: configuration, discovery, and the names upper layers use."""

from __future__ import annotations

import asyncio
import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache

from ulnet.control.health.presence import PeerWatcher
from ulnet.control.instance import LNet
from ulnet.control.naming import ask_discovered, ask_primary, name_peer
from ulnet.core.md import checked_timeout
from ulnet.core.peer import Peer
from ulnet.core.status import LNetError
from ulnet.nid import Net, Nid, NidError
from ulnet.nid.errors import shown
from ulnet.node.distances import Distance, by_distance, distance_to
from ulnet.node.operations import discover

__all__ = ["PeerCalls", "as_net", "as_nid"]


class PeerCalls(ABC):
    """The calls of `Node` about peers. NIDs are given as `Nid` or text."""

    @property
    @abstractmethod
    def core(self) -> LNet:
        """The LNet instance. Raises LNetError(ENETDOWN) before `start` and after `close`."""

    def add_peer(
        self, primary: Nid | str, nids: Sequence[Nid | str] = (), *, multi_rail: bool = True
    ) -> Peer:
        """Configure which NIDs belong to one peer, as `lnetctl peer add` does. Raises LNetError.

        Discovery leaves them as they are. To tell what is only believed, use `name_peer`.
        """
        return self.core.peers.add(as_nid(primary), as_nids(nids), bool(multi_rail))

    def name_peer(self, nids: Sequence[Nid | str]) -> Nid:
        """Tell that these are NIDs of one node (LNetAddPeer): what a program reads in its own configuration.

        Answers the primary NID, under which events tell of that node from now on: the first that is on a net
        of this node, or has a route, unless the node has a name already. It is locked: discovery, which
        begins at once, finds the node's other NIDs and lets those go that it does not have, but never
        renames it. Raises LNetError: EINVAL, ENOMEM.
        """
        return name_peer(self.core, as_nids(nids)).primary_nid

    def distance(self, nid: Nid | str) -> Distance:
        """How far a NID is (LNetDist): hops, the place of its net, and what a message to it leaves from.

        Raises LNetError(EHOSTUNREACH).
        """
        return distance_to(self.core, as_nid(nid))

    def nearest(self, nids: Sequence[Nid | str]) -> Nid:
        """Which of some NIDs has the least distance. Raises LNetError: EINVAL (none named), EHOSTUNREACH."""
        return by_distance(self.core, as_nids(nids))[0].nid

    async def primary_nid(self, nid: Nid | str, *, lock: bool = False, timeout: float | None = None) -> Nid:
        """By which NID events tell of the node that has `nid` (LNetPrimaryNID); with `lock`, for ever.

        Where that is not known the node is discovered first; who does not answer (within `timeout` seconds,
        by default those of discovery's messages) is called as it is known without. Raises LNetError: EINVAL,
        ENOMEM.
        """
        asked = as_nid(nid)
        core = self.core
        if timeout is not None:
            checked_timeout(timeout)
        answer: asyncio.Future[Nid] = asyncio.get_running_loop().create_future()

        def done(primary: Nid) -> None:
            if not answer.done():
                answer.set_result(primary)

        ask_primary(core, asked, lock=bool(lock), done=done)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            peer = core.peers.find(asked)
            if peer is None:
                return asked
            if lock:
                core.peers.lock(peer)
            return peer.primary_nid

    async def peer_discovered(self, nid: Nid | str, *, timeout: float | None = None) -> bool:
        """Whether discovery knows the node that has `nid`, with all its NIDs (LNetPeerDiscovered).

        Where it does not, the node is discovered first, and who does not answer (within `timeout` seconds, by
        default those of discovery's messages) is not known. A node whose name is locked is not waited for:
        the answer is what is known now, and its discovery begins. Raises LNetError: EINVAL, ENOMEM.
        """
        if timeout is not None:
            checked_timeout(timeout)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(known: bool) -> None:
            if not answer.done():
                answer.set_result(known)

        ask_discovered(self.core, as_nid(nid), done=done)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            return False

    async def discover(self, target: Nid | str, *, force: bool = False, timeout: float | None = None) -> Peer:
        """Find out anew which NIDs the node behind `target` has, and tell it ours if it wants them.

        Messages need no call: the first to a peer waits for its discovery. `force` also tells it what it
        was told already. `timeout` in seconds, by default that of discovery's messages. Raises LNetError.
        """
        return await discover(self.core, as_nid(target), force=bool(force), timeout=timeout)

    def watch_peers(self, watcher: PeerWatcher) -> Callable[[], None]:
        """Call `watcher(nid, there, reason)` when a peer is gone, and when something is heard of it again.

        `nid` is its primary NID. A peer is gone when no connection with it is left and its host refuses more,
        as after its process was killed: what waits for its answers has failed by then. One that is silent is
        not gone. The call that comes back ends it.
        """
        watchers = self.core.health.presence.watchers
        watchers[watcher] = None

        def stop() -> None:
            watchers.pop(watcher, None)

        return stop

    def set_discovery(self, mode: int) -> None:
        """0: off; 1: on; 2: only compare what peers tell with what is configured. Raises LNetError."""
        self.core.set_discovery(mode)


def as_net(text: str) -> Net:
    """A net. Raises LNetError(EINVAL)."""
    if not isinstance(text, str):
        raise LNetError(errno.EINVAL, f"net {shown(text)}: give it as text, such as 'tcp1'")
    try:
        return Net.parse(text)
    except NidError as bad:
        raise LNetError(errno.EINVAL, str(bad)) from None


def as_nid(nid: Nid | str) -> Nid:
    """A NID. Raises LNetError(EINVAL)."""
    if isinstance(nid, Nid):
        return nid
    if not isinstance(nid, str):
        raise LNetError(
            errno.EINVAL,
            f"NID {shown(nid)}: give text, such as '10.0.0.1@tcp', or a Nid (Nid(…) of its 20 bytes)",
        )
    try:
        return _parsed(nid)
    except NidError as bad:
        raise LNetError(errno.EINVAL, str(bad)) from None


def as_nids(nids: Sequence[Nid | str]) -> list[Nid]:
    """Several. Raises LNetError(EINVAL), also for a single one, which has letters or bytes."""
    if isinstance(nids, (str, bytes)):
        raise LNetError(errno.EINVAL, f"NIDs {shown(nids)}: give a list of NIDs, also where it is just one")
    return [as_nid(nid) for nid in nids]


_parsed = lru_cache(maxsize=1024)(Nid.parse)  # programs name the same few targets again and again
