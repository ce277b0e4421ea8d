"""Who is at the other end of a control socket, by the word of the kernel; and who may be believed there."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
import struct
from enum import IntEnum
from typing import Final, NamedTuple

from ulnet.dlc.protocol import ProtocolError

__all__ = ["NO_GROUPS", "OURSELVES", "Caller", "Groups", "Role", "check_daemon", "credentials"]

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid
_SO_PEERGROUPS: Final = 59  # not in Python's socket module
_MOST_GROUPS: Final = 256  # that getsockopt of Python takes
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH


class Role(IntEnum):
    """What a caller may do; each may do what those before may."""

    LOOK = 1  # requests that change nothing, and send nothing
    CHANGE = 2


class Caller(NamedTuple):
    """A process that asks."""

    uid: int
    pid: int
    role: Role

    @property
    def user(self) -> str:
        """The user's name, where there is one."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)


OURSELVES: Final = Caller(os.geteuid(), os.getpid(), Role.CHANGE)  # a file that the daemon was started with


class Groups(NamedTuple):
    """The groups whose members may look, or change, beside root and the daemon's own user; None: nobody."""

    readers: int | None = None
    administrators: int | None = None

    def caller(self, connection: socket.socket) -> Caller:
        """Who is at the other end, and what he may do: something.

        Raises OSError, ProtocolError(EACCES) where he may do nothing.
        """
        pid, uid, gid = credentials(connection)
        if uid in (0, os.geteuid()):
            return Caller(uid, pid, Role.CHANGE)
        members = _groups_of(connection) | {gid} if self != (None, None) else set()
        if self.administrators in members:
            return Caller(uid, pid, Role.CHANGE)
        looker = Caller(uid, pid, Role.LOOK)
        if self.readers not in members:
            text = f"user {looker.user} may not control this lnetd: only its owner, root, and its groups may"
            raise ProtocolError(errno.EACCES, text)
        return looker

    @property
    def opened_to(self) -> int | None:
        """The group that the socket must be open to, for its members to be heard at all."""
        return self.readers if self.readers is not None else self.administrators


NO_GROUPS: Final = Groups()


def credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end, when it connected or began to listen. Raises OSError."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(packed)
    return pid, uid, gid


def _groups_of(connection: socket.socket) -> set[int]:
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MOST_GROUPS)
    except OSError:  # more than that: it stays at the first one
        return set()
    return {gid for (gid,) in struct.iter_unpack("=I", packed)}


def check_daemon(path: str, connection: socket.socket) -> None:
    """Whoever answers on that path is root's, ours, or was put there by root. Raises ProtocolError(EPERM).

    Another user's daemon is believed where its directory is its own or root's, in a directory into which only
    root can put one: as a service's in /run is.
    """
    _, uid, _ = credentials(connection)
    if uid in (0, os.geteuid()):
        return
    directory = os.path.dirname(os.path.realpath(path))
    if _is_held_by(directory, (0, uid)):
        while _is_held_by(directory := os.path.dirname(directory), (0,)):
            if directory == "/":
                return
    raise ProtocolError(
        errno.EPERM,
        f"who answers on {path} runs as user {uid}, and others than root could have put it there: "
        "is that lnetd? It is asked only in a directory that is safe from others, as /run/ulnet is",
    )


def _is_held_by(directory: str, owners: tuple[int, ...]) -> bool:
    """Whether nobody else can put anything into a directory."""
    found = os.stat(directory)
    return found.st_uid in owners and not found.st_mode & _WRITABLE
