"""Who is measured beside whom: each is a module of `competitors`, or the C program."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from work import Work

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "scripts"))

import compiled  # noqa: E402 - needs the path

COMPILED = compiled.HOME
ALL = ("stream", "ack", "get", "roundtrip")


def builds() -> list[str]:
    """Those of ulnet that are here."""
    return ["pure", "compiled"] if compiled.is_current() else ["pure"]


@dataclass(frozen=True, slots=True)
class Competitor:
    """Who is measured, what it must be able to import, and of which build of ulnet it is."""

    name: str
    title: str
    how: str
    module: str = ""  # of `competitors`; empty: that of its name
    needs: str = ""
    build: str = "pure"
    kinds: tuple[str, ...] = ALL
    smallest_only: bool = False  # joined frames say nothing about bulk
    extremes_only: bool = False  # 64 bytes and 1 MiB
    seldom: bool = False  # in every second round, and …
    shorten: int = 1  # … with so many times fewer messages: it takes long

    def missing(self) -> str | None:
        """What is not there; None if nothing."""
        if self.needs == "cc":
            return None if shutil.which("cc") else "a C compiler"
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return self.needs
        if self.needs == "mpi4py" and not shutil.which("mpirun"):
            return "mpirun (Debian: openmpi-bin)"
        if self.build == "compiled" and not compiled.is_current():
            return "the compiled build (make wheel)"
        return None

    def takes(self, work: Work) -> bool:
        """Whether this work says anything about this competitor."""
        small = work.size < 4096
        return (
            work.kind in self.kinds
            and (small or not self.smallest_only)
            and (small or work.size == 1 << 20 or not self.extremes_only)
        )


COMPETITORS = [
    Competitor(
        "c",
        "C program",
        "blocking sockets in C (`competitors/reference.c`, `cc -O2`): the same frames and calls as the plain "
        "sockets below. What the machine can",
        needs="cc",
    ),
    Competitor(
        "sockets",
        "plain sockets",
        "blocking; 72 bytes of header and the payload in one `sendmsg`; large ones read by `recvmsg_into` of "
        "the rest of a payload and the next header, small ones from a shared buffer. What Python can reach",
    ),
    Competitor(
        "sockets_joined",
        "plain sockets, 256 frames a call",
        "the same with 256 small messages in one `send`: what batching alone gives",
        kinds=("stream",),
        smallest_only=True,
    ),
    Competitor(
        "ulnet_node",
        "ulnet, event handlers",
        "two `ulnet.Node`s on `ulnet.new_event_loop()`, one NI each, one connection of each type; PUTs into "
        "one memory descriptor (peer_credits 256), the next PUT started by the event of an earlier one; "
        "LNet's own ACKs",
    ),
    Competitor(
        "ulnet_compiled",
        "ulnet compiled, event handlers",
        "the same program on the build of `make wheel`: the same sources, parts of them compiled with mypyc",
        module="ulnet_node",
        build="compiled",
    ),
    Competitor(
        "ulnet_spin",
        "ulnet compiled, spinning",
        "the same with `spin` at its most: while idle it looks again for that long before it sleeps",
        build="compiled",
        kinds=("ack", "roundtrip"),
        smallest_only=True,
    ),
    Competitor(
        "ulnet_awaited",
        "ulnet, await put",
        "pure Python, with `await node.put(…)` in as many tasks as the window is wide (small messages: 64)",
        kinds=("stream", "ack"),
        extremes_only=True,
        seldom=True,
        shorten=2,
    ),
    Competitor(
        "zmq_push",
        "pyzmq PUSH/PULL",
        "tcp, `copy=False`, answers over a second pair the other way; no acknowledgement of its own",
        needs="zmq",
    ),
    Competitor(
        "zmq_dealer",
        "pyzmq DEALER/ROUTER",
        "tcp, `copy=False`; the server knows whom it answers",
        needs="zmq",
    ),
    Competitor(
        "mpi",
        "Open MPI (mpi4py)",
        "two ranks over its tcp transport; it spins while it waits, which its CPU time and round trips show",
        needs="mpi4py",
        extremes_only=True,
        seldom=True,
    ),
    Competitor(
        "grpc",
        "grpcio",
        "bytes without protobuf; one-way is a client stream, all else unary calls; four threads serve",
        module="grpc_calls",
        needs="grpc",
        extremes_only=True,
        seldom=True,
        shorten=8,
    ),
]
