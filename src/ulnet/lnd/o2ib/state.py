"""What a connection is at the moment, and which protocol it speaks."""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["V1", "V2", "ConnState"]

V1: Final = 0x11
V2: Final = 0x12


class ConnState(Enum):
    """Of a connection."""

    CONNECTING = "called the peer"
    ACCEPTING = "accepted its call"
    ESTABLISHED = "up"
    CLOSED = "ended"
