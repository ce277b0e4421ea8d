"""LNet selftest: what a node does in a session, and the console (docs/selftest.md)."""

from ulnet.selftest.service import Selftest

__all__ = ["Selftest"]
