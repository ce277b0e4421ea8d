"""Dynamic peer discovery (spec discovery.md): who a peer is, which NIDs it has, and telling it ours."""

from ulnet.control.discovery.machine import Discovery

__all__ = ["Discovery"]
