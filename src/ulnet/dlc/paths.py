"""Where the control socket is."""

from __future__ import annotations

import os

__all__ = ["default_socket", "too_long"]

_LONGEST = 107  # bytes, in the kernel's socket address


def too_long(path: str) -> str | None:
    """What is wrong with a path that no socket can have."""
    if len(os.fsencode(path)) <= _LONGEST:
        return None
    return f"{path}: a socket's path has at most {_LONGEST} bytes; name a shorter one"


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
