"""Where the control socket is, and which directory is made for it."""

from __future__ import annotations

import errno
import os

__all__ = ["default_socket", "is_made", "no_directory", "too_long"]

_LONGEST = 107  # bytes, in the kernel's socket address


def too_long(path: str) -> str | None:
    """What is wrong with a path that no socket can have."""
    if len(os.fsencode(path)) <= _LONGEST:
        return None
    return f"{path}: a socket's path has at most {_LONGEST} bytes; name a shorter one"


def default_socket() -> str:
    """ULNET_SOCKET; else /run/ulnet for root, a directory of the user's own for others."""
    return os.environ.get("ULNET_SOCKET") or f"{_own_directory()}/lnetd.sock"


def _own_directory() -> str:
    uid = os.geteuid()
    if uid == 0:
        return "/run/ulnet"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return f"{runtime}/ulnet" if runtime else f"/tmp/ulnet-{uid}"


def is_made(directory: str) -> bool:
    """Whether a directory is made where it is missing: that of the default socket alone, no mistyped one."""
    return os.path.abspath(directory) == os.path.abspath(_own_directory())


def no_directory(path: str) -> str:
    """What is wrong with a socket's path whose directory is missing."""
    return (
        f"the control socket {path} cannot be made ({os.strerror(errno.ENOENT)}): there is no directory "
        f"{os.path.dirname(path)}, and only {_own_directory()} is made for sockets: make it first, or name "
        "another socket with --socket PATH or ULNET_SOCKET"
    )
