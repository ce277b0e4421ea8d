"""Giving up root for another user, but for what a node needs: ports below 1024, and ties to devices."""

from __future__ import annotations

import ctypes
import errno
import grp
import os
import pwd
from collections.abc import Sequence
from typing import Final

from ulnet.host.values import HostError

__all__ = ["KEPT", "become", "group_number"]

KEPT: Final = {10: "CAP_NET_BIND_SERVICE", 13: "CAP_NET_RAW"}
_LAST: Final = 63  # capabilities there may be: those that the kernel does not know are refused
_KEEP_CAPABILITIES: Final = 8  # prctl(2)
_DROP_BOUND: Final = 24
_NO_NEW_PRIVILEGES: Final = 38
_VERSION: Final = 0x20080522  # capset(2): two words of 32 bits of each set


def become(user: str, groups: Sequence[int] = ()) -> None:
    """Be that user, in these groups too, with the capabilities `KEPT` and no way to others. For root alone.

    To be called before there is any thread. Raises HostError: ESRCH (no such user), EPERM (not root).
    """
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise HostError(errno.ESRCH, f"there is no user {user!r}: name one with --user") from None
    if os.geteuid() != 0:
        raise HostError(errno.EPERM, f"only root can become {user}: start it as root, or leave --user out")
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(_LAST + 1):
        if number not in KEPT:
            libc.prctl(_DROP_BOUND, number, 0, 0, 0)
    try:
        os.setgroups([entry.pw_gid, *groups])
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        _must(libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0))
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
        kept = sum(1 << number for number in KEPT)
        header = (ctypes.c_uint32 * 2)(_VERSION, 0)
        sets = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
        _must(libc.capset(header, sets))
        _must(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    except OSError as error:
        number = error.errno or errno.EPERM
        raise HostError(number, f"becoming {user} failed: {os.strerror(number)}") from None


def _must(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "")


def group_number(name: str) -> int:
    """The number of a group, by its name or number. Raises HostError(ESRCH)."""
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise HostError(errno.ESRCH, f"there is no group {name!r}: see /etc/group") from None
