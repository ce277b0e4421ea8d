"""Frames out of a server: replies on lanes, notices and chunks, and answers to frames without a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ulnet.node import Message
from ulnet.node.port import Port, nobody_asks
from ulnet.rpc.call import Call
from ulnet.rpc.lane import Lane, Lanes, bound
from ulnet.rpc.sessions import Session
from ulnet.wire.rpc import KNOWS_BATCH, REPLY_PORTAL, CallFrame, Frame

__all__ = ["Replies", "head_of"]

_LANES: Final = 64  # of a client: as many as it has NIDs, times ours


def head_of(frame: Frame) -> tuple[int, int, int, int, int]:
    """How what answers a frame begins."""
    return frame.session, frame.slot, frame.number, frame.attempt, 0


class Replies:
    """What one server sends, until it is `closed`."""

    __slots__ = ("_lanes", "closed", "port")

    def __init__(self, port: Port) -> None:
        self.port: Port = port
        self.closed: bool = False
        self._lanes = Lanes(port)

    def lane(self, session: Session[Call], message: Message) -> Lane:
        """The way of replies: from the NI that was asked, for the NID that asked."""
        lane = session.lane
        if lane is not None and lane.target == message.source and lane.asked == message.target:
            return lane
        key = (message.source, message.target)
        lane = session.lanes.get(key)
        if lane is None:
            if len(session.lanes) >= _LANES:
                session.lanes.clear()
            room = session.largest if session.knows & KNOWS_BATCH else 0
            # fmt: off
            lane = Lane(self._lanes, session.id, message.source, REPLY_PORTAL, session.inbox, message.target,
                        room, self._failed)
            # fmt: on
            session.lanes[key] = lane
        session.lane = lane
        return lane

    def _failed(self, call: Call, error: int, text: str) -> None:
        """A reply goes by any path to the client, where that of the request does not serve."""
        if not self.closed and not call.given_up:
            session = call.session
            # fmt: off
            self.port.send(session.client, REPLY_PORTAL, session.inbox, call.reply, ended=nobody_asks,
                           ack=True, method=call.method.name)
            # fmt: on

    def send(self, call: Call, frame: bytes, ended: Callable[[int, str], None]) -> None:
        """A frame about a call that goes on; `ended` hears whether the client's memory took it."""
        lane = call.lane
        # fmt: off
        self.port.send(lane.target, REPLY_PORTAL, call.session.inbox, frame, ended=ended, ack=True,
                       source=lane.source, method=call.method.name)
        # fmt: on

    def say(self, asked: Frame, message: Message, frame: bytes) -> None:
        """Answer a frame with which no call began."""
        self.port.send(
            message.source,
            REPLY_PORTAL,
            asked.answer_to,
            frame,
            ended=nobody_asks,
            source=bound(message.target),
            method=asked.method if type(asked) is CallFrame else None,
        )
