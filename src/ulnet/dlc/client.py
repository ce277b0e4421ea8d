"""The control socket from the client's side, without asyncio: `lnetctl` must start fast."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ulnet.dlc.caller import check_daemon
from ulnet.dlc.errors import DlcError
from ulnet.dlc.hangup import has_gone
from ulnet.dlc.model import Request
from ulnet.dlc.paths import default_socket, too_long
from ulnet.dlc.protocol import (
    HEADER_SIZE,
    MAX_REPLY,
    ProtocolError,
    Reply,
    decode_reply,
    document_of,
    encode_request,
    payload_size,
)

if TYPE_CHECKING:  # lnetctl, which must start fast, makes no calls
    from ulnet.dlc.call import Call

__all__ = ["DEADLINE", "Client", "as_mapping", "no_daemon", "not_sent"]

T = TypeVar("T")
DEADLINE = 30.0  # seconds for a request that names none


class Client:
    """One connection to a node's control socket, opened by the first request."""

    def __init__(self, path: str | None = None) -> None:
        self.path: str = path or default_socket()
        self._socket: socket.socket | None = None

    def request(self, request: Request, deadline: float = DEADLINE) -> Reply:
        """Ask, and wait up to `deadline` seconds. Refusals of the node are in the reply's `errors`.

        Raises DlcError when there is no answer: no daemon, not allowed, another version, too late.
        """
        give_up = time.monotonic() + deadline
        try:
            frame = encode_request(request)
            if self._socket is not None and has_gone(self._socket):
                self.close()  # the node hangs up after a while of silence
            if self._socket is None:
                self._socket = self._connect(give_up)
            self._wait(give_up)
            with suppress(BrokenPipeError):  # a daemon that is full has said so, and hung up, already
                self._socket.sendall(frame)
            size = payload_size(self._receive(HEADER_SIZE, give_up), MAX_REPLY)
            return decode_reply(self._receive(size, give_up))
        except TimeoutError:
            self.close()
            raise not_sent(
                request, errno.ETIMEDOUT, f"no answer from {self.path} in {deadline:g} s"
            ) from None
        except OSError as error:
            self.close()
            raise no_daemon(request, self.path, error) from None
        except ProtocolError as bad:
            self.close()
            raise not_sent(request, bad.errno, bad.text) from None

    def call(self, call: Call[T]) -> T:
        """Ask by a call of ulnet.dlc.calls. Raises DlcError, also for what the node refuses."""
        return call.result(self.request(call.request, call.deadline or DEADLINE))

    def _connect(self, give_up: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(max(give_up - time.monotonic(), 0.001))
            connection.connect(self.path)
            check_daemon(self.path, connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _wait(self, give_up: float) -> None:
        left = give_up - time.monotonic()
        if left <= 0:
            raise TimeoutError
        assert self._socket is not None
        self._socket.settimeout(left)

    def _receive(self, size: int, give_up: float) -> bytearray:
        assert self._socket is not None
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._wait(give_up)
            got = self._socket.recv_into(view)
            if not got:
                raise ConnectionResetError(errno.ECONNRESET, "closed")
            view = view[got:]
        return data

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def as_mapping(reply: Reply) -> dict[str, Any]:
    """The reply's document as plain values in the order to be printed; empty if there is none.

    Raises DlcError(EPROTO) for what is no document.
    """
    return document_of(reply.result, dict[str, Any] | None) or {}


def not_sent(request: Request, number: int, text: str) -> DlcError:
    """The error of a request that got no answer."""
    return DlcError(number, text, verb=request.verb, entity=request.entity)


def no_daemon(request: Request, path: str, error: OSError) -> DlcError:
    """What it means that the socket failed."""
    complaint = too_long(path)  # Python's error has no number then
    if complaint:
        return not_sent(request, errno.ENAMETOOLONG, complaint)
    number = error.errno or (errno.ECONNRESET if isinstance(error, ConnectionError) else errno.EIO)
    if number in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
        return not_sent(
            request,
            errno.ECONNREFUSED,
            f"no lnetd answers on {path}: start it with `lnetd`, or name its socket "
            "with --socket PATH or ULNET_SOCKET",
        )
    if number in (errno.EACCES, errno.EPERM):
        return not_sent(
            request, number, f"{path} belongs to another user: only its owner and root may control that lnetd"
        )
    if number in (errno.ECONNRESET, errno.EPIPE):
        return not_sent(request, errno.ECONNRESET, f"lnetd on {path} hung up before it answered: see its log")
    return not_sent(request, number, f"{path} cannot be used: {os.strerror(number)}")
