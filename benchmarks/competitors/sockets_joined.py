"""Plain sockets that join 256 frames in one call: what batching alone can reach with small messages."""

from __future__ import annotations

from competitors import sockets
from work import Measured, Work

serve = sockets.serve


def drive(work: Work, address: str) -> Measured:
    """As `sockets`, with joined frames."""
    return sockets.drive(work, address, joined=256)
