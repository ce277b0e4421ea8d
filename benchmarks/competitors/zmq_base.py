"""pyzmq over tcp, with `copy=False`; the two socket patterns differ in who can answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import zmq

from work import Measured, Meter, Work, payload_of

Socket = Any  # mypy must give the same answer where pyzmq is not installed


def _open(context: Any, kind: int) -> Socket:
    made = context.socket(kind)
    made.setsockopt(zmq.LINGER, 0)
    return made


def serve_with(work: Work, announce: Callable[[str], None], pull: bool) -> Measured:
    """Receive on PULL or ROUTER."""
    with zmq.Context() as context, _open(context, zmq.PULL if pull else zmq.ROUTER) as inbox:
        port = inbox.bind_to_random_port("tcp://127.0.0.1")
        with _open(context, zmq.PUSH) as outbox:
            back_port = outbox.bind_to_random_port("tcp://127.0.0.1") if pull else 0
            announce(f"{port}:{back_port}")
            _receive(inbox, outbox, work, work.warmup, pull)
            meter = Meter()
            _token(inbox, outbox, pull)
            _receive(inbox, outbox, work, work.count, pull)
            _token(inbox, outbox, pull)
            measured = meter.stop()
            inbox.recv_multipart()  # the driver has its token: closing is safe now
            return measured


_last_sender: list[Any] = [b""]


def _token(inbox: Socket, outbox: Socket, pull: bool) -> None:
    if pull:
        outbox.send(b"done")
    else:
        inbox.send_multipart([_last_sender[0], b"done"])


def _receive(inbox: Socket, outbox: Socket, work: Work, count: int, pull: bool) -> None:
    answer = None if work.kind == "roundtrip" else payload_of(work.answered)
    for _ in range(count):
        if pull:
            message = inbox.recv(copy=False)
        else:
            sender, message = inbox.recv_multipart(copy=False)
            _last_sender[0] = sender.bytes
        if work.kind == "stream":
            continue
        if pull:
            outbox.send(message if answer is None else answer, copy=False)
        else:
            inbox.send_multipart([sender, message if answer is None else answer], copy=False)


def drive_with(work: Work, address: str, pull: bool) -> Measured:
    """Send on PUSH or DEALER."""
    port, back_port = address.split(":")
    with zmq.Context() as context, _open(context, zmq.PUSH if pull else zmq.DEALER) as outbox:
        outbox.connect(f"tcp://127.0.0.1:{port}")
        with _open(context, zmq.PULL) as own_inbox:
            inbox = own_inbox if pull else outbox
            if pull:
                inbox.connect(f"tcp://127.0.0.1:{back_port}")
            _send(outbox, inbox, work, work.warmup)
            inbox.recv()
            meter = Meter()
            latencies = _send(outbox, inbox, work, work.count)
            inbox.recv()
            measured = meter.stop(latencies)
            outbox.setsockopt(zmq.LINGER, 1000)
            outbox.send(b"bye")
            return measured


def _send(outbox: Socket, inbox: Socket, work: Work, count: int) -> list[int] | None:
    payload = payload_of(work.asked)
    if work.kind == "stream":
        for _ in range(count):
            outbox.send(payload, copy=False)
        return None
    if work.kind in ("ack", "get"):
        for number in range(count):
            if number >= work.window:
                inbox.recv(copy=False)
            outbox.send(payload, copy=False)
        for _ in range(min(work.window, count)):
            inbox.recv(copy=False)
        return None
    clock = time.perf_counter_ns
    latencies = []
    for _ in range(count):
        began = clock()
        outbox.send(payload, copy=False)
        inbox.recv(copy=False)
        latencies.append(clock() - began)
    return latencies
