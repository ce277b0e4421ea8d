"""Configuration requests executed on a Node (spec lnetctl.md)."""

from ulnet.node.admin.admin import Admin

__all__ = ["Admin"]
