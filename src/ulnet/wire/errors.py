"""The one exception that codecs raise, and the two byte orders."""

from __future__ import annotations

from typing import Literal

__all__ = ["ByteOrder", "WireError"]

ByteOrder = Literal["little", "big"]


class WireError(ValueError):
    """Bytes that break the protocol, or a value that it cannot carry."""
