"""Pings and pushes of peers: begun, and ended (spec wire-lnet.md §5, §6)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.md import TRUNCATE
from ulnet.core.memory import Memory
from ulnet.core.ni import NI
from ulnet.core.peer import Exchange, Peer
from ulnet.core.sender import Sender
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL
from ulnet.wire.ping import MIN_INFO_SIZE

__all__ = ["PING", "PUSH", "WHO", "Exchanges", "error_of", "push_path"]

PING: Final = "ping"
PUSH: Final = "push"
WHO: Final = "who"  # is behind a NID: beside what goes on with its peer

_PATIENCE: Final = 5.0  # seconds for the answer to a ping of one NID alone; messages may wait for that
_MOST_LOST: Final = 8  # pings and pushes of one round that are lost with their connections
_WHO_SIZE: Final = 16384  # bytes of an answer: a thousand NIDs


def error_of(event: Event, attempts: int) -> tuple[int, str] | None:
    """Why a ping or push failed: errno and sentence.

    None: the peer began anew, a connection broke, or our NI went: ask again, if it was not asked too often.
    """
    if event.kind is not EventKind.SEND and event.status == -errno.ECONNRESET:
        broken = errno.ECONNABORTED, "its connections break before it answers: see its log"
        return broken if attempts >= _MOST_LOST else None
    return -event.status or errno.ECANCELED, event.reason or "no answer came"


def push_path(nis: Mapping[Nid, NI], peer: Peer) -> tuple[Nid | None, Nid]:
    """The way by which the last ping reply came, as long as both its ends are well (wire-lnet.md §6).

    Else to the primary NID, from any NI (None).
    """
    ni = nis.get(peer.heard_at) if peer.heard_at is not None else None
    there = peer.members.get(peer.heard_from) if peer.heard_from is not None else None
    if ni is None or not (ni.up and ni.open) or there is None or not there.health or there.said_down:
        return None, peer.primary_nid
    return (ni.nid, there.nid) if ni.net.net == there.nid.net else (None, peer.primary_nid)


class Exchanges:
    """Starts and ends pings and pushes for `Discovery`."""

    __slots__ = ("_memory", "_sender")

    def __init__(self, memory: Memory, sender: Sender) -> None:
        self._memory = memory
        self._sender = sender

    def ping(self, peer: Peer, nid: Nid | None, done: Callable[[Exchange, Event], None]) -> None:
        """Ask the peer for its info, by that NID if there is one. Raises LNetError."""
        timeout = peer.check_timeout if nid is None else _PATIENCE
        size = max(MIN_INFO_SIZE, peer.allowance.info_size)
        self._ask(Exchange(peer, PING), nid or peer.check_nid, size, timeout, done)

    def ask_who(self, peer: Peer, kind: str, nid: Nid, done: Callable[[Exchange, Event], None]) -> None:
        """Ask that NID of the peer alone who is there. Raises LNetError."""
        self._ask(Exchange(peer, kind), nid, _WHO_SIZE, _PATIENCE, done)

    def _ask(
        self,
        exchange: Exchange,
        nid: Nid | None,
        size: int,
        timeout: float | None,
        done: Callable[[Exchange, Event], None],
    ) -> None:
        peer = exchange.peer
        md = exchange.md = self._memory.md_bind(
            bytearray(size),
            exchange.handle,
            threshold=2,
            options=TRUNCATE,
            user_ptr=exchange,
            timeout=timeout,
        )
        self._start(exchange, done)
        try:
            target = nid or peer.primary_nid
            self._sender.get(md, target, PING_PORTAL, PING_MATCH_BITS, exact=nid is not None)
        except LNetError:
            self.end(peer, exchange.kind)
            raise

    def push(
        self,
        peer: Peer,
        data: memoryview,
        sequence: int,
        path: tuple[Nid | None, Nid],
        done: Callable[[Exchange, Event], None],
    ) -> None:
        """Tell the peer our info, along `path`: our NID (None: any) and its own. Raises LNetError."""
        exchange = Exchange(peer, PUSH, sequence)
        md = exchange.md = self._memory.md_bind(
            data, exchange.handle, threshold=2, user_ptr=exchange, timeout=peer.check_timeout
        )
        self._start(exchange, done)
        source, target = path
        try:
            self._sender.put(md, target, PING_PORTAL, PING_MATCH_BITS, source=source)
        except LNetError:
            self.end(peer, PUSH)
            raise

    @staticmethod
    def _start(exchange: Exchange, done: Callable[[Exchange, Event], None]) -> None:
        exchange.done = done
        exchange.peer.exchanges[exchange.kind] = exchange

    def lost(self, ni: NI, nid: Nid) -> None:
        """The last connection of an NI with a next hop broke: what had left by it is begun anew.

        Checks of gateways end in their time, and come again.
        """
        for md in self._memory.at_hop(nid):
            exchange = md.user_ptr
            if not isinstance(exchange, Exchange) or exchange.kind not in (PING, PUSH) or md.refs:
                continue
            if exchange.peer.check_nid is None and md.ni is ni:
                self._memory.md_unlink(md, errno.ECONNRESET)

    def end_all(self, peer: Peer) -> None:
        """Take the memory of all of them back."""
        for kind in list(peer.exchanges):
            self.end(peer, kind)

    def end(self, peer: Peer, kind: str) -> None:
        """Take the memory of an exchange back, whether it is over or not; an answer is no longer heard."""
        exchange = peer.exchanges.pop(kind, None)
        if exchange is not None:
            md, exchange.done, exchange.md = exchange.md, None, None  # no cycle is left of the two
            if md is not None:
                self._memory.md_unlink(md)
