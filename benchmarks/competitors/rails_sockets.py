"""Plain sockets over several rails: an ideal scheduler, one stream a rail, or one MPTCP connection.

Messages of `rails_job.MESSAGE` bytes behind a header; the receiver answers each with 72 bytes.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from rails_job import Job, Outcome, drive_all
from work import HEADER_BYTES

IPPROTO_MPTCP = 262
_SOL_MPTCP, _MPTCP_INFO = 284, 1
_PORT = 9881


def serve(job: Job, announce: Callable[[str], None]) -> None:
    """Take what comes on every rail and answer each message, until the driver closes."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(_listener(job, rail)) for rail in range(_connections(job))]
        announce("ready")
        threads = [threading.Thread(target=_answer, args=(listener, job.size)) for listener in listeners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _connections(job: Job) -> int:
    return 1 if job.player == "mptcp" else len(job.local)


def _socket(job: Job) -> socket.socket:
    protocol = IPPROTO_MPTCP if job.player == "mptcp" else socket.IPPROTO_TCP
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)


def _listener(job: Job, rail: int) -> socket.socket:
    listener = _socket(job)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # MPTCP's further subflows come to the server's other addresses.
    listener.bind(("0.0.0.0" if job.player == "mptcp" else job.remote[rail], _PORT))
    listener.listen()
    return listener


def _answer(listener: socket.socket, size: int) -> None:
    connection, _ = listener.accept()
    answer = bytes(HEADER_BYTES)
    buffer = memoryview(bytearray(HEADER_BYTES + size))
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            got = 0
            while got < len(buffer):
                count = connection.recv_into(buffer[got:])
                if not count:
                    return
                got += count
            connection.sendall(answer)


class Rail:
    """One connection: what waits to be written, and what was not answered."""

    def __init__(self, connection: socket.socket, rate: float, size: int) -> None:
        self.connection = connection
        self.rate = rate
        self.open = 0
        self._size = HEADER_BYTES + size
        self._message = memoryview(bytes(self._size))
        self._unsent = 0
        self._answers = 0

    def expected(self) -> float:
        """Seconds until one message more would be through."""
        return (self.open + 1) / self.rate

    def put(self) -> None:
        """One message more."""
        self.open += 1
        self._unsent += self._size

    def write(self) -> bool:
        """Write what the socket takes; whether something is left."""
        while self._unsent:
            start = -self._unsent % self._size
            try:
                self._unsent -= self.connection.send(self._message[start:])
            except BlockingIOError:
                return True
        return False

    def read(self) -> int:
        """The number of answers that came."""
        try:
            data = self.connection.recv(65536)
        except BlockingIOError:
            return 0
        if not data:
            raise ConnectionError("the receiver closed the connection")
        before = self._answers // HEADER_BYTES
        self._answers += len(data)
        done = self._answers // HEADER_BYTES - before
        self.open -= done
        return done


class Driver:
    """Sends acknowledged messages over the rails; `player` says by which rule."""

    def __init__(self, job: Job, rails: list[Rail]) -> None:
        self._job = job
        self._rails = rails
        self._selector = selectors.DefaultSelector()
        for rail in rails:
            rail.connection.setblocking(False)
            self._selector.register(rail.connection, selectors.EVENT_READ, rail)

    def _next(self, window: int) -> Rail | None:
        """The rail for the next message; None while the window is full."""
        if self._job.player == "streams":  # nothing shared: each rail has a window of its own
            return next((rail for rail in self._rails if rail.open < window), None)
        if sum(rail.open for rail in self._rails) >= window:
            return None
        return min(self._rails, key=Rail.expected)

    def run(self, count: int | None, seconds: float | None, window: int) -> list[float]:
        """Send `count` messages, or for `seconds`; when each was answered."""
        answered: list[float] = []
        end = time.perf_counter() + seconds if seconds is not None else float("inf")
        left = count if count is not None else 1 << 62
        while True:
            if time.perf_counter() >= end:
                left = 0
            while left and (rail := self._next(window)) is not None:
                left -= 1
                rail.put()
                self._write(rail)
            if not left and not any(rail.open for rail in self._rails):
                return answered
            for key, events in self._selector.select(30):
                rail = key.data
                if events & selectors.EVENT_READ:
                    answered += [time.perf_counter()] * rail.read()
                if events & selectors.EVENT_WRITE:
                    self._write(rail)

    def _write(self, rail: Rail) -> None:
        events = selectors.EVENT_READ
        if rail.write():
            events |= selectors.EVENT_WRITE
        self._selector.modify(rail.connection, events, rail)


def drive(job: Job) -> Outcome:
    """All that the job asks for."""
    with ExitStack() as stack:
        rails = []
        for number in range(_connections(job)):
            connection = stack.enter_context(_socket(job))
            connection.bind((job.local[number], 0))
            connection.connect((job.remote[number], _PORT))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rails.append(Rail(connection, job.rates[number], job.size))
        driver = Driver(job, rails)

        outcome = drive_all(job, driver.run)
        if job.player == "mptcp":
            outcome.subflows = 1 + rails[0].connection.getsockopt(_SOL_MPTCP, _MPTCP_INFO, 96)[0]
        return outcome
