"""The control protocol: frames of JSON over a Unix socket, every request with the protocol's version.

A frame is the magic `uLNc`, the length of the JSON in 32 bits, little-endian, and the JSON. A client sends
{"version": 1, "request": {"op": …}}, the node answers {"version": 1, "result": …, "errors": […]}, in order.
Whatever else arrives is answered by an error where that is possible, and never harms others.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.model import Request

__all__ = [
    "HEADER_SIZE",
    "MAX_REPLY",
    "MAX_REQUEST",
    "VERSION",
    "Answer",
    "FrameBuffer",
    "ProtocolError",
    "Reply",
    "decode_reply",
    "decode_request",
    "document_of",
    "encode_reply",
    "encode_request",
    "payload_size",
    "reply_header",
    "reply_in_pieces",
]

VERSION = 1
MAX_REQUEST = 1 << 20
MAX_REPLY = 1 << 28  # a hundred thousand peers with all their counters

_HEADER = struct.Struct("<4sI")
_MAGIC = b"uLNc"
_AT_ONCE = 256  # items of a list that are encoded in one piece
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)
HEADER_SIZE = _HEADER.size


class ProtocolError(Exception):
    """What arrived is not this protocol, or not this version. `errno` is positive."""

    def __init__(self, errno: int, text: str) -> None:
        super().__init__(text)
        self.errno = errno
        self.text = text


class Answer(msgspec.Struct):
    """What a node says to a request; `document` is one of ulnet.dlc.documents, or a mapping in its place."""

    document: msgspec.Struct | Mapping[str, Any] | None = None
    errors: list[ErrorItem] = []
    notes: list[str] = []  # what a person should know of what was done


class Reply(msgspec.Struct):
    """An answer as a client has it: the document is still JSON."""

    version: int
    result: msgspec.Raw = msgspec.Raw(b"null")
    errors: list[ErrorItem] = []
    notes: list[str] = []


class _RequestHead(msgspec.Struct):
    version: int
    request: msgspec.Raw


class _RequestFrame(msgspec.Struct):
    version: int
    request: Request


class _ReplyFrame(msgspec.Struct, omit_defaults=True):
    version: int
    result: msgspec.Struct | Mapping[str, Any] | None = None
    errors: list[ErrorItem] = []
    notes: list[str] = []


class _Version(msgspec.Struct):
    version: int


_json = msgspec.json.Encoder()
_heads = msgspec.json.Decoder(_RequestHead)
_replies = msgspec.json.Decoder(Reply)
_versions = msgspec.json.Decoder(_Version)


@cache
def _requests() -> msgspec.json.Decoder[Request]:
    """Looks at the types of all requests, which clients need not."""
    return msgspec.json.Decoder(Request)


def _frame(payload: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(payload)) + payload


def payload_size(header: bytes | bytearray, limit: int) -> int:
    """How many bytes follow a frame's header. Raises ProtocolError."""
    magic, size = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise ProtocolError(
            errno.EPROTO, "what arrived is not ulnet's control protocol: is the socket's path right?"
        )
    if size > limit:
        raise ProtocolError(errno.EMSGSIZE, f"a message of {size} bytes is too long: {limit} are allowed")
    return int(size)


