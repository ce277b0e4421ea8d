"""Something at the control socket that is no lnetd, and answers each request with the same bytes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["ANSWERS", "false_daemon"]

_HEADER: Final = struct.Struct("<4sI")
# Results that are no document, by what is wrong with them.
ANSWERS: Final = {
    "a list": b"[1, 2]",
    "a number": b"5",
    "text": b'"x"',
    "bytes that are not UTF-8": b'{"net": "\xff\xfe"}',
    "a key that is not UTF-8": b'{"\xff": 1}',
    "a number of 5,000 digits": b'{"net": [{"net type": ' + b"9" * 5000 + b"}]}",
    "a number that no float is": b'{"net": 1e999}',
}


@contextmanager
def false_daemon(path: Path, result: bytes) -> Iterator[None]:
    """At that path, until the end; clients come one after the other."""
    payload = b'{"version": 1, "result": ' + result + b"}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    clients: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):  # the end
            while True:
                clients.append(listener.accept()[0])
                with clients[-1] as client:
                    while header := client.recv(_HEADER.size, socket.MSG_WAITALL):
                        magic, size = _HEADER.unpack(header)
                        client.recv(size, socket.MSG_WAITALL)
                        client.sendall(_HEADER.pack(magic, len(payload)) + payload)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        for one in (listener, *clients):
            with suppress(OSError):  # it is closed
                one.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()
