"""Messages of LNet selftest: 160 bytes, each the payload of one PUT (spec selftest.md §2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ulnet.wire.errors import Buffer, ByteOrder, WireError
from ulnet.wire.selftest_bodies import REPLIES, REQUESTS, Body, Reply, reply_type, request_type
from ulnet.wire.selftest_values import FEATURES, Service

__all__ = [
    "BULK_PORTAL",
    "FEATURES",
    "FRAMEWORK_PORTAL",
    "MAGIC",
    "MAX_BULK",
    "MESSAGE_SIZE",
    "PAGE",
    "TEST_PORTAL",
    "VERSION",
    "Message",
    "is_framework",
    "pack_message",
    "unpack_message",
]

TEST_PORTAL: Final = 50
FRAMEWORK_PORTAL: Final = 51
BULK_PORTAL: Final = 52  # replies, too
MAGIC: Final = 0xEEB0F00D
VERSION: Final = 1
MESSAGE_SIZE: Final = 160
MAX_BULK: Final = 1 << 20
PAGE: Final = 4096

_BODY_AT: Final = 24
_HEAD: Final = {"little": struct.Struct("<6I"), "big": struct.Struct(">6I")}


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its body, the features of the session it belongs to, and how its sender writes numbers."""

    body: Body
    features: int = 0
    version: int = VERSION
    byteorder: ByteOrder = "little"

    @property
    def service(self) -> Service:
        """The service that it is for, or from."""
        return self.body.SERVICE


def is_framework(service: int) -> bool:
    """Whether requests for that service go to the portal of the framework."""
    return service < 10


def pack_message(message: Message) -> bytes:
    """The message as 160 bytes, unused ones 0. Raises WireError for what has no place in it."""
    body = message.body
    kind = (reply_type if isinstance(body, Reply) else request_type)(body.SERVICE)
    try:
        head = _HEAD[message.byteorder].pack(MAGIC, message.version, kind, 0, 0, message.features)
        packed = body.pack(message.byteorder)
    except struct.error as bad:
        raise WireError(
            f"selftest {type(body).__name__}: a number has no room in its field ({bad})"
        ) from None
    return (head + packed).ljust(MESSAGE_SIZE, b"\0")


def unpack_message(data: Buffer) -> Message:
    """Read a message in either byte order.

    One of another version is read as if it were of this one: its reader answers it by EPROTO. Raises
    WireError for another length, magic or type.
    """
    view = memoryview(data)
    if view.nbytes != MESSAGE_SIZE:
        raise WireError(f"selftest message of {view.nbytes} bytes: it has {MESSAGE_SIZE}")
    magic = bytes(view[:4])
    byteorder: ByteOrder
    if magic == _LITTLE:
        byteorder = "little"
    elif magic == _BIG:
        byteorder = "big"
    else:
        raise WireError(f"selftest message that begins with {magic.hex()}: its magic is {MAGIC:#x}")
    _, version, kind, _, _, features = _HEAD[byteorder].unpack_from(view)
    known = _BY_TYPE.get(kind)
    if known is None:
        raise WireError(f"selftest message of type {kind}: nobody knows what that is")
    body = known.unpack(view[_BODY_AT:], byteorder, features)
    return Message(body, features, version, byteorder)


_LITTLE: Final = MAGIC.to_bytes(4, "little")
_BIG: Final = MAGIC.to_bytes(4, "big")
_BY_TYPE: Final[dict[int, type[Body]]] = {
    **{request_type(service): body for service, body in REQUESTS.items()},
    **{reply_type(service): body for service, body in REPLIES.items()},
}
