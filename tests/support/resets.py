"""Connections of simulated nodes that break."""

from __future__ import annotations

import errno

from ulnet.sim import SimNode
from ulnet.sim.foreign import SingleRailNode


def reset(node: SimNode | SingleRailNode, *names: str) -> None:
    """All connections of these ports break, with what they hold; without names, those of all ports."""
    ports = node.host.ports
    for port in [ports[name] for name in names] or list(ports.values()):
        for attachment in port.attachments():
            for conn in list(attachment.conns.values()):
                conn.close(attachment, errno.ECONNRESET, "cut by the test")
