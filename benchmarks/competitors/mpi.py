"""Open MPI over its tcp transport, through mpi4py: rank 0 drives, rank 1 serves. It spins while it waits."""

from __future__ import annotations

import time
from typing import Any

from mpi4py import MPI

from work import Measured, Meter, Work, pin

DATA, ANSWER, TOKEN = 1, 2, 3


def pair(work: Work) -> tuple[str, Measured]:
    """Run this process's side; also says which it is."""
    world = MPI.COMM_WORLD
    pin(work, world.Get_rank() == 0)
    if world.Get_rank() == 0:
        return "drive", _drive(world, work)
    return "serve", _serve(world, work)


def _drive(world: Any, work: Work) -> Measured:
    token = bytearray(8)
    _send(world, work, work.warmup)
    world.Recv(token, source=1, tag=TOKEN)
    meter = Meter()
    latencies = _send(world, work, work.count)
    world.Recv(token, source=1, tag=TOKEN)
    return meter.stop(latencies)


def _send(world: Any, work: Work, count: int) -> list[int] | None:
    payload = bytearray(work.asked)
    answer = bytearray(work.answered)
    clock = time.perf_counter_ns
    latencies = []
    if work.kind == "stream":
        under_way: list[Any] = []
        for _ in range(count):
            if len(under_way) >= 64:
                MPI.Request.Waitall(under_way)
                under_way.clear()
            under_way.append(world.Isend(payload, dest=1, tag=DATA))
        MPI.Request.Waitall(under_way)
        return None
    if work.kind in ("ack", "get"):
        sent: list[Any] = []
        for number in range(count):
            if number >= work.window:
                world.Recv(answer, source=1, tag=ANSWER)
                sent.pop(0).Wait()
            sent.append(world.Isend(payload, dest=1, tag=DATA))
        for request in sent:
            world.Recv(answer, source=1, tag=ANSWER)
            request.Wait()
        return None
    for _ in range(count):
        began = clock()
        world.Send(payload, dest=1, tag=DATA)
        world.Recv(answer, source=1, tag=ANSWER)
        latencies.append(clock() - began)
    return latencies


def _serve(world: Any, work: Work) -> Measured:
    _receive(world, work, work.warmup)
    meter = Meter()
    world.Send(bytearray(8), dest=0, tag=TOKEN)
    _receive(world, work, work.count)
    world.Send(bytearray(8), dest=0, tag=TOKEN)
    return meter.stop()


def _receive(world: Any, work: Work, count: int) -> None:
    payload = bytearray(work.asked)
    answer = payload if work.kind == "roundtrip" else bytearray(work.answered)
    for _ in range(count):
        world.Recv(payload, source=0, tag=DATA)
        if work.kind != "stream":
            world.Send(answer, dest=0, tag=ANSWER)
