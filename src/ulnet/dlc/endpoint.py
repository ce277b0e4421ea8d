"""The daemon's listening socket: its owner's alone, one daemon on each, nothing stale left in the way."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ulnet.dlc.paths import too_long
from ulnet.dlc.protocol import ProtocolError

__all__ = ["Endpoint"]

_BACKLOG = 64
_PATIENCE = 5.0  # seconds for another daemon that is just starting in the same directory


class Endpoint:
    """A bound and listening Unix socket; `close` removes it, unless another daemon has taken its place.

    In a forked process `close` leaves it: it is the parent's.
    """

    def __init__(self, path: str, group: int | None = None) -> None:
        """`group` may connect as well; what its members may do is not decided here.

        Raises ProtocolError: EADDRINUSE (another lnetd answers there), EACCES, EPERM, ENAMETOOLONG, ….
        """
        self.path = path
        self._process = os.getpid()
        complaint = too_long(path)
        if complaint:
            raise ProtocolError(errno.ENAMETOOLONG, complaint)
        try:
            _make_directory(Path(path).parent, group)
            with _alone_in(Path(path).parent):
                _clear(path)
                # Who else may write to the directory may have put a link there by then: none is followed.
                self.socket: socket.socket = _listen(path, 0o600 if group is None else 0o660)
                if group is not None and os.lstat(path).st_gid != group:
                    os.chown(path, -1, group, follow_symlinks=False)
                self._held = os.open(path, os.O_PATH | os.O_NOFOLLOW)  # so its inode number stays its own
        except OSError as error:
            number = error.errno or errno.EIO
            raise ProtocolError(
                number,
                f"the control socket {path} cannot be made ({os.strerror(number)}): "
                "name another with --socket PATH or ULNET_SOCKET",
            ) from None

    def close(self) -> None:
        """Stop listening and remove the socket; a second call changes nothing."""
        if self._held >= 0:
            try:
                same = os.path.samestat(os.lstat(self.path), os.fstat(self._held))
                if same and os.getpid() == self._process:
                    os.unlink(self.path)
            except OSError:  # somebody removed it already
                pass
            os.close(self._held)
        self._held = -1
        self.socket.close()


def _make_directory(directory: Path, group: int | None) -> None:
    there = directory.exists()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if group is not None and not there:
        os.chown(directory, -1, group)
        directory.chmod(0o750)
    owner = directory.stat().st_uid
    if owner not in (0, os.geteuid()):
        raise ProtocolError(
            errno.EPERM,
            f"the directory {directory} belongs to user {owner}, who could put another socket in place of "
            "lnetd's: name a socket in a directory of your own with --socket PATH or ULNET_SOCKET",
        )


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Daemons that start at the same moment look and bind one after the other."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    give_up = time.monotonic() + _PATIENCE
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _clear(path: str) -> None:
    """Remove a socket on which nobody listens."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ProtocolError(
            errno.EEXIST, f"{path} exists and is not a socket: remove it, or name another with --socket PATH"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except (TimeoutError, BlockingIOError):  # its queue is full: somebody listens
            pass
    raise ProtocolError(
        errno.EADDRINUSE,
        f"another lnetd answers on {path}: stop it first, or name another socket with --socket PATH",
    )


def _listen(path: str, mode: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~mode)
    try:
        listener.bind(path)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener
