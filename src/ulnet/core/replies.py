"""REPLYs that leave by lanes (docs/design/hot-path.md): what is the same for all who fetch the same is kept.

Their memory is lent until they have left; then its owner hears of a GET. An idle lane holds none.
"""

from __future__ import annotations

from typing import Final

from ulnet.core.event import Event
from ulnet.core.lane import LIGHT, NAMED, Lane, new_msg
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.state import NodeState
from ulnet.core.transmit import Transmit
from ulnet.wire.lnet import HEADER_SIZE, Header, MsgType

__all__ = ["Replies"]

_REPLY: Final = int(MsgType.REPLY)


class Replies:
    """Those of one node."""

    __slots__ = ("_memory", "_state", "_transmit")

    def __init__(self, state: NodeState, memory: Memory, transmit: Transmit) -> None:
        self._state = state
        self._memory = memory
        self._transmit = transmit

    def send(self, lane: Lane, hdr: Header, payload: list[memoryview], event: Event, name: bytes) -> None:
        """Answer the GET with that header (and that handle, if one is given in place of the header's).

        `payload` is what `event` tells of, which the owner of that memory hears when all has left.
        """
        length = event.mlength
        wmd = NAMED if name else hdr.wmd
        reply = lane.hdr
        if reply is None or reply.payload_length != length or reply.wmd != wmd:
            # fmt: off
            reply = Header(_REPLY, lane.pni.nid, lane.ni.nid, lane.pid, self._state.pid, length, wmd)
            # fmt: on
            lane.hdr = reply
            lane.kind = _REPLY
            lane.load = HEADER_SIZE + length
            lane.outlet = None
            lane.heavy = length > LIGHT and lane.pni.peer.multi_rail
            lane.flew = lane.flew or lane.heavy
        free = lane.free
        msg = free.pop() if free else new_msg(lane)
        md = event.md
        md.refs += 1
        msg.hdr = reply
        msg.name = name
        msg.md = md
        msg.payload = payload
        msg.kept_event = event
        state = self._state
        state.answers += 1
        lane.pni.answers += 1
        now = state.clock()
        if lane.heavy:
            self._transmit.take_off(msg, lane.ni, lane.pni, now)
        self._transmit.post_in_lane(msg, lane, now)

    def left(self, lane: Lane, run: list[Msg]) -> None:
        """These have left: tell the owners of their memory, in order."""
        free = lane.free
        for msg in run:
            md = msg.md
            event = msg.kept_event
            assert md is not None
            assert event is not None
            if md.aborted or (md.refs == 1 and md.exhausted):
                self._memory.complete(md, event.copy())
                continue
            self._let_go(msg)
            free.append(msg)  # from here on it may be another one
            md.refs -= 1
            handler = md.handler
            if handler is None:
                continue
            try:
                handler(event)
            except BaseException as exc:
                self._memory.handler_failed(event, exc)

    @staticmethod
    def _let_go(msg: Msg) -> None:
        msg.md = msg.kept_event = None
        msg.payload = _NOTHING


_NOTHING: Final[list[memoryview]] = []
