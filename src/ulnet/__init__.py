"""LNet in user space: `ulnet.Node` for programs, `lnetd` and `lnetctl` for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ulnet.lnd.loop import new_event_loop
    from ulnet.node import Node

__all__ = ["Node", "__version__", "new_event_loop"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Loaded on first use: lnetctl is called in loops and needs no node.
    if name == "Node":
        from ulnet.node import Node

        return Node
    if name == "new_event_loop":
        from ulnet.lnd.loop import new_event_loop

        return new_event_loop
    raise AttributeError(f"module 'ulnet' has no attribute {name!r}")
