"""The other side of many peers: what a node sees of them, and no more. `crowd_far.py COUNT PORT`.

One epoll answers for peers with two NIDs each, as kernel nodes would (spec wire-socklnd, wire-lnet): HELLOs
of any type, a ping with both NIDs, each PUT with an ACK once its payload has come, on the connection of type
CONTROL. So what is measured is the node, and not a thousand others. What a node does not send here ends it.
"""

from __future__ import annotations

import select
import socket
import struct
import sys

from crowd_queue import Queue
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.lnet import HEADER_SIZE, NO_WMD, PING_PORTAL, Header, MsgType, pack_header, unpack_header
from ulnet.wire.ping import Feature, NiEntry, PingInfo
from ulnet.wire.socklnd import (
    FRAME_HEADER_SIZE,
    MAGIC_SIZE,
    VERSION_SIZE,
    ConnType,
    FrameType,
    Hello,
    hello_rest_size,
    inverted_ctype,
    pack_frame_header,
)

SIZE = 1 << 14  # bytes of the largest message
FEATURES = Feature.NI_STATUS | Feature.MULTI_RAIL | Feature.RTE_DISABLED | Feature.DISCOVERY
INCARNATION = 1
AT_ONCE = 64  # connections served between two looks
ROOM = memoryview(bytearray(1 << 18))  # for what comes, of whichever connection
VERSION = 3  # of HELLOs between NIDs like these
REQUEST_SIZE = 16
OPENING_SIZE = REQUEST_SIZE + MAGIC_SIZE + VERSION_SIZE + hello_rest_size(VERSION)
MESSAGE_SIZE = FRAME_HEADER_SIZE + HEADER_SIZE
# Type of the frame, cookie; from whom to whom, type, length of the payload; what a PUT's ACK brings back.
MESSAGE = struct.Struct("<I4xQ8x24sII16s8s")
LNET, NOOP, PUT, GET = int(FrameType.LNET), int(FrameType.NOOP), int(MsgType.PUT), int(MsgType.GET)
ACK_HEAD = FRAME_HEADER_SIZE + 32  # bytes of an ACK that are the same between the same two NIDs
ACK_LENGTH = struct.Struct("<I12x")


def nids_of(number: int) -> tuple[str, str]:
    """Of that peer."""
    return f"127.2.{number >> 8}.{number & 255}@tcp", f"127.3.{number >> 8}.{number & 255}@tcp1"


class Rail:
    """A NID of a peer and one of the node's: what they share is the connection on which ACKs go."""

    __slots__ = ("control",)

    def __init__(self) -> None:
        self.control: Connection | None = None


