"""o2iblnd over RoCE v2 (UDP port 4791): connection management and messages (spec wire-o2iblnd.md).

Recognised: the connection manager's private data, messages sent over queue pairs (put together when
they span packets), and RDMA writes to queue pairs that belong to such connections.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, TypeVar

from ulnet.capture.describe import Requests
from ulnet.capture.describe_o2ib import say_connection, say_o2ib, say_write
from ulnet.capture.event import Say, Saying
from ulnet.capture.packet import Endpoint, IpPayload
from ulnet.wire.errors import WireError
from ulnet.wire.o2ib import MAX_MESSAGE, O2ibMessage, has_magic

__all__ = ["ROCE_PORT", "Roce"]

ROCE_PORT: Final = 4791
_UDP_HEADER: Final = 8
_BTH: Final = 12
_ICRC: Final = 4
_DETH: Final = 8
_RETH: Final = 16
_MAD_HEADER: Final = 24
_MAD_SIZE: Final = 256
_CM_CLASS: Final = 0x07
_UD_SEND: Final = (0x64, 0x65)
_SEND_FIRST: Final = 0x00
_SEND_MIDDLE: Final = 0x01
_SEND_LAST: Final = (0x02, 0x03, 0x16)
_SEND_ONLY: Final = (0x04, 0x05, 0x17)
_WITH_IMMEDIATE: Final = (0x03, 0x05, 0x16, 0x17)  # four more header bytes
_WRITE_START: Final = (0x06, 0x0A, 0x0B)  # first, only, only with immediate data
_PSN_MASK: Final = (1 << 24) - 1
_REMEMBERED: Final = 4096

_CM_REQUEST: Final = 0x10
_CM_REJECT: Final = 0x12
_CM_REPLY: Final = 0x13
# Where a CM message's private data begins; a request's lies behind 36 bytes of IP addresses.
_PRIVATE_DATA: Final = {_CM_REQUEST: 140 + 36, _CM_REJECT: 84, _CM_REPLY: 36}
_CM_OTHERS: Final = (0x14, 0x15, 0x16)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Partial:
    """The start of a message that goes on in the next packet."""

    next_psn: int
    data: bytes


def _remember(table: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > _REMEMBERED:
        table.popitem(last=False)


class Roce:
    """Reads UDP datagrams to RoCE's port."""

    def __init__(self, say: Say, requests: Requests) -> None:
        self._say = say
        self._requests = requests
        self._partial: OrderedDict[tuple[bytes, bytes, int], _Partial] = OrderedDict()
        self._queue_pairs: OrderedDict[tuple[bytes, int], None] = OrderedDict()  # (ip, number) of o2iblnd
        self._cm_ids: OrderedDict[bytes, None] = OrderedDict()  # connections being set up by o2iblnd

    def datagram(self, packet: IpPayload) -> None:
        """Take one UDP datagram."""
        data = packet.data
        if len(data) < _UDP_HEADER + _BTH + _ICRC or int.from_bytes(data[2:4], "big") != ROCE_PORT:
            return
        src = Endpoint(packet.src, int.from_bytes(data[:2], "big"))
        dst = Endpoint(packet.dst, ROCE_PORT)
        size = int.from_bytes(data[4:6], "big")
        bth = data[_UDP_HEADER:]
        opcode = bth[0]
        padding = bth[1] >> 4 & 3
        body = bth[_BTH : max(size - _UDP_HEADER - _ICRC - padding, 0)]  # fewer if the capture cut it
        queue_pair = int.from_bytes(bth[5:8], "big")
        psn = int.from_bytes(bth[9:12], "big")
        if opcode in _UD_SEND:
            self._management(src, dst, body[_DETH:])
        elif opcode in _WRITE_START:
            self._write(src, dst, queue_pair, body)
        else:
            message = self._join(packet, opcode, queue_pair, psn, body)
            if message and has_magic(message):
                _remember(self._queue_pairs, (packet.dst, queue_pair), None)
                self._tell_message(src, dst, message)

    def _join(self, packet: IpPayload, opcode: int, queue_pair: int, psn: int, body: bytes) -> bytes:
        """The whole message that this packet completes; empty if it completes none."""
        if opcode in _WITH_IMMEDIATE:
            body = body[4:]
        if opcode in _SEND_ONLY:
            return body
        key = (packet.src, packet.dst, queue_pair)
        if opcode == _SEND_FIRST:
            if has_magic(body):
                _remember(self._partial, key, _Partial(psn + 1 & _PSN_MASK, body))
            return b""
        partial = self._partial.get(key)
        if partial is None or (opcode != _SEND_MIDDLE and opcode not in _SEND_LAST):
            return b""
        if partial.next_psn != psn or len(partial.data) + len(body) > MAX_MESSAGE:
            del self._partial[key]
            return b""
        partial.data += body
        partial.next_psn = psn + 1 & _PSN_MASK
        if opcode == _SEND_MIDDLE:
            return b""
        del self._partial[key]
        return partial.data

    def _tell_message(self, src: Endpoint, dst: Endpoint, data: bytes) -> None:
        try:
            self._say(src, dst, say_o2ib(O2ibMessage.unpack(data), self._requests))
        except WireError as error:
            self._say(src, dst, Saying("bad-o2ib", f"{error}", {"error": str(error)}))

    def _write(self, src: Endpoint, dst: Endpoint, queue_pair: int, body: bytes) -> None:
        if (dst.ip, queue_pair) in self._queue_pairs and len(body) >= _RETH:
            key, size = int.from_bytes(body[8:12], "big"), int.from_bytes(body[12:16], "big")
            self._say(src, dst, say_write(key, size))

    def _management(self, src: Endpoint, dst: Endpoint, mad: bytes) -> None:
        """A management datagram: the connection manager's, if it sets up o2iblnd."""
        if len(mad) < _MAD_SIZE or mad[1] != _CM_CLASS:
            return
        attribute = int.from_bytes(mad[16:18], "big")
        message = mad[_MAD_HEADER:]
        local, remote = message[:4], message[4:8]
        private = message[_PRIVATE_DATA[attribute] :] if attribute in _PRIVATE_DATA else b""
        known = local in self._cm_ids or remote in self._cm_ids
        if not has_magic(private) and not (known and attribute in (*_PRIVATE_DATA, *_CM_OTHERS)):
            return
        if attribute in (_CM_REQUEST, _CM_REPLY):
            _remember(self._cm_ids, local, None)
            at = 32 if attribute == _CM_REQUEST else 12
            _remember(self._queue_pairs, (src.ip, int.from_bytes(message[at : at + 3], "big")), None)
        self._say(src, dst, say_connection(attribute, private))
