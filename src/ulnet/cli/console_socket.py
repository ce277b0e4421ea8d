"""Where a node listens that serves tests without lnetd, or that keeps the session of `lst`."""

from __future__ import annotations

from pathlib import Path

from ulnet.dlc.paths import default_socket

__all__ = ["console_socket"]


def console_socket() -> str:
    """Beside the socket of lnetd."""
    return str(Path(default_socket()).with_name("lst.sock"))
