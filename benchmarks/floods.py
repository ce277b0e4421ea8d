"""A legitimate peer's pings while a node is flooded: `floods.py [--only FLOOD ...] [--aged] [--other]`.

All is between processes on loopback, in a network namespace of its own where the system gives one; needs
root. The node has a CPU for itself where there are two. The legitimate peer has the other one whenever it
wants it (SCHED_FIFO), as on a host of its own; the hostile programs, which in earnest are other hosts, have
what it leaves. Floods:

connections: 5,000 that are opened again as soon as they end, every other one says HELLO, and nothing more
invented: pings of 5,000 NIDs that nobody has, by one connection, as fast as they are taken
puts: empty PUTs to a portal where nothing is, by one connection, as fast as they are taken
pushes: each of 1,000 NIDs that nobody has, by one connection, as fast as they are taken
crowd: such pushes by 200 connections from as many addresses (only where --only names it)

With --other the floods go to another node on the same CPU: what is left then is the machine's, whose CPUs
are shared by all of them, and no flooded node's.

What the node holds is told before, after, and, with --aged, when peers that never answered are forgotten:
all objects of Python's, those that stand for NIDs of peers, memory, and memory when malloc has given back
what is free.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import itertools
import json
import os
import resource
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import private_net
from ulnet import Node, new_event_loop
from ulnet.cli.garbage import Searches, collect_seldom
from ulnet.control.discovery.ageing import FORGOTTEN_AFTER
from ulnet.core.peer import PeerNi
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.lnet import NO_WMD, PING_MATCH_BITS, PING_PORTAL, Header, MsgType, pack_header
from ulnet.wire.ping import HEADER_SIZE, Feature, NiEntry, NiStatus, PingInfo
from ulnet.wire.socklnd import ConnType, FrameType, Hello, pack_frame_header

PORT = 9988
NODE, PEER, OTHER = Nid.parse("127.50.0.1@tcp"), Nid.parse("127.50.0.2@tcp"), Nid.parse("127.50.0.3@tcp")
TARGET = OTHER if os.environ.get("ULNET_FLOOD_OTHER") else NODE
FLOODS = ("connections", "invented", "puts", "pushes")
ALL_FLOODS = (*FLOODS, "crowd")
CROWD = 200  # connections
PR_SET_PDEATHSIG = 1
CONNECTIONS = 5000
INVENTED = 5000
LISTED = 1000
PAUSE = 0.01  # seconds between pings
ROOM = 1 << 20  # bytes that a flood hands to the kernel at a time


# The flooded node, and the legitimate peer ---------------------------------------------------------------


async def serve(nid: Nid) -> Node:
    """A node at that address."""
    node = Node(tcp=TcpParams(accept_port=PORT), report=lambda line: None)
    await node.start()
    node.add_ni(nid)
    return node


async def be_flooded(nid: Nid) -> None:
    """Be the node of that address; to each line of standard input the answer is what it holds, as JSON."""
    loop = asyncio.get_running_loop()
    node = await serve(nid)
    collect_seldom()
    Searches(loop).search()
    print("ready", flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(held()), flush=True)
    await node.close(0)


def held() -> dict[str, float]:
    """What this process holds, in objects and MiB."""
    gc.collect()
    objects = gc.get_objects()
    found = {"objects": float(len(objects)), "NIDs": float(sum(type(one) is PeerNi for one in objects))}
    del objects
    found["MiB held"] = resident("self")
    ctypes.CDLL(None).malloc_trim(0)
    found["MiB trimmed"] = resident("self")
    return found


def resident(process: int | str) -> float:
    """MiB of memory of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


async def ping(seconds: float) -> tuple[list[float], int]:
    """Milliseconds of each ping, one after the other, and how many got no answer in 10 s."""
    found: list[float] = []
    lost = 0
    node = await serve(PEER)
    try:
        await node.ping(NODE, timeout=10)
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            await asyncio.sleep(PAUSE)
            began = time.perf_counter()
            try:
                await node.ping(NODE, timeout=10)
            except LNetError:
                lost += 1
            found.append(1e3 * (time.perf_counter() - began))
    finally:
        await node.close(0)
    return found, lost


async def be_peer() -> None:
    """Ping for as many seconds as each line of standard input says; the answer is a line of JSON."""
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await ping(float(line))), flush=True)


# Floods ----------------------------------------------------------------------------------------------------


def hostile(number: int) -> Nid:
    """The NID of a hostile connection."""
    return Nid.parse(f"127.66.{number >> 8}.{number & 255}@tcp")


def hello(nid: Nid) -> bytes:
    """The first bytes of a connection."""
    said = Hello(3, nid, TARGET, LNET_PID, 0, 7, 0, int(ConnType.CONTROL))
    return ConnRequest.to(TARGET).pack() + said.pack()


