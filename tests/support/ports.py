"""Ports for listeners in tests: outside the range from which the system takes source ports."""

from __future__ import annotations

import itertools
import os
import socket

_LOWEST, _HIGHEST = 20000, 32000
_next = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """A TCP port that nobody uses on any local address, and that no outgoing connection will get."""
    for number in itertools.islice(_next, _HIGHEST - _LOWEST):
        port = _LOWEST + number % (_HIGHEST - _LOWEST)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"all ports from {_LOWEST} to {_HIGHEST} are in use")
