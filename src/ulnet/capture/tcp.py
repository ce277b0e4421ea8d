"""All TCP connections of a capture: segments to conversations, opening and closing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from ulnet.capture.conversation import Side
from ulnet.capture.describe import Requests
from ulnet.capture.event import Say, Saying
from ulnet.capture.packet import Endpoint, IpPayload
from ulnet.capture.reassembly import Budget, Chunk, HalfStream

__all__ = ["TcpConnections"]

_MAX_CONNECTIONS: Final = 16384
_FIN: Final = 0x01
_SYN: Final = 0x02
_RST: Final = 0x04
_ACK: Final = 0x10


class _End:
    """One end of a connection: its bytes put in order, and what they say."""

    __slots__ = ("fin", "finished", "side", "stream", "syn")

    def __init__(self, side: Side, stream: HalfStream) -> None:
        self.side = side
        self.stream = stream
        self.syn: int | None = None
        self.fin: int | None = None  # sequence number of a FIN that was seen
        self.finished = False

    def take(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self.side.reader.feed(chunk.missing, chunk.data)

    def finish(self, why: str) -> None:
        if not self.finished:
            self.finished = True
            self.take(self.stream.flush())
            self.side.end(why)


_Connection = dict[Endpoint, _End]


class TcpConnections:
    """Reads segments; the oldest connections are forgotten when there are too many."""

    def __init__(self, say: Say, requests: Requests, ports: Collection[int]) -> None:
        self._say = say
        self._requests = requests
        self._ports = ports
        self._budget = Budget()
        self._connections: OrderedDict[frozenset[Endpoint], _Connection] = OrderedDict()

    def segment(self, packet: IpPayload) -> None:
        """Take one TCP segment."""
        data = packet.data
        if len(data) < 20:
            return
        head = (data[12] >> 4) * 4
        if head < 20 or head > len(data):
            return
        src = Endpoint(packet.src, int.from_bytes(data[:2], "big"))
        dst = Endpoint(packet.dst, int.from_bytes(data[2:4], "big"))
        seq = int.from_bytes(data[4:8], "big")
        ack = int.from_bytes(data[8:12], "big")
        flags = data[13]
        connection = self._connection(src, dst, seq, flags)
        end, other = connection[src], connection[dst]
        if flags & _SYN:
            end.syn = seq
            end.stream.start(seq + 1)
            return
        if flags & _ACK and not other.finished:
            other.take(other.stream.acknowledged(ack))
            self._close(dst, src, other, end)
        if not end.finished:
            end.take(end.stream.feed(seq, data[head:], packet.cut))
            if flags & _FIN:
                end.stream.start(seq)
                end.fin = seq + len(data) - head + packet.cut
            self._close(src, dst, end, other)
        if flags & _RST:
            self._reset(src, dst, end, other)

    def finish(self) -> None:
        """The capture is over."""
        for connection in self._connections.values():
            for end in connection.values():
                end.finish("the capture ends")
        self._connections.clear()

    def _close(self, src: Endpoint, dst: Endpoint, end: _End, other: _End) -> None:
        """End one direction if its FIN was seen and everything before it."""
        if end.fin is not None and not end.finished and end.stream.reached(end.fin):
            end.finish("closes")
            self._tell(end, other, src, dst, Saying("closed", "closes the connection"))

    def _reset(self, src: Endpoint, dst: Endpoint, end: _End, other: _End) -> None:
        if end.finished and other.finished:
            return
        refused = other.syn is not None and end.syn is None
        other.finish("reset")
        end.finish("resets")
        words = "refuses the connection: nobody listens" if refused else "resets the connection"
        self._tell(end, other, src, dst, Saying("refused" if refused else "reset", words))

    def _tell(self, end: _End, other: _End, src: Endpoint, dst: Endpoint, saying: Saying) -> None:
        """Say it if this is a connection of LNet's."""
        if end.side.is_lnet or other.side.is_lnet or src.port in self._ports or dst.port in self._ports:
            self._say(src, dst, saying)

    def _connection(self, src: Endpoint, dst: Endpoint, seq: int, flags: int) -> _Connection:
        """The connection of a segment; a new one where a SYN begins another on the same ports."""
        key = frozenset((src, dst))
        known = self._connections.get(key)
        opens = bool(flags & _SYN and not flags & _ACK)
        if known and not (opens and known[src].syn != seq):
            self._connections.move_to_end(key)
            return known
        if known:
            for end in known.values():
                end.finish("a new connection begins")
        expected = src.port in self._ports or dst.port in self._ports
        fresh = bool(flags & _SYN)
        connection = {
            one: _End(
                Side(one, two, self._say, self._requests, fresh=fresh, expected=expected),
                HalfStream(self._budget),
            )
            for one, two in ((src, dst), (dst, src))
        }
        self._connections[key] = connection
        self._connections.move_to_end(key)
        if len(self._connections) > _MAX_CONNECTIONS:
            _, oldest = self._connections.popitem(last=False)
            for end in oldest.values():
                end.finish("followed no longer")
        return connection