def message(
    source: Nid, kind: MsgType, portal: int, bits: int, payload: bytes = b"", wmd: bytes = NO_WMD
) -> bytes:
    """A message as it is on the wire."""
    length = 4096 if kind == MsgType.GET else 0
    hdr = Header(
        int(kind),
        TARGET,
        source,
        LNET_PID,
        LNET_PID,
        len(payload),
        wmd,
        match_bits=bits,
        portal=portal,
        length=length,
    )
    return pack_frame_header(FrameType.LNET) + pack_header(hdr, False) + payload


def invented() -> Iterator[bytes]:
    """Pings of NIDs that nobody has."""
    for number in itertools.cycle(range(INVENTED)):
        nid = Nid.parse(f"10.{number >> 8}.{number & 255}.9@tcp9")
        yield message(nid, MsgType.GET, PING_PORTAL, PING_MATCH_BITS, wmd=number.to_bytes(16, "big"))


def puts() -> Iterator[bytes]:
    """PUTs to nowhere, as many as a call to the kernel takes."""
    many = message(hostile(1), MsgType.PUT, 33, 7) * 512
    while True:
        yield many


def listing(source: Nid, number: int, sequence: int) -> bytes:
    """What a node of many NIDs tells of itself: other NIDs for each number below 12,800."""
    net, second = divmod(number, 256)
    entries = [
        NiEntry(Nid.parse(f"10.{second}.{each >> 8}.{each & 255}@tcp{7 + net}"), NiStatus.UP)
        for each in range(LISTED - 1)
    ]
    entries.insert(0, NiEntry(source, NiStatus.UP))
    features = Feature.NI_STATUS | Feature.MULTI_RAIL | Feature.DISCOVERY
    return PingInfo(features, LNET_PID, sequence, entries).pack()


def pushes() -> Iterator[bytes]:
    """Pushes of NIDs, new ones each time."""
    for number in itertools.count():
        info = listing(hostile(2), number & 255, number + 2)
        yield message(hostile(2), MsgType.PUT, PING_PORTAL, PING_MATCH_BITS, info)


def be_crowd() -> None:
    """Push by many connections in turn until killed, each time other NIDs than the last time."""
    numbers = range(6000, 6000 + CROWD)  # not those of `be_connections`
    infos = [[listing(hostile(each), 2 * each + turn, 0) for turn in (0, 1)] for each in numbers]
    at = HEADER_SIZE + 8  # of the sequence number
    socks = [greeted(number) for number in numbers]
    print("ready", flush=True)
    waiting = [b""] * CROWD
    for turn in itertools.count(2):
        for place, number in enumerate(numbers):
            if not waiting[place]:
                info = infos[place][turn & 1]
                info = info[:at] + turn.to_bytes(4, "little") + info[at + 4 :]
                waiting[place] = message(hostile(number), MsgType.PUT, PING_PORTAL, PING_MATCH_BITS, info)
            try:
                waiting[place] = waiting[place][socks[place].send(waiting[place]) :]
                if not socks[place].recv(ROOM):
                    raise ConnectionResetError
            except BlockingIOError:
                continue
            except OSError:
                socks[place], waiting[place] = greeted(number), b""


def greeted(number: int) -> socket.socket:
    """A connection that has said HELLO and heard the answer; tried until there is one."""
    while True:
        with contextlib.suppress(OSError):
            sock = call(number)
            sock.settimeout(5)
            sock.sendall(hello(hostile(number)))
            if sock.recv(4096):
                sock.setblocking(False)
                return sock
        time.sleep(0.01)


