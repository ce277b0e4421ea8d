"""grpcio without protobuf: one-way is a client stream, all else are unary calls; a thread pool serves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from work import Measured, Meter, Work, payload_of

_THREADS = 4
_METHODS = ("/bench/Stream", "/bench/Call")
_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

Call = Any  # mypy must give the same answer where grpcio is not installed


class _Service(grpc.GenericRpcHandler):  # type: ignore[misc,unused-ignore]
    """Counts what comes; the first milestone is the end of the warm-up."""

    def __init__(self, work: Work) -> None:
        self._answer = payload_of(work.answered)
        self._milestones = {work.warmup: threading.Event(), work.warmup + work.count: threading.Event()}
        self._seen = 0
        self._lock = threading.Lock()

    def wait(self) -> Iterator[None]:
        """Until each milestone."""
        for event in self._milestones.values():
            event.wait()
            yield

    def service(self, details: Any) -> Any:
        """Which function serves a call."""
        if details.method == _METHODS[0]:
            return grpc.stream_unary_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._call)

    def _stream(self, messages: Iterator[bytes], context: Any) -> bytes:
        self._count(sum(1 for _ in messages))
        return b""

    def _call(self, message: bytes, context: Any) -> bytes:
        self._count(1)
        return self._answer

    def _count(self, number: int) -> None:
        with self._lock:
            self._seen += number
            event = self._milestones.get(self._seen)
        if event is not None:
            event.set()


def serve(work: Work, announce: Callable[[str], None]) -> Measured:
    """Answer calls."""
    service = _Service(work)
    server = grpc.server(ThreadPoolExecutor(_THREADS), [service], options=_OPTIONS)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    announce(str(port))
    milestones = service.wait()
    next(milestones)
    meter = Meter()
    next(milestones)
    measured = meter.stop()
    server.stop(grace=5).wait()
    return measured


def drive(work: Work, address: str) -> Measured:
    """Call."""
    with grpc.insecure_channel(f"127.0.0.1:{address}", options=_OPTIONS) as channel:
        _send(channel, work, work.warmup)
        meter = Meter()
        return meter.stop(_send(channel, work, work.count))


def _send(channel: Any, work: Work, count: int) -> list[int] | None:
    payload = payload_of(work.asked)
    if work.kind == "stream":
        channel.stream_unary(_METHODS[0])(payload for _ in range(count))
        return None
    call: Call = channel.unary_unary(_METHODS[1])
    if work.kind == "roundtrip":
        clock = time.perf_counter_ns
        latencies = []
        for _ in range(count):
            began = clock()
            call(payload)
            latencies.append(clock() - began)
        return latencies
    _call_in_window(call, payload, work, count)
    return None


def _call_in_window(call: Call, payload: bytes, work: Work, count: int) -> None:
    """As many calls under way as the window is wide."""
    room = threading.Semaphore(work.window)
    under_way: list[Any] = []
    for _ in range(count):
        room.acquire()
        future = call.future(payload)
        future.add_done_callback(lambda _: room.release())
        under_way.append(future)
        if len(under_way) >= 2 * work.window:
            under_way = [one for one in under_way if not one.done()]
    for future in under_way:
        future.result()
