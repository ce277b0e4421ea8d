"""How fast a link runs now, by the ethtool ioctl: it asks this thread's namespace, unlike /sys."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from typing import Final

__all__ = ["link_speed"]

_SIOCETHTOOL: Final = 0x8946
_GET_SETTINGS: Final = 0x1
_COMMAND: Final = struct.Struct("=I8xH14xH14x")  # command, …, speed, …, its upper half
_REQUEST: Final = struct.Struct("16sP16x")  # name, where the command is
_LONGEST_NAME: Final = 15
_UNKNOWN: Final = (0, 0xFFFF, 0xFFFFFFFF)


def link_speed(name: str) -> int | None:
    """Mb/s; None where the link, its driver or its carrier does not tell."""
    raw = name.encode()
    if not 0 < len(raw) <= _LONGEST_NAME:
        return None
    command = array.array("B", _COMMAND.pack(_GET_SETTINGS, 0, 0))
    request = _REQUEST.pack(raw, command.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            fcntl.ioctl(probe, _SIOCETHTOOL, request)
    except OSError:
        return None
    _, low, high = _COMMAND.unpack(command)
    speed: int = high << 16 | low
    return None if speed in _UNKNOWN else speed
