"""Ports for listeners in tests: outside the range from which the system takes source ports."""

from __future__ import annotations

import itertools
import os
import socket

_LOWEST, _HIGHEST = 20000, 32000
# Each worker has ports of its own: one that another had just found free was taken before it was listened on.
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_COUNT = (_HIGHEST - _LOWEST) // _WORKERS
_next = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """A TCP port that nobody uses on any local address, and that no outgoing connection will get."""
    for number in itertools.islice(_next, _COUNT):
        port = _LOWEST + number % _COUNT * _WORKERS + _WORKER
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"all ports of this worker from {_LOWEST} to {_HIGHEST} are in use")
