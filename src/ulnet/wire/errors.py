"""What all codecs share: the one exception they raise, byte orders, what they read from."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["Buffer", "ByteOrder", "WireError"]

Buffer: TypeAlias = bytes | bytearray | memoryview
ByteOrder: TypeAlias = Literal["little", "big"]


class WireError(ValueError):
    """Bytes that break the protocol, or a value that it cannot carry."""
