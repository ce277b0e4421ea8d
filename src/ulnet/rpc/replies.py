"""Frames out of a server: replies on lanes, notices and chunks, and answers to frames without a call."""

from __future__ import annotations

import errno
from typing import Final

from ulnet.core.md import Buffer
from ulnet.nid import Nid
from ulnet.node import Message
from ulnet.node.port import Ended, Port, nobody_asks
from ulnet.rpc.call import Call
from ulnet.rpc.lane import Lane, Lanes, bound
from ulnet.rpc.sessions import Session
from ulnet.rpc.under_way import UnderWay
from ulnet.wire.rpc import KNOWS_BATCH, REPLY_PORTAL, CallFrame, Frame, Refused, Reply

__all__ = ["Replies", "head_of", "reply_of"]

_LEAST_ROOM: Final = 16 << 20  # bytes under way: without kept replies there are some as well
_ANSWERS: Final = 2 << 20  # of these, of frames with which no call began
_LANES: Final = 64  # of a client: as many as it has NIDs, times ours


def head_of(frame: Frame) -> tuple[int, int, int, int, int]:
    """How what answers a frame begins."""
    return frame.session, frame.slot, frame.number, frame.attempt, 0


def reply_of(call: Call, status: int, data: Buffer, begun: bool, took: float) -> bytes:
    """The frame that ends a call, whose handler took so many seconds; one that was not `begun` is refused."""
    frame = call.frame
    if not begun:
        return Refused(*head_of(frame), status, bytes(data).decode("utf-8", "replace")).pack()
    checksum = 0 if call.checksum is None else call.checksum.value
    # fmt: off
    return Reply(frame.session, frame.slot, frame.number, frame.attempt, 0, status, call.chunks,
                 int(took * 1e6), checksum, call.pushed, data).pack()
    # fmt: on


class Replies:
    """What one server sends, until it is `closed`; about `room` bytes are under way."""

    __slots__ = ("_answers", "_lanes", "closed", "port", "under_way")

    def __init__(self, port: Port, room: int) -> None:
        self.port: Port = port
        self.closed: bool = False
        self.under_way: UnderWay = UnderWay(max(room, _LEAST_ROOM))  # of calls
        self._answers = UnderWay(_ANSWERS)
        self._lanes = Lanes(port, self.under_way)

    @property
    def total(self) -> int:
        """The bytes that are under way."""
        return self.under_way.total + self._answers.total

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
                        room, self._failed, session.owner)
            # fmt: on
            session.lanes[key] = lane
        session.lane = lane
        return lane

    def _failed(self, call: Call, error: int, text: str) -> None:
        """A reply goes by any path to the client, where that of the request does not serve."""
        if not self.closed and not call.given_up:
            session = call.session
            # fmt: off
            self.port.send(session.client, REPLY_PORTAL, session.inbox, call.reply,
                           ended=self._counted(self.under_way, session.owner, call.reply, nobody_asks),
                           ack=True, method=call.method.name)
            # fmt: on

    def _counted(self, under_way: UnderWay, client: Nid, frame: bytes, ended: Ended) -> Ended:
        """Count a frame until it has ended."""
        size = len(frame)
        under_way.add(client, size)

        def has_ended(error: int, text: str) -> None:
            under_way.ended(client, size)
            ended(error, text)

        return has_ended

    def tell(self, call: Call, note: bytes, ended: Ended) -> None:
        """A note about a call that goes on, unless its client does not read: `ended` hears of both."""
        client = call.session.owner
        for under_way in (self.under_way, self._answers):
            if under_way.may_have_more(client):
                self.send(call, note, self._counted(under_way, client, note, ended))
                return
        ended(errno.EBUSY, "the client does not read what it is sent")

    def send(self, call: Call, frame: bytes, ended: Ended) -> None:
        """A frame about a call that goes on; `ended` hears whether the client's memory took it."""
        lane = call.lane
        # fmt: off
        self.port.send(lane.target, REPLY_PORTAL, call.session.inbox, frame, ended=ended, ack=True,
                       source=lane.source, method=call.method.name)
        # fmt: on

    def say(self, asked: Frame, message: Message, frame: bytes) -> None:
        """Answer a frame with which no call began, unless who asked does not read."""
        self._answer(self._answers, message.initiator, asked, message, frame)

    def repeat(self, session: Session[Call], asked: CallFrame, message: Message, reply: bytes) -> None:
        """Send a reply that is kept, unless its client does not read."""
        self._answer(self.under_way, session.owner, asked, message, reply)

    def _answer(self, under_way: UnderWay, client: Nid, asked: Frame, message: Message, frame: bytes) -> None:
        if not under_way.may_have_more(client):
            return
        self.port.send(
            message.source,
            REPLY_PORTAL,
            asked.answer_to,
            frame,
            ended=self._counted(under_way, client, frame, nobody_asks),
            source=bound(message.target),
            method=asked.method if type(asked) is CallFrame else None,
        )
