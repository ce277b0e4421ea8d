"""Where the control socket is."""

from __future__ import annotations

import os

__all__ = ["default_socket"]


def default_socket() -> str:
    """ULNET_SOCKET; else /run/ulnet for root, a directory of the user's own for others."""
    chosen = os.environ.get("ULNET_SOCKET")
    if chosen:
        return chosen
    uid = os.geteuid()
    if uid == 0:
        return "/run/ulnet/lnetd.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return f"{runtime}/ulnet/lnetd.sock" if runtime else f"/tmp/ulnet-{uid}/lnetd.sock"
