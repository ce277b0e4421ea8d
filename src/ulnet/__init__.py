"""LNet in user space: `ulnet.Node` for programs, `lnetd` and `lnetctl` for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ulnet.node import Node

__all__ = ["Node", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Loaded on first use: lnetctl is called in loops and needs no node.
    if name == "Node":
        from ulnet.node import Node

        return Node
    raise AttributeError(f"module 'ulnet' has no attribute {name!r}")
