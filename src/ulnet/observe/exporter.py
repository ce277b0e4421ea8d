"""Metrics of one node over HTTP, for Prometheus: an answer comes in time even where the node hangs."""

from __future__ import annotations

import io
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ulnet.observe.clients import who_gives_way
from ulnet.observe.exposition import Exposition
from ulnet.observe.families import Families
from ulnet.observe.source import Source

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

__all__ = ["Exporter", "NodeCollector"]

DEFAULT_TIMEOUT: Final = 8.0  # seconds; Prometheus waits 10 unless told otherwise
_RESERVE: Final = 0.5  # seconds of the scraper's patience that are left for the answer's way
_IDLE_CLIENT: Final = 10.0  # seconds in which a client must have sent its request
_MOST_CLIENTS: Final = 32
_LEAVES: Final = 0.2  # seconds until who was hung up on must have left
_MOST_HEAD: Final = 16384  # bytes of a request's first line and headers
_PIECES: Final = 0.05  # seconds until the next look at a request that comes in pieces
_PACE: Final = 0.01  # seconds from one client to the next: what lnetd does in the same process comes first
_AT_ONCE: Final = 16  # clients after a pause who do not wait for that
_LEAST_FRESH: Final = 1.0  # seconds from a reading's end for which it serves all, at least
_MOST_FRESH: Final = 4.0  # from a reading's beginning, if it took less: scrapes are further apart
_REST: Final = 20  # times that what a reading took is left between two of them
_INDEX: Final = (
    b"""<!doctype html><title>ulnet exporter</title><p>Metrics of LNet: <a href="/metrics">/metrics</a></p>"""
)


class NodeCollector(Collector):
    """The families of a node; one reading at a time, whose result serves all who wait for it."""

    def __init__(self, source: Source, peers: int = 100, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._families = Families(peers)
        self._clock = clock
        self._lock = threading.Lock()
        self._last: list[Metric] = []
        self._fresh_until = -1.0
        self._enough = 0.0  # seconds: for who waits less than twice as long the last reading serves

    def collect(self) -> Iterator[Metric]:
        """As a registry of prometheus_client asks."""
        yield from self.within(DEFAULT_TIMEOUT)

    def within(self, timeout: float) -> list[Metric]:
        """The families, read within `timeout` seconds."""
        asked = self._clock()
        if not self._lock.acquire(timeout=timeout):
            return self._last
        try:
            left = max(asked + timeout - self._clock(), 0.01)
            began = self._clock()
            if self._fresh_until <= began or 2 * self._enough <= left:
                snapshot = self._source.read(left)
                self._last = list(self._families.of(snapshot, began))
                ended = self._clock()
                rest = ended + max(_LEAST_FRESH, _REST * (ended - began))
                self._fresh_until = min(rest, max(began + _MOST_FRESH, ended + _LEAST_FRESH))
                self._enough = left if snapshot.missing else math.inf
            return self._last
        finally:
            self._lock.release()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each client, of a bounded number.

    One too many takes the place of another: of the address that has most, the one that came first.
    """

    daemon_threads = True
    request_queue_size = 256  # the last of them has its turn within 3 s, while Prometheus still waits

    def __init__(self, *words: Any, **more: Any) -> None:
        self._places = threading.BoundedSemaphore(_MOST_CLIENTS)
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, str] = {}  # with their addresses, the oldest first
        self._next = -math.inf  # when the next client has its turn
        super().__init__(*words, **more)

    def process_request(self, request: Any, client_address: Any) -> None:
        now = time.monotonic()
        self._next = max(self._next, now - _AT_ONCE * _PACE) + _PACE
        time.sleep(max(self._next - now, 0.0))
        if not self._places.acquire(blocking=False):
            self._hang_up_on_one()
            if not self._places.acquire(timeout=_LEAVES):  # it is having an answer made, and hears later
                self.shutdown_request(request)
                return
        with self._lock:
            self._clients[request] = client_address[0]
        request.settimeout(_IDLE_CLIENT)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread for it
            self._left(request)
            raise

    def _hang_up_on_one(self) -> None:
        """Its thread, which waits for it to read or write, ends."""
        with self._lock:
            oldest = who_gives_way((address, client) for client, address in self._clients.items())
            if oldest is not None:
                # Where it does not leave in time, another one is next.
                self._clients[oldest] = self._clients.pop(oldest)
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._left(request)

    def _left(self, request: socket.socket) -> None:
        with self._lock:
            del self._clients[request]
        self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up, or was too slow, is no news."""


class _Handler(WSGIRequestHandler):
    """Takes a short request, and is silent."""

    def handle(self) -> None:
        """The standard one would take 100 headers of 64 KiB each."""
        head = self._head()
        if len(head) > _MOST_HEAD:
            self.requestline = self.request_version = self.command = ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        self.rfile.close()
        self.rfile = io.BytesIO(head)
        super().handle()

    def _head(self) -> bytes:
        """With what came behind it; longer than it may be where it is."""
        head = b""
        give_up = time.monotonic() + _IDLE_CLIENT
        while time.monotonic() < give_up:
            piece: bytes = self.connection.recv(_MOST_HEAD + 1 - len(head))
            head += piece
            if not piece or len(head) > _MOST_HEAD or b"\n\r\n" in head or b"\n\n" in head:
                return head
            time.sleep(_PIECES)
        raise TimeoutError

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is no news."""

    def address_string(self) -> str:
        return str(self.client_address[0])  # without asking a name server


class Exporter:
    """Serves `/metrics` on an address, in threads of its own, from `start` to `close`."""

    def __init__(self, source: Source, address: str, port: int, peers: int = 100) -> None:
        """Raises OSError: the address is taken, or not here."""
        self.collector: NodeCollector = NodeCollector(source, peers)
        self._source = source
        self._exposition = Exposition()
        server_class: type[_Server] = _Server
        if ":" in address:
            server_class = type("_Server6", (_Server,), {"address_family": socket.AF_INET6})
        self._server = make_server(address, port, self._answer, server_class, _Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="exporter", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def start(self) -> Self:
        """Serve from now on."""
        self._thread.start()
        return self

    def close(self) -> None:
        """End the server; a scrape that is under way is cut off."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._source.close()

    def _answer(self, environ: WSGIEnvironment, respond: StartResponse) -> list[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _plain(respond, "405 Method Not Allowed", b"GET alone\n")
        if path == "/":
            respond("200 OK", [("Content-Type", "text/html; charset=utf-8")])
            return [_INDEX]
        if path != "/metrics":
            return _plain(respond, "404 Not Found", b"there is /metrics\n")
        families = self.collector.within(
            _patience(environ.get("HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS", ""))
        )
        text, kind = self._exposition.text(families, environ.get("HTTP_ACCEPT", ""))
        respond("200 OK", [("Content-Type", kind), ("Content-Length", str(len(text)))])
        return [text]


def _patience(told: str) -> float:
    """How long the node may take, of what the scraper says that it waits."""
    try:
        return max(min(60.0, float(told) - _RESERVE), 0.1)  # in this order "nan" is as much as 60 s
    except ValueError:
        return DEFAULT_TIMEOUT


def _plain(respond: StartResponse, status: str, text: bytes) -> list[bytes]:
    respond(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [text]
