"""Bytes <-> values, one module per protocol. Hostile bytes raise WireError and nothing else."""

from ulnet.wire.errors import ByteOrder, WireError
from ulnet.wire.lnet import (
    HEADER_SIZE,
    LARGE_HEADER_SIZE,
    LNET_MTU,
    NO_WMD,
    PING_MATCH_BITS,
    PING_PORTAL,
    Header,
    MsgType,
    pack_header,
    unpack_header,
)

__all__ = [
    "HEADER_SIZE",
    "LARGE_HEADER_SIZE",
    "LNET_MTU",
    "NO_WMD",
    "PING_MATCH_BITS",
    "PING_PORTAL",
    "ByteOrder",
    "Header",
    "MsgType",
    "WireError",
    "pack_header",
    "unpack_header",
]
