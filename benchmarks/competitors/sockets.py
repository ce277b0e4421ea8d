"""Plain blocking sockets: header and payload in one `sendmsg`, read by `recvmsg_into`; Python's limit."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from work import CONGESTION, HEADER_BYTES, Measured, Meter, Work, payload_of

HEADER = struct.Struct("<8QII")
SHARED_BUFFER = 256 * 1024
assert HEADER.size == HEADER_BYTES


def serve(work: Work, announce: Callable[[str], None]) -> Measured:
    """Receive; answer as the kind of work asks."""
    connection = accepted(announce)
    receive = {
        "stream": _drain if work.size < 4096 else _take,
        "ack": _take_and_ack,
        "get": _give,
        "roundtrip": _echo,
    }[work.kind]
    with connection:
        receive(connection, work, work.warmup)
        meter = Meter()
        connection.sendall(bytes(HEADER_BYTES))
        receive(connection, work, work.count)
        connection.sendall(bytes(HEADER_BYTES))
        return meter.stop()


def drive(work: Work, address: str, joined: int = 1) -> Measured:
    """Send, with `joined` frames in one call."""
    with connected(address) as connection:
        _send(connection, work, work.warmup, joined)
        _await_token(connection)
        meter = Meter()
        latencies = _send(connection, work, work.count, joined)
        _await_token(connection)
        return meter.stop(latencies)


def accepted(announce: Callable[[str], None]) -> socket.socket:
    """The one connection that comes."""
    with socket.socket() as listener:
        _tune(listener)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        announce(f"127.0.0.1:{listener.getsockname()[1]}")
        connection, _ = listener.accept()
    _tune(connection)
    return connection


def connected(address: str) -> socket.socket:
    """A connection to there."""
    host, port = address.split(":")
    connection = socket.socket()
    _tune(connection)
    connection.connect((host, int(port)))
    return connection


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION)


def _await_token(connection: socket.socket) -> None:
    _read_exactly(connection, memoryview(bytearray(HEADER_BYTES)))


def _read_exactly(connection: socket.socket, view: memoryview) -> None:
    done = 0
    while done < len(view):
        got = connection.recv_into(view[done:])
        if not got:
            raise EOFError("the other side closed")
        done += got


# Sending -------------------------------------------------------------------------------------------


def _send(connection: socket.socket, work: Work, count: int, joined: int) -> list[int] | None:
    payload = payload_of(work.size)
    if work.kind == "roundtrip":
        return _ask(connection, work, count, payload)
    if work.kind == "ack":
        _send_in_window(connection, work, count, payload)
    elif work.kind == "get":
        _fetch_in_window(connection, work, count)
    elif joined == 1:
        for number in range(count):
            _send_frame(connection, number, payload)
    else:
        for first in range(0, count, joined):
            pack = HEADER.pack
            pieces = []
            for number in range(first, min(first + joined, count)):
                pieces.append(pack(number, 0, 0, 0, 0, 0, 0, 0, len(payload), 0))
                pieces.append(payload)
            connection.sendall(b"".join(pieces))
    return None


def _send_frame(connection: socket.socket, number: int, payload: bytes) -> None:
    header = HEADER.pack(number, 0, 0, 0, 0, 0, 0, 0, len(payload), 0)
    sent = connection.sendmsg((header, payload))
    while sent < HEADER_BYTES + len(payload):  # a blocking socket takes all, unless a signal comes
        rest = memoryview(header + payload)[sent:]
        sent += connection.send(rest)


def _send_in_window(connection: socket.socket, work: Work, count: int, payload: bytes) -> None:
    acks = bytearray(HEADER_BYTES * work.window)
    outstanding = acked_bytes = 0
    for number in range(count):
        _send_frame(connection, number, payload)
        outstanding += 1
        while outstanding >= work.window or (number == count - 1 and outstanding):
            acked_bytes += connection.recv_into(acks, HEADER_BYTES * outstanding - acked_bytes)
            outstanding -= acked_bytes // HEADER_BYTES
            acked_bytes %= HEADER_BYTES


def _fetch_in_window(connection: socket.socket, work: Work, count: int) -> None:
    request = HEADER.pack(0, 0, 0, 0, 0, 0, 0, 0, work.size, 0)
    connection.sendall(request * min(work.window, count))

    def next_request(number: int) -> None:
        if number + work.window < count:
            connection.sendall(request)

    _take(connection, work, count, next_request)


def _ask(connection: socket.socket, work: Work, count: int, payload: bytes) -> list[int]:
    clock = time.perf_counter_ns
    answer = memoryview(bytearray(HEADER_BYTES + work.size))
    latencies = []
    for number in range(count):
        began = clock()
        _send_frame(connection, number, payload)
        _read_exactly(connection, answer)
        latencies.append(clock() - began)
    return latencies


# Receiving -----------------------------------------------------------------------------------------


def _drain(connection: socket.socket, work: Work, count: int) -> None:
    """Small frames: many of them from one read of a shared buffer."""
    shared = memoryview(bytearray(SHARED_BUFFER))
    unpack = HEADER.unpack_from
    frame = HEADER_BYTES + work.size
    kept = seen = 0
    while seen < count:
        got = connection.recv_into(shared[kept:])
        if not got:
            raise EOFError("the other side closed")
        end = kept + got
        at = 0
        while end - at >= frame:
            at += HEADER_BYTES + unpack(shared, at)[8]
            seen += 1
        kept = end - at
        shared[:kept] = shared[at:end]


def _take(
    connection: socket.socket, work: Work, count: int, taken: Callable[[int], None] | None = None
) -> None:
    """Large frames: one call reads the rest of a payload and the next header."""
    payload = memoryview(bytearray(work.size))
    header = memoryview(bytearray(HEADER_BYTES))
    _read_exactly(connection, header)
    for number in range(count):
        size = HEADER.unpack_from(header)[8]
        last = number == count - 1
        done = 0
        while done < size:
            pieces = (payload[done:size],) if last else (payload[done:size], header)
            got = connection.recvmsg_into(pieces)[0]
            if not got:
                raise EOFError("the other side closed")
            done += got
        if taken is not None:
            taken(number)
        if not last and done < size + HEADER_BYTES:
            _read_exactly(connection, header[done - size :])


def _take_and_ack(connection: socket.socket, work: Work, count: int) -> None:
    _take(connection, work, count, lambda number: connection.sendall(bytes(HEADER_BYTES)))


def _give(connection: socket.socket, work: Work, count: int) -> None:
    payload = payload_of(work.size)
    request = memoryview(bytearray(HEADER_BYTES))
    for number in range(count):
        _read_exactly(connection, request)
        _send_frame(connection, number, payload)


def _echo(connection: socket.socket, work: Work, count: int) -> None:
    frame = memoryview(bytearray(HEADER_BYTES + work.size))
    for _ in range(count):
        _read_exactly(connection, frame)
        connection.sendall(frame)
