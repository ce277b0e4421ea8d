"""Requests of this node: what a PUT or GET of its users, or of its own, looks like when it sets out."""

from __future__ import annotations

import errno
from typing import Final

from ulnet.core.md import NO_TRACK_RESPONSE, TRACK_RESPONSE, Md, check_sink
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.core.transmit import Transmit
from ulnet.nid import LNET_PID, LO_NID, Nid
from ulnet.wire.lnet import NO_WMD, PING_PORTAL, Header, MsgType

__all__ = ["ACK_BIT", "REPLY_BIT", "Initiate", "fits_header"]

REPLY_BIT: Final = 1  # in `response_tracking`
ACK_BIT: Final = 2

_PUT = int(MsgType.PUT)
_GET = int(MsgType.GET)


def fits_header(portal: int, match_bits: int, offset: int, hdr_data: int, pid: int) -> bool:
    """Whether there is room for these numbers; for none below 0."""
    return not (portal >> 32 or match_bits >> 64 or offset >> 32 or hdr_data >> 64 or pid >> 32)


class Initiate:
    """Starts PUTs and GETs (docs/design/contracts.md)."""

    __slots__ = ("_memory", "_state", "_transmit")

    def __init__(self, state: NodeState, memory: Memory, transmit: Transmit) -> None:
        self._state = state
        self._memory = memory
        self._transmit = transmit

    def put(
        self,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        *,
        ack: bool = True,
        offset: int = 0,
        hdr_data: int = 0,
        source: Nid | None = None,
        pid: int = LNET_PID,
        cpt: int | None = None,
    ) -> None:
        """Send all of md's memory; SEND and (with ack) ACK events follow. `cpt` is md's unless given.

        Raises LNetError: ENOENT (md), EINVAL (numbers), ERANGE (cpt), ESHUTDOWN.
        """
        if not fits_header(portal, match_bits, offset, hdr_data, pid):
            raise _too_wide(portal=portal, match_bits=match_bits, offset=offset, hdr_data=hdr_data, pid=pid)
        state = self._state
        cpt = md.cpt if cpt is None else state.cpts.checked(cpt)
        self._use(md)
        length = md.length
        if ack:
            named = not md.used or self._memory.renew(md)
            md.acks_due += 1
            self._expect_response(md, ACK_BIT, portal)
        elif md.timeout is not None:
            self._memory.track_response(md, state.clock())
        msg = Msg(
            Header(
                type=_PUT,
                dest_nid=target,
                src_nid=LO_NID,
                dest_pid=pid,
                src_pid=state.pid,
                payload_length=length,
                wmd=self._memory.wmd_of(md) if ack else NO_WMD,
                match_bits=match_bits,
                hdr_data=hdr_data,
                portal=portal,
                offset=offset,
            ),
            sending=True,
        )
        msg.md = md
        if ack and named:
            md.put = msg
        msg.target = target
        msg.cpt = cpt
        msg.payload = md.fragments if length else []
        msg.src_spec = source
        self._transmit.send(msg)

    def get(
        self,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        *,
        offset: int = 0,
        source: Nid | None = None,
        pid: int = LNET_PID,
        cpt: int | None = None,
        exact: bool = False,
        via: Nid | None = None,
    ) -> None:
        """Ask for md.length bytes into md; SEND and REPLY events follow. `cpt` is md's unless given.

        `exact`: to that NID of the peer and no other; `via`: with `source`, over that gateway.
        Raises LNetError: ENOENT (md), EINVAL (numbers, read-only memory), ERANGE (cpt), ESHUTDOWN.
        """
        if not fits_header(portal, match_bits, offset, 0, pid):
            raise _too_wide(portal=portal, match_bits=match_bits, offset=offset, pid=pid)
        check_sink(md)
        state = self._state
        cpt = md.cpt if cpt is None else state.cpts.checked(cpt)
        self._use(md)
        md.replies_due += 1
        self._expect_response(md, REPLY_BIT, portal)
        msg = Msg(
            Header(
                type=_GET,
                dest_nid=target,
                src_nid=LO_NID,
                dest_pid=pid,
                src_pid=state.pid,
                payload_length=0,
                wmd=self._memory.wmd_of(md),
                match_bits=match_bits,
                portal=portal,
                offset=offset,
                length=md.length,
            ),
            sending=True,
        )
        msg.md = md
        msg.target = target
        msg.cpt = cpt
        msg.src_spec = source
        msg.exact = exact
        msg.via = via
        self._transmit.send(msg)

    def _use(self, md: Md) -> None:
        if not self._state.running:
            self._state.must_run()
        self.check_usable(md)
        if md.threshold > 0:
            md.threshold -= 1
        md.refs += 1

    @staticmethod
    def check_usable(md: Md) -> None:
        """Raises LNetError(ENOENT) where no more can be sent from that memory."""
        if not md.linked or md.me is not None or md.threshold == 0 or md.aborted:
            raise LNetError(
                errno.ENOENT, "the memory descriptor is unlinked, attached or exhausted: bind a new one"
            )

    def _expect_response(self, md: Md, answer: int, portal: int) -> None:
        md.sent_at = now = self._state.clock()
        if self.is_tracked(md, portal, answer):
            self._memory.track_response(md, now)

    def is_tracked(self, md: Md, portal: int, answer: int = ACK_BIT) -> bool:
        """Whether it is noticed when that kind of answer does not come in time."""
        if md.options & TRACK_RESPONSE or md.timeout is not None or portal == PING_PORTAL:
            return True
        return not md.options & NO_TRACK_RESPONSE and self._state.settings.response_tracking & answer != 0


_WIDTHS = {"portal": 32, "match_bits": 64, "offset": 32, "hdr_data": 64, "pid": 32}


def _too_wide(**numbers: int) -> LNetError:
    name = next(name for name, number in numbers.items() if number >> _WIDTHS[name])
    return LNetError(errno.EINVAL, f"{name} {numbers[name]}: must be an unsigned {_WIDTHS[name]}-bit number")