class FrameBuffer:
    """Bytes in, payloads out; holds no more than one frame and what came with it."""

    __slots__ = ("_data", "_limit")

    def __init__(self, limit: int) -> None:
        self._data = bytearray()
        self._limit = limit

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Add what arrived."""
        self._data += data

    def next(self) -> bytes | None:
        """The next payload, None when it is not complete. Raises ProtocolError."""
        data = self._data
        if data and not _MAGIC.startswith(bytes(data[:4])):
            payload_size(bytes(data[:4]).ljust(HEADER_SIZE), self._limit)
        if len(data) < HEADER_SIZE:
            return None
        end = HEADER_SIZE + payload_size(bytes(data[:HEADER_SIZE]), self._limit)
        if len(data) < end:
            return None
        payload = bytes(data[HEADER_SIZE:end])
        del data[:end]
        return payload


def encode_request(request: Request) -> bytes:
    """The frame of a request. Raises ProtocolError for one that cannot be sent."""
    try:
        payload = _json.encode(_RequestFrame(VERSION, request))
    except UnicodeEncodeError:
        raise ProtocolError(errno.EILSEQ, "the request holds bytes that are not UTF-8 text") from None
    if len(payload) > MAX_REQUEST:
        raise ProtocolError(errno.EMSGSIZE, f"the request is longer than {MAX_REQUEST} bytes: split it")
    return _frame(payload)


def decode_request(payload: bytes) -> Request:
    """The request in a payload. Raises ProtocolError."""
    try:
        version = _versions.decode(payload).version
        if version != VERSION:
            raise ProtocolError(
                errno.EPROTONOSUPPORT,
                f"the request speaks control protocol version {version}, this lnetd version {VERSION}: "
                "use lnetctl and lnetd of one ulnet release",
            )
        return _requests().decode(_heads.decode(payload).request)
    except _BAD as bad:
        raise ProtocolError(errno.EINVAL, f"the request cannot be understood: {bad}") from None


def encode_reply(answer: Answer) -> bytes:
    """The frame of an answer. Raises ProtocolError if it is too long."""
    payload = _json.encode(_ReplyFrame(VERSION, answer.document, answer.errors, answer.notes))
    return reply_header(len(payload)) + payload


def reply_header(size: int) -> bytes:
    """What begins the frame of an answer of so many bytes. Raises ProtocolError if it is too long."""
    if size > MAX_REPLY:
        raise ProtocolError(errno.EMSGSIZE, f"the answer exceeds {MAX_REPLY} bytes: ask for less at once")
    return _HEADER.pack(_MAGIC, size)


def reply_in_pieces(answer: Answer) -> Iterator[bytes]:
    """The frame of an answer without its header, in pieces: long lists of a document take several."""
    document = answer.document
    if not isinstance(document, msgspec.Struct) or not any(map(_is_long, msgspec.structs.astuple(document))):
        yield encode_reply(answer)[HEADER_SIZE:]
        return
    piece = _json.encode(_ReplyFrame(VERSION, None, answer.errors, answer.notes))[:-1] + b',"result":{'
    for name, value in zip(document.__struct_encode_fields__, msgspec.structs.astuple(document), strict=True):
        if value is msgspec.UNSET:
            continue
        piece += _json.encode(name) + b":"
        if not _is_long(value):
            piece += _json.encode(value) + b","
            continue
        piece += b"["
        for at in range(0, len(value), _AT_ONCE):
            yield piece + _json.encode(value[at : at + _AT_ONCE])[1:-1]
            piece = b","
        piece = b"],"
    yield piece[:-1] + b"}}"


def _is_long(value: object) -> bool:
    return isinstance(value, list) and len(value) > _AT_ONCE


def decode_reply(payload: bytes | bytearray) -> Reply:
    """The answer in a payload. Raises ProtocolError."""
    try:
        version = _versions.decode(payload).version
        if version != VERSION:
            raise ProtocolError(
                errno.EPROTONOSUPPORT,
                f"lnetd speaks control protocol version {version}, this lnetctl version {VERSION}: "
                "use lnetctl and lnetd of one ulnet release",
            )
        return _replies.decode(payload)
    except _BAD as bad:
        raise ProtocolError(errno.EPROTO, f"the answer cannot be understood: {bad}") from None


def document_of(result: msgspec.Raw, kind: Any) -> Any:
    """The document of an answer, whoever gave it. Raises DlcError(EPROTO) for what is none of that kind."""
    try:
        return msgspec.json.decode(result, type=kind)
    except _BAD as bad:
        text = f"the answer cannot be understood: {bad}: ask an lnetd of the same ulnet release"
        raise DlcError(errno.EPROTO, text, verb="show", entity="answer") from None
