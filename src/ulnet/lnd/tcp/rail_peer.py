"""A peer as an NI over several devices knows it: connections on several pairs of addresses.

Those whose device is down, or which make no progress, stay and are given nothing while there are others:
what the kernel holds for them arrives when the device is back, as on any NI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.lnd.tcp.conn import Conn
from ulnet.lnd.tcp.dialer import Dialer
from ulnet.lnd.tcp.errors import Failure
from ulnet.lnd.tcp.peer import Peer
from ulnet.lnd.tcp.rail_dialer import RailDialer
from ulnet.lnd.tcp.rails import Rail
from ulnet.nid import Nid
from ulnet.wire.lnet import MsgType

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.lnd.tcp.rail_state import RailState

__all__ = ["RailPeer"]

_ACK: Final = int(MsgType.ACK)
_REPLY: Final = int(MsgType.REPLY)


def _beside(conn: Conn, other: Conn) -> bool:
    """Whether both are between the same addresses."""
    return conn.local_ip == other.local_ip and conn.remote_ip == other.remote_ip


class RailPeer(Peer):
    """One (NID, pid) as seen from an NI on a bonded net."""

    __slots__ = ("_aside", "_blocked", "addresses", "heard", "rails", "trusting")

    def __init__(self, state: RailState, nid: Nid, pid: int, bucket: int) -> None:
        super().__init__(state, nid, pid, bucket)
        self.rails: list[Rail] = list(state.rails.values())
        self.addresses: tuple[Nid, ...] = state.addresses.get(nid, (nid,))
        # Whether it believes our name from any address; if not, only the one that is in our NID will do.
        self.trusting = state.shared.params.reserved_ports
        self.heard: Conn | None = None  # by which something came last
        self._aside = False  # that is between other addresses than what is small goes
        self._blocked = False  # the core was told that nothing gets through

    def learn(self, addresses: tuple[Nid, ...], trusting: bool) -> None:
        """Its HELLO says so."""
        if (addresses, trusting) != (self.addresses, self.trusting):
            self.addresses = addresses
            self.trusting = trusting
            if isinstance(self.dialer, RailDialer):
                self.dialer.meet()

    def usable(self) -> list[Conn]:
        down = [rail.ip for rail in self.rails if rail.down]
        return [conn for conn in self.conns if not conn.stuck and conn.local_ip not in down]

    # Sending ------------------------------------------------------------------------------------------

    def launch(self, msg: Msg) -> None:
        """Put msg on a connection; an answer on one between the addresses that something came by last.

        The peer may have left the others, and we not know yet that nothing sent there arrives.
        """
        if not self._aside:
            super().launch(msg)
            return
        kind = msg.hdr.type
        if kind in (_ACK, _REPLY):
            if msg.lane is not None:
                msg.lane.outlet = None
            self._back(msg).queue(msg, self._overhead + msg.hdr.payload_length)
        else:
            super().launch(msg)
            self.ask_again()  # else answers would not, on what is their connection too at other times

    def _back(self, msg: Msg) -> Conn:
        """The connection for an answer."""
        heard = self.heard
        assert heard is not None
        if self._overhead + msg.hdr.payload_length < self.state.min_bulk:
            return heard
        large = [conn for conn in self._large if _beside(conn, heard)]
        return self._pick(large) if large else heard

    def hears(self, conn: Conn) -> None:
        """Something comes by another connection than before."""
        self.heard = conn
        self._look_aside()

    def _look_aside(self) -> None:
        """Do answers go another way than what is small, which mostly has one connection?"""
        heard = self.heard
        self._aside = (
            heard is not None
            and not (self._small and all(_beside(conn, heard) for conn in self._small))
            and heard in self.usable()
        )
        if self._aside:
            self.ask_again()

    def _choices_changed(self) -> None:
        super()._choices_changed()
        self._look_aside()

    def _new_dialer(self) -> Dialer:
        return RailDialer(self)

    def _dial(self) -> Failure | None:
        # One that came to us is called back only where all its connections are at a standstill.
        if self.dialer is None and (self.usable() or self.pid != self.state.identity.pid):
            return super()._dial() if not self.conns else self.unsuited()
        if self.dialer is None:
            self.dialer = self._new_dialer()
        return self.dialer.call()

    # Connections come and go --------------------------------------------------------------------------

    def attach(self, conn: Conn, incarnation: int) -> None:
        super().attach(conn, incarnation)
        if self._blocked:
            self.carry_on()

    def close(self, doomed: list[Conn], failure: Failure, reset: Conn | None = None) -> None:
        gone = set(doomed)
        if not self._blocked and gone.intersection(self.usable()) and not gone.issuperset(self.conns):
            self._doubt()  # what left over those may be lost, and the core hears of the last one only
        if self.heard in gone:
            self.heard = None
        super().close(doomed, failure, reset)
        if self._blocked:
            self.carry_on()

    # Progress -----------------------------------------------------------------------------------------

    def _doubt(self) -> None:
        """What has left may be lost in part: the core sends again what it can."""
        core = self.state.shared.core
        core.path_stalled(self.ni, self.nid)
        core.path_moving(self.ni, self.nid)

    def shift(self) -> None:
        """Some connections carry nothing now: what waits there goes over the others, or sets out anew.

        What has left there may be lost: the core hears of a standstill, and sends again what it can.
        """
        self._choices_changed()
        usable = self.usable()
        if not usable:
            if self.conns and not self._blocked:
                self._blocked = True
                self.state.shared.core.path_stalled(self.ni, self.nid)
            self.withdraw()
            return
        waiting: list[Msg] = []
        for conn in self.conns:
            if conn not in usable:
                waiting += conn.take_queue()
        for msg in waiting:
            self.launch(msg)
        if not self._blocked:
            self._doubt()

    def carry_on(self) -> None:
        """A device, or a connection, carries again."""
        self._choices_changed()
        if self._blocked and (self.usable() or not self.conns):
            self._blocked = False
            self.state.shared.core.path_moving(self.ni, self.nid)

    def gets_stuck(self, what: object) -> None:
        self.stuck[what] = None
        if isinstance(what, Conn):
            self.shift()
        elif not self.usable() and not self._blocked:  # the making of the only connection
            self._blocked = True
            self.state.shared.core.path_stalled(self.ni, self.nid)
            self.withdraw()

    def moves_on(self, what: object) -> None:
        if what in self.stuck:
            del self.stuck[what]
            self.carry_on()
