"""A stream over one MPTCP connection, while a rail fails; connected anew when the peer was restarted."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from competitors.rails_sockets import IPPROTO_MPTCP
from failover_job import AGAIN, MESSAGE, WINDOW, Job, Outcome
from work import HEADER_BYTES

_PORT = 9883


def serve(job: Job, announce: Callable[[str], None]) -> None:
    """Answer each message, one connection after the other, until the harness ends this process."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", _PORT))
        listener.listen()
        announce("ready")
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    buffer = memoryview(bytearray(HEADER_BYTES + MESSAGE))
    with connection, suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while _receive(connection, buffer):
            connection.sendall(bytes(HEADER_BYTES))


def _receive(connection: socket.socket, buffer: memoryview) -> bool:
    got = 0
    while got < len(buffer):
        count = connection.recv_into(buffer[got:])
        if not count:
            return False
        got += count
    return True


def drive(job: Job, announce: Callable[[str], None]) -> Outcome:
    """Keep a window under way; what a lost connection took with it is sent again on the next one."""
    outcome = Outcome()
    open_messages: deque[int] = deque()
    announce("ready")
    end = time.monotonic() + job.seconds
    while time.monotonic() < end or open_messages:
        if time.monotonic() > end + job.grace:
            break
        connection = _connect(job)
        if connection is None:
            time.sleep(AGAIN)
            continue
        with connection:
            _Stream(connection, outcome, open_messages, end, end + job.grace).run()
        outcome.reported += len(open_messages) if time.monotonic() < end + job.grace else 0
    outcome.over = end
    return outcome


def _connect(job: Job) -> socket.socket | None:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    connection.settimeout(1.0)
    try:
        connection.bind((job.local[0], 0))
        connection.connect((job.remote[0], _PORT))
    except OSError:
        connection.close()
        return None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class _Stream:
    """One connection: a thread writes, this one reads the answers."""

    def __init__(
        self, connection: socket.socket, outcome: Outcome, waiting: deque[int], end: float, give_up: float
    ) -> None:
        self._connection = connection
        self._outcome = outcome
        self._waiting = waiting  # not answered, in the order of sending
        self._again = len(waiting)  # of them were sent on another connection only
        self._end = end
        self._give_up = give_up
        self._room = threading.Semaphore(WINDOW - len(waiting))
        self._broken = False

    def run(self) -> None:
        """Until the stream is over, or the connection."""
        connection = self._connection
        connection.settimeout(0.1)
        writer = threading.Thread(target=self._write)
        writer.start()
        answer = memoryview(bytearray(HEADER_BYTES))
        got = 0
        while (self._waiting or time.monotonic() < self._end) and time.monotonic() < self._give_up:
            try:
                count = connection.recv_into(answer[got:])
            except TimeoutError:
                continue
            except OSError:
                break
            if not count:
                break
            got += count
            if got == HEADER_BYTES:
                got = 0
                self._outcome.end(self._waiting.popleft())
                self._room.release()
        self._broken = True
        self._room.release()
        writer.join()

    def _write(self) -> None:
        for _ in range(self._again):
            if not self._send():
                return
        while True:
            self._room.acquire()
            if self._broken or time.monotonic() >= self._end:
                return
            self._waiting.append(self._outcome.begin())
            if not self._send():
                return

    def _send(self) -> bool:
        left = _MESSAGE
        while left and not self._broken and time.monotonic() < self._give_up:
            try:
                left = left[self._connection.send(left) :]
            except TimeoutError:
                continue
            except OSError:
                return False
        return not left


_MESSAGE = memoryview(bytes(HEADER_BYTES + MESSAGE))
