"""Connecting to a peer: what, in which order, when again (spec wire-socklnd.md §3.6 to §3.8, §6)."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from math import ceil
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus
from ulnet.lnd.tcp import sockets
from ulnet.lnd.tcp.budget import TLS_TURN, TURN
from ulnet.lnd.tcp.devices import AddressPair, Device, Pair, matched
from ulnet.lnd.tcp.errors import Failure, connect_status, why_connect_failed
from ulnet.lnd.tcp.handshake import ActiveHandshake
from ulnet.lnd.tcp.outbound import Outbound
from ulnet.lnd.tcp.progress import SILENT
from ulnet.wire.socklnd import ConnType, Hello

if TYPE_CHECKING:
    from ulnet.lnd.tcp.peer import Peer

__all__ = ["Dialer"]

_log = logging.getLogger("ulnet.tcp")
_MAX_RETRIES: Final = 3
_SOON: Final = 0.02  # seconds after the first refusal
_LEAST: Final = 0.001  # whatever the parameters say: no peer is called without a pause
_BRIEF: Final = 1.0  # seconds: who hangs up sooner, more than so often in a row, …
_OFTEN: Final = 3
_DOUBLED: Final = 10  # … is called again after pauses that grow, so often at most
_GROWTH: Final = 1.1  # of pauses: their sum is eleven times the last one
_ANEW: Final = 7.0  # seconds without an answer: TCP would pause for longer and longer
_PATIENCE: Final = 3.0  # seconds for an attempt while there are other ways
_HOST_IS_WELL: Final = (errno.ECONNREFUSED, errno.ECONNRESET)  # nobody listens, or a process hung up
_NO_VERSION: Final = "have no IP version in common: give their nodes NIDs of one version on this net"
_NOWHERE: Final[AddressPair] = (b"", b"")


class Dialer:
    """The connections of one peer are made here, one after the other: between each pair of addresses.

    There is one pair where each has one address. Every pair gets the bulk connections, one of them CONTROL.
    What fails between one pair is not tried there for a while, and goes on at the others. A failure of the
    last one fails what waits for a connection. The pause before the next attempt is a tenth of the time that
    the peer was out of reach, within limits. Those are near where its host just says that nobody listens, or
    hangs up during the handshake, for its LNet may be back at any moment; messages wait such a pause out.
    A longer one fails them at once, but a message whose owner gave it a time-out cuts it short.
    "not now" (a lost race, a duplicate) is tried again after the shortest pause, three times. Messages for a
    peer that hangs up again and again wait for pauses that grow, too. There is a `Budget` for the attempts of
    all dialers: one that is not answered makes room for others, and goes on when its turn comes again.
    """

    __slots__ = (
        "_at",
        "_attempt",
        "_began",
        "_brief",
        "_called",
        "_doubted",
        "_failed_at",
        "_last",
        "_made",
        "_not_before",
        "_peer",
        "_rest",
        "_retired",
        "_retries",
        "_retry_at",
        "_shared",
        "_silence",
        "_soon",
        "_version",
        "incomplete",
        "limit",
        "pairs",
        "watched",
    )

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._shared = peer.state.shared
        self.limit: int = peer.state.conns_per_peer  # frozen now
        self.incomplete: bool = True  # some connections are missing and worth a try
        self._attempt: Outbound | None = None
        self._doubted = 0.0  # since when the connections may be with a former life: the next HELLO tells
        self._soon: asyncio.Handle | None = None  # the next attempt, scheduled
        self._retired = False  # waits for a place among those who call
        self._silence = ""  # it made room for others: why it will fail when its time is up
        self._rest: asyncio.TimerHandle | None = None  # until messages are to `poke` again
        self._version = peer.state.identity.version
        self._retries = 0
        self._retry_at = 0.0  # when the first pause ends of those where something is missing
        self._last = ""  # why the last attempt failed
        self._failed_at = 0.0  # when
        self._began = 0.0  # when the present attempt did
        self._called = 0.0  # when its socket was made, or its request for TLS had left
        self.watched: bool = False  # by the progress timer
        self._made = 0.0  # when the last connection was, until one is lost
        self._brief = 0  # how often in a row that did not last
        self._not_before = 0.0  # for that, no attempt is made sooner
        self.pairs: dict[AddressPair, Pair] = {}
        self._at: Pair | None = None  # where the present attempt is, or the last one was
        self.meet()

    def meet(self) -> None:
        """Pair our addresses with those of the peer, which are known now or have changed."""
        devices = self._peer.devices()
        others = self._peer.addresses
        met = {}
        for i, j in matched([device.nid for device in devices], others):
            pair = Pair(devices[i], others[j])
            met[pair.addresses] = self.pairs.get(pair.addresses) or pair
        self.pairs = met
        self._reckon()

    @property
    def pair(self) -> AddressPair:
        """The addresses between which the present attempt is."""
        return self._at.addresses if self._at is not None else _NOWHERE

    @property
    def connecting(self) -> bool:
        """Whether an attempt is on its way right now."""
        return self._attempt is not None

    @property
    def busy(self) -> bool:
        """Whether messages may wait: an attempt runs, is scheduled, or waits for its turn."""
        return self._attempt is not None or self._soon is not None or self._retired

    def forgettable(self, now: float) -> bool:
        """Whether nothing is lost when a peer without connections is forgotten."""
        if self.busy or now < self._not_before + _BRIEF:
            return False
        return all(now >= pair.retry_at + pair.pause for pair in self.pairs.values())

    def call(self, patience: float = 0.0) -> Failure | None:
        """Connect, now or soon; a Failure while a long pause after a failed attempt lasts.

        Who waits so many seconds for an answer does not have to wait for the end of a long pause.
        """
        if self.busy:
            return None
        now = self._shared.loop.time()
        brief = self._shared.params.refused_reconnectms / 1000
        if self._retry_at > now + brief and patience > 0:
            self._shorten(self._failed_at + brief)
        wait = self._retry_at - now
        if wait <= 0:
            self._next_soon()
            return None
        if wait <= brief:
            self._soon = self._shared.loop.call_at(self._retry_at + _LEAST, self._next)
            return None
        return Failure(
            errno.EHOSTUNREACH,
            HealthStatus.REMOTE_ERROR,
            f"no connection to {self._peer} and no attempt before {ceil(wait)} s have passed; "
            f"the last one ended so: {self._last}",
        )

    def _shorten(self, until: float) -> None:
        """No pause lasts longer than that."""
        for pair in self.pairs.values():
            pair.retry_at = min(pair.retry_at, until)
        self._reckon()
        self._rest_no_more()

    def poke(self) -> None:
        """Some connections are missing: see whether it is time to try for them."""
        if not self.busy and self._shared.now >= self._retry_at:
            self._next_soon()

    def rests(self) -> bool:
        """Whether an attempt runs, or none is due: messages need not ask until that is over."""
        if self.busy:
            return True
        if self._shared.now >= self._retry_at:
            return False
        if self._rest is None:
            self._rest = self._shared.loop.call_at(self._retry_at, self._rested)
        return True

    def _rested(self) -> None:
        self._rest = None
        self._shared.now = self._shared.loop.time()

    def _rest_no_more(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None:
            rest.cancel()

    def conns_lost(self) -> None:
        """Connections of the peer have closed."""
        for pair in self.pairs.values():
            pair.satisfied = False
        self._reckon()
        self._rest_no_more()
        if not self._peer.conns:
            self._version = self._peer.state.identity.version
        now = self._shared.loop.time()
        made, self._made = self._made, 0.0
        if not made:
            return
        self._brief = self._brief + 1 if now - made < _BRIEF else 0
        if self._brief:
            doubled = _SOON * (1 << min(self._brief, _DOUBLED)) / (1 << _OFTEN)
            longest = self._shared.params.refused_reconnectms / 1000
            self._not_before = now + (min(doubled, longest) if self._brief > _OFTEN else 0.0)

    def try_again(self) -> None:
        """A device can be used again: what failed or waits meanwhile is no reason to pause."""
        for pair in self.pairs.values():
            pair.retry_at = pair.pause = 0.0
        self._not_before = 0.0
        self._reckon()
        self._rest_no_more()
        if self._peer.conns or self._peer.queue:
            if self._soon is not None:  # perhaps at the end of a pause
                self._soon.cancel()
                self._soon = None
            self.poke()

    def verify(self) -> None:
        """Ask for one connection more: the HELLO of the peer tells whether it is another life."""
        self._doubted = self._shared.loop.time()
        if not self.busy:
            self._next_soon()

    @property
    def reached(self) -> bool:
        """Whether the host of the peer has answered the present attempt."""
        return self._attempt is not None and self._attempt.connected

    def give_way(self) -> None:
        """The peer connects with us meanwhile: see later whether anything is still missing."""
        if self._attempt is not None:
            self._attempt.cancel()
        self._over()
        shortest = self._shared.params.min_reconnectms / 1000
        self._soon = self._shared.loop.call_later(shortest, self._next)

    def leave(self, device: Device, reason: str) -> None:
        """A device failed: an attempt there is given up, and made elsewhere if there is an elsewhere."""
        if self._attempt is not None and self._at is not None and self._at.device is device:
            self._attempt.cancel()
            self.failed(errno.ENETDOWN, reason)

    def set_timeout(self, seconds: float) -> None:
        """The present attempt has that many seconds, from its beginning on."""
        if self._attempt is not None:
            self._attempt.set_timeout(self._began, seconds)

    def cancel(self) -> None:
        """Stop at once."""
        self._rest_no_more()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._attempt is not None:
            self._attempt.cancel()
        self._over()

    def _over(self) -> None:
        """The present attempt is no more."""
        self._attempt = None
        self._doubted = 0.0
        self._silence = ""
        self._shared.progress.forget(self)
        self._make_room()
        self._peer.moves_on(self)

    def _make_room(self) -> None:
        self._retired = False
        self._shared.budget.leave(self)

    def turn(self) -> None:
        """There is a place for an attempt."""
        self._retired = False
        self._soon = self._shared.loop.call_soon(self._next)

    def asked(self) -> None:
        """A request for TLS has left: the peer has its time to answer from now on."""
        self._called = self._shared.loop.time()

    def excuse(self, seconds: float) -> None:
        """The time in which this process did not run is not the peer's."""
        self._began += seconds
        self._called += seconds

    def check_progress(self, now: float) -> bool:
        """See how the attempt gets on: one that is not answered makes the path one to be avoided."""
        if now - self._began >= SILENT and self not in self._peer.stuck:
            self._peer.gets_stuck(self)
        attempt = self._attempt
        if attempt is None:
            return True
        wanted = self._shared.budget.wanted
        turn = TLS_TURN if attempt.tls_goes_on else TURN
        given_up = now - self._called >= (turn if wanted else _ANEW) and self._peer.given_up
        late = now - self._began >= _PATIENCE and (self._doubted or self._has_others())
        if late or (given_up and not attempt.connected):
            reason = attempt.why_timed_out(round(now - self._began))
            attempt.cancel()
            self.failed(errno.ETIMEDOUT, reason)
            return False
        if wanted and now - self._called >= turn:
            self._silence = attempt.why_timed_out(self._peer.timeout)
            attempt.cancel()
            self._attempt = None
            self._make_room()
            self._retired = not self._shared.budget.enter(
                self, True, self._peer.only_answers, self._peer.maker
            )
            if not self._retired:
                self._next_soon()
            return False
        if now - self._called >= _ANEW and not attempt.connected:
            attempt.cancel()
            self._attempt = None  # who hears that there can be no other one is not to wait for it
            self._called = now
            if not self._call(attempt.ctype):
                self._over()
                return False
            self.set_timeout(self._peer.timeout)
        return True

    def _next_soon(self) -> None:
        loop, at = self._shared.loop, self._not_before
        self._soon = loop.call_at(at, self._next) if at > loop.time() else loop.call_soon(self._next)

    def _reckon(self) -> None:
        """See whether connections are missing, and when the first pause ends of those."""
        missing = [pair.retry_at for pair in self.pairs.values() if self._missing(pair) is not None]
        self.incomplete = bool(missing)
        self._retry_at = min(missing, default=0.0)

    def _wanted(self) -> ConnType | None:
        """The type of the next connection to make, and where (`_at`): where something is stuck at last."""
        now = self._shared.loop.time()
        stuck = {one.pair for one in self._peer.stuck}
        pairs = [pair for pair in self.pairs.values() if pair.retry_at <= now]
        for pair in [
            *(pair for pair in pairs if pair.addresses not in stuck),
            *(pair for pair in pairs if pair.addresses in stuck),
        ]:
            ctype = self._missing(pair)
            if ctype is not None:
                self._at = pair
                return ctype
        if self._doubted and self._peer.conns:
            for pair in self.pairs.values():
                if not pair.device.down:
                    self._at = pair
                    return ConnType.CONTROL if self._shared.params.typed_conns else ConnType.ANY
        return None

    def _missing(self, pair: Pair) -> ConnType | None:
        """The type of the next connection of a pair; None: it has all, or can have none now."""
        if pair.device.down or pair.satisfied:
            return None
        peer = self._peer
        conns = peer.conns
        if len(self.pairs) > 1:  # the only pair has all connections, whatever address the peer called from
            conns = [conn for conn in conns if conn.pair == pair.addresses]
        kinds = [conn.ctype for conn in conns]
        if not self._shared.params.typed_conns:
            return ConnType.ANY if kinds.count(ConnType.ANY) < self.limit else None
        if ConnType.CONTROL not in kinds and not any(
            conn.ctype is ConnType.CONTROL for conn in peer.usable()
        ):
            return ConnType.CONTROL
        inward, outward = kinds.count(ConnType.BULK_IN), kinds.count(ConnType.BULK_OUT)
        if inward < self.limit and inward <= outward:
            return ConnType.BULK_IN
        return ConnType.BULK_OUT if outward < self.limit else None

    def _has_others(self) -> bool:
        """Whether there are ways beside the present pair: connections that carry, or pairs to be tried."""
        if len(self.pairs) == 1:
            return False
        at = self._at
        if any(conn.pair != self.pair for conn in self._peer.usable()):
            return True
        now = self._shared.loop.time()
        return any(
            pair is not at and pair.retry_at <= now and self._missing(pair) is not None
            for pair in self.pairs.values()
        )

    def _next(self) -> None:
        self._soon = None
        if not self._peer.state.open:  # in a fork
            return
        if self._brief > _OFTEN and not (self._peer.conns or self._peer.queue):
            self._make_room()
            self._peer.moves_on(self)
            return  # it hangs up again and again, and nothing is to be sent
        if self._silence and self._is_over():
            self.failed(errno.ETIMEDOUT, self._silence)
            return
        ctype = self._wanted()
        if ctype is not None:
            silent = bool(self._silence) or not (self._peer.conns or self._peer.queue)
            if not self._shared.budget.enter(self, silent, self._peer.only_answers, self._peer.maker):
                self._retired = True
                return
            try:
                called = self._call(ctype)
            except BaseException:
                self._make_room()
                raise
            if called:
                self._shared.progress.watch(self)
                self._called = self._shared.now
                if self._silence:
                    self.set_timeout(self._peer.timeout)
                else:
                    self._began = self._called
                return
        self._make_room()
        if ctype is None:
            self._complete()
        self._peer.moves_on(self)  # it may have been avoided until this call had an answer

    def _is_over(self) -> bool:
        """Whether there is no reason any more to go on with an attempt that was not answered."""
        peer = self._peer
        if self._shared.loop.time() - self._began >= peer.timeout:
            return True
        return not (peer.conns or peer.queue)

    def _call(self, ctype: ConnType) -> bool:
        """A socket for an attempt; False if it cannot be."""
        peer = self._peer
        state = peer.state
        params = self._shared.params
        port = params.accept_port if ctype is ConnType.CONTROL else params.bulk_port
        at = self._at
        assert at is not None
        own, called = at.device.nid, at.target
        if called.is_large != own.is_large or called.is_malformed:
            self._failed(errno.EAFNOSUPPORT, f"{state.identity.nid} and {peer.nid} {_NO_VERSION}")
            return False
        where = f"[{called.ip}]:{port}" if called.is_large else f"{called.ip}:{port}"
        taken = {conn.source_port for conn in peer.conns}
        try:
            sock = sockets.dial(own, at.device.interface, called, port, params, taken)
        except OSError as error:
            number = error.errno or errno.EIO
            self._failed(number, why_connect_failed(number, where, own.ip, peer.timeout))
            return False
        machine = ActiveHandshake(state.identity, peer.nid, peer.pid, ctype, self._version)
        credentials = self._shared.credentials if state.secures(peer.nid) else None
        if credentials is not None:
            credentials.refresh()
        self._attempt = Outbound(self, self._shared, sock, machine, where, peer.timeout, credentials)
        return True

    def fall_back(self) -> bool:
        """The peer hung up when it heard of TLS: whether it may be called without."""
        return self._peer.state.fall_back(self._peer.nid)

    def call_plain(self) -> None:
        """Call again at once, without TLS."""
        doubted = self._doubted
        self._over()
        self._doubted = doubted
        self._next_soon()

    def _complete(self) -> None:
        """No connection can be made now. What still waits fits none of those that are there."""
        self._reckon()
        peer = self._peer
        if not peer.queue:
            return
        if peer.state.down:
            peer.fail_queue(Failure(errno.ENETDOWN, HealthStatus.LOCAL_ERROR, peer.state.down))
        elif peer.conns and not self.incomplete:
            peer.fail_queue(peer.unsuited())
        else:
            reason = self._last or f"no device can reach {peer}"
            peer.fail_queue(Failure(errno.EHOSTUNREACH, connect_status(errno.EHOSTUNREACH), reason))

    # What became of an attempt ----------------------------------------------------------------------

    def established(self, sock: socket.socket, hello: Hello, ctype: ConnType) -> None:
        """The handshake is through."""
        peer = self._peer
        try:
            local_ip, source_port = sock.getsockname()[:2]
            remote_ip = sock.getpeername()[0]
        except OSError:  # it was reset meanwhile
            self._stillborn(sock)
            return
        if peer.conns and (peer.incarnation, peer.version) != (hello.src_incarnation, hello.version):
            peer.end_former_life()
            if not peer.state.open:  # a handler had enough
                sock.close()
                return
        if peer.full(ctype, local_ip, remote_ip):
            sock.close()  # the peer was faster: its own connection came in meanwhile
            self.postponed(hello)
            return
        self._over()  # not before: an old peer without connections would have been forgotten
        self._retries = 0
        if self._at is not None:
            self._at.pause = self._at.retry_at = 0.0
        self._last = ""
        self._made = self._shared.loop.time()
        if not peer.state.add_conn(peer, sock, hello, ctype, source_port=source_port):
            self._stillborn(sock)
        elif not self.busy:
            self._next_soon()

    def _stillborn(self, sock: socket.socket) -> None:
        sock.close()
        self.failed(errno.ECONNRESET, f"{self._peer} reset the connection as soon as it was made")

    def postponed(self, hello: Hello | None) -> None:
        """The peer said "not now"."""
        doubted = self._doubted
        if hello is not None:
            self._peer.confirm(hello.src_incarnation)  # before this is over: a peer that is idle is forgotten
            if not self._peer.state.open:
                return
        self._over()
        if doubted:  # it was asked who it is, and has told
            self._next_soon()
            return
        if self._out_of_retries("it keeps refusing this connection as a duplicate"):
            return
        shortest = self._shared.params.min_reconnectms / 1000
        self._soon = self._shared.loop.call_later(shortest, self._next)

    def other_version(self, version: int) -> None:
        """The peer wants another protocol version."""
        doubted = self._doubted
        self._over()
        self._doubted = doubted
        self._version = version
        if not self._out_of_retries(f"it cannot make up its mind between protocol {version} and others"):
            self._next_soon()

    def _out_of_retries(self, text: str) -> bool:
        """Whether the peer has refused so often that it is left in peace, here at least."""
        self._retries += 1
        if self._retries < _MAX_RETRIES:
            return False
        self._retries = 0
        at = self._at
        kinds = (ConnType.CONTROL, ConnType.BULK_IN, ConnType.BULK_OUT)
        if at is not None and (self._has_others() or all(self._peer.count(kind) for kind in kinds)):
            at.satisfied = True  # the peer wants no more of them
            self._next_soon()
        else:
            self._failed(errno.EALREADY, f"{self._peer} does not accept our connections: {text}")
        return True

    def _next_pause(self, number: int, pause: float) -> float:
        params = self._shared.params
        shortest = max(params.min_reconnectms / 1000, _LEAST)
        longest = params.max_reconnectms / 1000
        if number in _HOST_IS_WELL:
            longest = min(longest, params.refused_reconnectms / 1000)
            shortest = max(min(shortest, longest, _SOON), _LEAST)
        return max(min(_GROWTH * pause, longest), shortest)

    def failed(self, number: int, reason: str) -> None:
        """The attempt came to nothing."""
        doubted = self._doubted
        self._over()
        self._doubted = doubted
        self._failed(number, reason)

    def _failed(self, number: int, reason: str) -> None:
        at = self._at
        assert at is not None
        doubted, self._doubted = self._doubted, 0.0
        at.pause = self._next_pause(number, at.pause)
        self._failed_at = self._shared.loop.time()
        at.retry_at = self._failed_at + at.pause
        self._last = reason
        _log.debug("%s: no connection with %s: %s", self._peer.state.identity.nid, self._peer, reason)
        self._shared.core.unconnected(self._peer.ni, self._peer.nid, number)
        if doubted:
            self._peer.gives_no_answer(doubted)
            if not self._peer.state.open:  # a handler had enough
                return
        if self._wanted() is not None:
            self._next_soon()
            return
        self._reckon()
        if not self._peer.usable():
            for pair in self.pairs.values():  # all of them are tried at the next call
                pair.retry_at = min(pair.retry_at, self._retry_at)
        self._peer.fail_queue(Failure(number, connect_status(number), reason))