class Connection(Queue):
    """One connection of the node's, to the peer with these NIDs."""

    __slots__ = ("_ack", "_due", "_head", "_kept", "_missing", "_nids", "_rail", "_rails", "_route")

    def __init__(
        self, sock: socket.socket, nids: tuple[str, str], rails: dict[tuple[Nid, Nid], Rail]
    ) -> None:
        super().__init__(sock)
        self._nids = nids
        self._rails = rails
        self._rail: Rail | None = None  # until the HELLO has come
        self._kept = b""  # a part of a header
        self._missing = 0  # bytes of payload
        self._due = b""  # what answers that
        self._route = b""  # from whom to whom the last message was
        self._ack = b""  # how ACKs to such begin

    def receive(self) -> Queue | None:
        """Take what is there: where answers may now wait to be sent; None if the connection was closed."""
        rail = self._rail
        if rail is None:
            return self._greet()
        kept = len(self._kept)
        if kept:
            ROOM[:kept] = self._kept
        try:
            got = self.sock.recv_into(ROOM[kept:] if kept else ROOM)
        except ConnectionResetError:
            got = 0
        if not got:
            if rail.control is self:
                rail.control = None
            return None
        control = rail.control or self
        self._take(kept + got, control.queue)
        return control

    def _take(self, end: int, answers: list[bytes]) -> None:
        """The messages in so many bytes of the room."""
        at = self._missing
        if at > end:
            self._missing = at - end
            return
        if at:
            answers.append(self._due)
        while end - at >= FRAME_HEADER_SIZE:
            if ROOM[at] == NOOP:  # a keepalive, for there is nothing to acknowledge
                at += FRAME_HEADER_SIZE
                continue
            if end - at < MESSAGE_SIZE:
                break
            kind, cookie, route, what, length, wmd, match = MESSAGE.unpack_from(ROOM, at)
            if kind != LNET or cookie:
                raise ValueError(f"a frame of type {kind:#x} with the cookie {cookie}")
            if what != PUT:
                answers.append(self._reply(at + FRAME_HEADER_SIZE))
                at += MESSAGE_SIZE
                continue
            if wmd == NO_WMD:
                answer = b""
            else:
                if route != self._route:
                    self._learn(route, at + FRAME_HEADER_SIZE)
                answer = self._ack + wmd + match + ACK_LENGTH.pack(length)
            at += MESSAGE_SIZE + length
            if at <= end:
                answers.append(answer)
            else:
                self._due = answer
        if at > end:
            self._missing = at - end
            self._kept = b""
        else:
            self._missing = 0
            self._kept = bytes(ROOM[at:end]) if at < end else b""

    def _learn(self, route: bytes, at: int) -> None:
        """How ACKs begin that answer the message at `at`."""
        self._route = route
        self._ack = _framed(_answer_to(unpack_header(ROOM, at), MsgType.ACK))[:ACK_HEAD]

    def _reply(self, at: int) -> bytes:
        """To a ping."""
        header = unpack_header(ROOM, at)
        if header.type != GET or header.portal != PING_PORTAL:
            raise ValueError(f"a message that no peer here answers: {header}")
        entries = [NiEntry(Nid.parse(nid)) for nid in self._nids]
        info = PingInfo(int(FEATURES), entries=entries).pack()[: header.length]
        reply = _answer_to(header, MsgType.REPLY)
        reply.payload_length = len(info)
        return _framed(reply) + info

    def _greet(self) -> Queue | None:
        """Answer the HELLO once it is whole."""
        try:
            opening = self._kept + self.sock.recv(OPENING_SIZE - len(self._kept))
        except ConnectionResetError:
            return None
        if len(opening) == len(self._kept):
            return None
        self._kept = opening
        if len(opening) < OPENING_SIZE:
            return self
        self._kept = b""
        own = ConnRequest.unpack(opening).nid
        hello = Hello.unpack(opening[REQUEST_SIZE:])
        if str(own) not in self._nids or hello.version != VERSION or hello.nips:
            raise ValueError(f"a call for {own} by {hello}, where {self._nids} are")
        ctype = inverted_ctype(hello.ctype)
        self._rail = rail = self._rails.setdefault((own, hello.src_nid), Rail())
        if ctype is ConnType.CONTROL:
            rail.control = self
        answer = Hello(VERSION, own, hello.src_nid, LNET_PID, hello.dst_pid, INCARNATION, 0, ctype)
        self.queue.append(answer.pack())
        return self


def _answer_to(header: Header, kind: MsgType) -> Header:
    """From whom it was for, to whom it came from."""
    return Header(kind, header.src_nid, header.dest_nid, header.src_pid, header.dest_pid, wmd=header.wmd)


def _framed(header: Header) -> bytes:
    return pack_frame_header(LNET) + pack_header(header, False)


def serve(count: int, port: int) -> None:
    """Take connections, and answer what comes, until who started this is gone."""
    connections: dict[int, Connection] = {}
    rails: dict[tuple[Nid, Nid], Rail] = {}
    listeners: dict[int, tuple[socket.socket, tuple[str, str]]] = {}
    with select.epoll() as poll:
        poll.register(sys.stdin, select.EPOLLIN)
        for number in range(count):
            nids = nids_of(number)
            for nid in nids:
                listener = socket.create_server((nid.partition("@")[0], port), backlog=16)
                listeners[listener.fileno()] = listener, nids
                poll.register(listener, select.EPOLLIN)
        print("ready", flush=True)
        while True:
            for number, what in poll.poll(-1, AT_ONCE):
                connection = connections.get(number)
                if connection is None:
                    if number == sys.stdin.fileno():
                        return
                    listener, nids = listeners[number]
                    connection = Connection(listener.accept()[0], nids, rails)
                    connections[connection.sock.fileno()] = connection
                    poll.register(connection.sock, select.EPOLLIN)
                    continue
                if what & select.EPOLLOUT:
                    connection.flush(poll)
                    if what == select.EPOLLOUT:
                        continue
                answering = connection.receive()
                if answering is None:
                    connections.pop(number).sock.close()
                elif answering.queue:
                    answering.flush(poll)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