def call(number: int, *, wait: bool = True) -> socket.socket:
    """A connection from a hostile address and a privileged port."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for port in range(1023, 512, -1):
        with contextlib.suppress(OSError):
            sock.bind((f"127.66.{number >> 8}.{number & 255}", port))
            break
    sock.setblocking(wait)
    with contextlib.suppress(BlockingIOError):
        sock.connect((str(TARGET).partition("@")[0], PORT))
    return sock


def be_flood(kind: str) -> None:
    """Flood by one connection until killed; answers are read and thrown away."""
    number, messages = {"invented": (3, invented), "puts": (1, puts), "pushes": (2, pushes)}[kind]
    began = False
    while True:
        with contextlib.suppress(OSError):
            sock = call(number)
            sock.sendall(hello(hostile(number)))
            sock.recv(4096)
            sock.setblocking(False)
            if not began:
                print("ready", flush=True)
                began = True
            waiting = b""
            with selectors.DefaultSelector() as selector:
                selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
                for one in messages():
                    waiting += one
                    while len(waiting) >= 65536:
                        for _, events in selector.select():
                            if events & selectors.EVENT_READ and not sock.recv(ROOM):
                                raise ConnectionResetError
                            if events & selectors.EVENT_WRITE:
                                waiting = waiting[sock.send(waiting) :]
        time.sleep(0.01)


def be_connections() -> None:
    """Hold connections until killed; those that the node closes are opened again."""
    selector = selectors.DefaultSelector()

    ended = list(range(16, 16 + CONNECTIONS))
    told = False
    while True:
        for number in ended.copy():
            with contextlib.suppress(OSError):  # ports are taken up to the end of the former connection
                selector.register(call(number, wait=False), selectors.EVENT_WRITE, number)
                ended.remove(number)
        for key, events in selector.select(1.0 if ended else None):
            sock, number = key.fileobj, key.data
            assert isinstance(sock, socket.socket)
            try:
                if events & selectors.EVENT_WRITE:
                    sock.send(hello(hostile(number)) if number % 2 else b"\x00")
                    selector.modify(sock, selectors.EVENT_READ, number)
                elif not sock.recv(4096):
                    raise ConnectionResetError
            except BlockingIOError:
                continue
            except OSError:
                selector.unregister(sock)
                sock.close()
                ended.append(number)
        if not told:
            print("ready", flush=True)
            told = True


# The measurement -------------------------------------------------------------------------------------------


class Program:
    """This file in another role."""

    def __init__(self, role: str, cpu: int, nice: int = 0, *, first: bool = False) -> None:
        def place() -> None:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # with us, however we end
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {cpu})
                os.nice(nice)
                if first:  # as on a host of its own, whatever runs beside it
                    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

        self.process = subprocess.Popen(
            [sys.executable, __file__, "--role", role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=place,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", f"{role} did not begin"

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def descriptors(self) -> int:
        """How many it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def seconds(self) -> float:
        """CPU time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, *, kindly: bool = False) -> None:
        if not kindly:
            self.process.kill()
        self.process.communicate()


def measure(floods: list[str], seconds: float, aged: bool, other: bool) -> dict[str, object]:
    """Pings before, during and after those floods, and what the node holds."""
    cpus = sorted(os.sched_getaffinity(0))
    node = Program("node", cpus[0], -15)
    peer = Program("peer", cpus[-1], first=True)
    others = [Program("other", cpus[0])] if other else []
    hostiles: list[Program] = []
    phases: dict[str, object] = {}
    try:
        for phase in ("before", "during", "after", "aged")[: 4 if aged else 3]:
            if phase == "during":
                for flood in floods:
                    hostiles.append(Program(flood, cpus[-1], 5))
                time.sleep(3)
            elif phase == "after":
                while hostiles:
                    hostiles.pop().end()
                time.sleep(15)  # what waits for time-outs is gone
            elif phase == "aged":
                time.sleep(FORGOTTEN_AFTER)
            cpu = node.seconds()
            times, lost = json.loads(peer.ask(str(seconds)))
            phases[phase] = {
                "pings": len(times),
                "lost": lost,
                "p50": statistics.median(times),
                "p99": sorted(times)[int(0.99 * len(times))],
                "most": max(times),
                "MiB": resident(node.process.pid),
                "descriptors": node.descriptors(),
                "CPU": node.seconds() - cpu,
                **(json.loads(node.ask("")) if phase != "during" else {}),
            }
    finally:
        for program in hostiles:
            program.end()
        for program in (peer, node, *others):
            program.end(kindly=True)
    return phases


def run(role: Coroutine[Any, Any, None]) -> None:
    """Be that, on the loop that lnetd has."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if not os.environ.get("ULNET_PROFILE"):
            runner.run(role)
            return
        import cProfile

        profile = cProfile.Profile()
        profile.runcall(runner.run, role)
        profile.dump_stats(f"{os.environ['ULNET_PROFILE']}.{os.getpid()}")


def main() -> int:
    """See the module's description."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="of pings in each phase")
    parser.add_argument("--only", nargs="+", choices=ALL_FLOODS, default=list(FLOODS))
    parser.add_argument("--aged", action="store_true", help="five minutes later once more")
    parser.add_argument("--other", action="store_true", help="flood another node")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--role", choices=("node", "other", "peer", *ALL_FLOODS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.role in ("node", "other"):
        run(be_flooded(NODE if options.role == "node" else OTHER))
    elif options.role == "peer":
        run(be_peer())
    elif options.role == "connections":
        be_connections()
    elif options.role == "crowd":
        be_crowd()
    elif options.role:
        be_flood(options.role)
    else:
        private_net.enter()
        if options.other:
            os.environ["ULNET_FLOOD_OTHER"] = "1"
        phases = measure(options.only, options.seconds, options.aged, options.other)
        for phase, found in phases.items():
            assert isinstance(found, dict)
            print(f"{phase:7}", *(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
        if options.json:
            options.json.write_text(json.dumps(phases, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
