"""Bench for the TCP driver: a fake core that checks the contract, and raw peers that say what they like."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar

from support.ports import free_port
from ulnet.core.access import EVERYBODY
from ulnet.core.lnd import NiEvent
from ulnet.core.md import Md
from ulnet.core.msg import Incoming, Msg
from ulnet.core.ni import NI, LocalNet
from ulnet.core.peer import Peer as KnownPeer
from ulnet.core.peer import PeerNet, PeerNi
from ulnet.core.status import HealthStatus
from ulnet.core.tunables import LndTunables, NetTunables
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.lnd.tcp.devices import Pair
from ulnet.lnd.tcp.dialer import Dialer
from ulnet.lnd.tcp.nistate import NiState
from ulnet.lnd.tcp.peer import Peer
from ulnet.lnd.tcp.reader import Reader
from ulnet.lnd.tcp.secure_socket import SecureSocket
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.errors import ByteOrder
from ulnet.wire.lnet import NO_WMD, Header, MsgType, pack_header, unpack_header
from ulnet.wire.socklnd import ConnType, FrameType, Hello, hello_rest_size, pack_frame_header

PATIENCE = 60.0  # seconds until something that must happen counts as not happening
PAYLOAD_LIMIT = 1 << 20
# Raw peers call from any port, and are believed.
UNPRIVILEGED: dict[str, object] = {"accept": "all", "reserved_ports": False}
ROOT = os.geteuid() == 0


async def until(true: Callable[[], object], what: str = "") -> None:
    """Wait for something to become true."""
    loop = asyncio.get_running_loop()
    patience = loop.time() + PATIENCE
    while not true():
        assert loop.time() < patience, f"waited in vain: {what or true}"
        await asyncio.sleep(0.001)


async def turns(count: int = 5) -> None:
    """Let the event loop go round a few times."""
    for _ in range(count):
        await asyncio.sleep(0)


def shake(end: SecureSocket) -> str:
    """Go on with a TLS handshake; what it waits for."""
    while (waits := end.shake()) == "work":
        end.work()
    return waits


@dataclass(eq=False)
class Outcome:
    """How a message ended."""

    msg: Msg | Incoming
    status: HealthStatus
    errno: int
    reason: str

    @property
    def unsent(self) -> bool:
        """Whether the driver said of a message that it sent that no byte of it has left."""
        assert isinstance(self.msg, Msg)
        return self.msg.unsent


@dataclass(eq=False)
class Arrival:
    """A header that came up, and its payload once that is complete."""

    ni: NI
    hdr: Header
    from_nid: Nid
    rx: Reader
    msg: Incoming
    receiver: FakeReceiver
    memory: bytearray = field(default_factory=bytearray)

    @property
    def ctype(self) -> ConnType:
        """Of the connection by which it came."""
        return next(conn.ctype for conn in self.rx.peer.conns if conn.rx is self.rx)


class FakeReceiver:
    """What comes by one connection: each message is looked at by itself."""

    __slots__ = ("closed", "core", "ni", "nid")

    def __init__(self, core: FakeCore, ni: NI, nid: Nid) -> None:
        self.core = core
        self.ni = ni
        self.nid = nid
        self.closed = False

    def begin(self, hdr: Header, rx: object) -> int:
        assert not self.closed, "read after its end"
        return self.core.parse(self, hdr, rx)

    def deliver(self, hdr: Header, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int) -> int:
        assert not self.closed, "read after its end"
        assert end - pos >= len(raw) + hdr.payload_length, "not whole"
        return pos

    def end(
        self, incoming: Incoming, status: HealthStatus = HealthStatus.OK, err: int = 0, reason: str = ""
    ) -> None:
        self.core.finalize(incoming, status, err, reason)

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True


class FakeCore:
    """Takes every message into memory of its own and insists on the driver's contract."""

    def __init__(self) -> None:
        self.receivers: list[FakeReceiver] = []
        self.access = EVERYBODY
        self.lnd: TcpLnd | None = None
        self.open: set[Msg | Incoming] = set()  # handed over either way, not ended yet
        self.outcomes: list[Outcome] = []
        self.arrivals: list[Arrival] = []
        self.held: list[Arrival] = []  # parsed, waiting for memory
        self.forgotten: list[object] = []
        self.hold = False  # payloads wait, as on a lazy portal
        self.truncate: int | None = None  # take only so much of each payload
        self.pieces = 1  # in how many fragments payload is received
        self.on_finalize: Callable[[Outcome], None] | None = None
        self.on_parse: Callable[[Arrival], None] | None = None
        self.on_event: Callable[[], None] | None = None
        self.sending = False
        self.events: list[tuple[NI, NiEvent]] = []  # of devices
        self.restarted: list[Nid] = []
        self.lost: list[tuple[NI, Nid]] = []
        self.unmade: list[tuple[NI, Nid, int]] = []  # connections
        self.doubtful = 0  # PUTs that may be lost though they are told to be sent
        self.taken_back: list[Msg] = []
        self.awaiting: set[Msg | Incoming] = set()
        self.stalled: list[tuple[NI, Nid]] = []  # paths that make no progress now
        self.ever_stalled: list[tuple[NI, Nid]] = []

    # Upcalls

    def why_denied(self, ni: NI, nid: Nid) -> str:
        return self.access.why_denied(nid, ni)

    def receiver(self, ni: NI, nid: Nid, vouches: Callable[[Nid], bool] | None = None) -> FakeReceiver:
        receiver = FakeReceiver(self, ni, nid)
        self.receivers.append(receiver)
        return receiver

    def parse(self, receiver: FakeReceiver, hdr: Header, rx: object) -> int:
        assert isinstance(rx, Reader)
        ni, nid = receiver.ni, receiver.nid
        bad = (
            hdr.type > MsgType.REPLY
            or hdr.dest_nid != ni.nid
            or hdr.payload_length > PAYLOAD_LIMIT
            or (hdr.type in (MsgType.ACK, MsgType.GET) and hdr.payload_length)
        )
        if bad:
            return -errno.EPROTO
        arrival = Arrival(ni, hdr, nid, rx, Incoming(hdr, ni, peer_ni(hdr.src_nid), nid), receiver)
        if self.on_parse is not None:
            self.on_parse(arrival)
        self.arrivals.append(arrival)
        if hdr.payload_length:
            if self.hold:
                self.held.append(arrival)
            else:
                self.take(arrival)
        return 0

    def take(self, arrival: Arrival) -> None:
        """Give memory to a payload."""
        rlen = arrival.hdr.payload_length
        mlen = rlen if self.truncate is None else min(self.truncate, rlen)
        arrival.memory = bytearray(mlen)
        view = memoryview(arrival.memory)
        step = max(1, -(-mlen // self.pieces))
        buffers = [view[at : at + step] for at in range(0, mlen, step)]
        if self.truncate == 0:
            arrival.rx.take(None, [], 0, rlen)
            return
        self.open.add(arrival.msg)
        arrival.rx.take(arrival.msg, buffers, mlen, rlen)

    def completed(
        self, msgs: list[Msg], status: HealthStatus = HealthStatus.OK, err: int = 0, reason: str = ""
    ) -> None:
        assert msgs, "nothing to tell"
        for msg in list(msgs):
            self.finalize(msg, status, err, reason)

    def finalize(self, msg: Msg | Incoming, status: HealthStatus, errno: int, reason: str) -> None:
        """A message ended, which way ever it went."""
        assert not self.sending, "finalized from inside send"
        assert msg in self.open, "finalized twice, or never handed over"
        assert errno or msg not in self.awaiting, "left without a connection"
        self.awaiting.discard(msg)
        assert errno or status == HealthStatus.OK
        assert errno >= 0 and bool(reason) == bool(errno)
        self.open.remove(msg)
        outcome = Outcome(msg, status, errno, reason)
        self.outcomes.append(outcome)
        if self.on_finalize is not None:
            self.on_finalize(outcome)

    def awaits_connection(self, msgs: list[Msg]) -> None:
        assert not self.awaiting.intersection(msgs), "told twice"
        self.awaiting.update(msgs)

    def has_connection(self, msgs: list[Msg]) -> None:
        assert self.awaiting.issuperset(msgs), "it waited for none"
        self.awaiting.difference_update(msgs)

    def take_back(self, msg: Msg) -> None:
        assert not self.sending, "given back from inside send"
        assert msg in self.open, "given back, but not handed over"
        self.awaiting.discard(msg)
        self.taken_back.append(msg)
        asyncio.get_running_loop().call_soon(self._send_again, msg)

    def _send_again(self, msg: Msg) -> None:
        assert self.lnd is not None and msg.ni is not None
        self.sending = True
        self.lnd.send(msg.ni, [msg])
        self.sending = False

    def ni_event(self, ni: NI, event: NiEvent) -> None:
        self.events.append((ni, event))
        if self.on_event is not None:
            self.on_event()

    def path_stalled(self, ni: NI, nid: Nid) -> None:
        assert (ni, nid) not in self.stalled, "told twice"
        self.stalled.append((ni, nid))
        self.ever_stalled.append((ni, nid))

    def path_moving(self, ni: NI, nid: Nid) -> None:
        self.stalled.remove((ni, nid))

    def path_lost(self, ni: NI, nid: Nid) -> None:
        self.lost.append((ni, nid))

    def in_doubt(self, ni: NI, nid: Nid, count: int) -> None:
        self.doubtful += count

    def unconnected(self, ni: NI, nid: Nid, err: int) -> None:
        assert err > 0
        self.unmade.append((ni, nid, err))

    def peer_restarted(self, nid: Nid, heard: bool = True) -> None:
        self.restarted.append(nid)

    def slept(self, seconds: float) -> None:
        pass  # nobody is judged here

    def forget_rx(self, rx: object) -> None:
        mine = [one for one in self.held if one.rx is rx]
        assert len(mine) <= 1, "one connection holds one payload"
        for one in mine:
            self.held.remove(one)
        self.forgotten.append(rx)

    # What tests ask

    def outcome(self, msg: Msg | Incoming) -> Outcome | None:
        """How msg ended, None while it has not."""
        return next((one for one in self.outcomes if one.msg is msg), None)

    def complete(self, count: int) -> Callable[[], bool]:
        """Whether `count` messages have arrived whole."""
        return lambda: len(self.arrivals) >= count and not any(a.msg in self.open for a in self.arrivals)


class Side:
    """One node: driver, fake core and NIs."""

    def __init__(self, params: TcpParams, pid: int = LNET_PID) -> None:
        self.core = FakeCore()
        self.reports: list[str] = []
        loop = asyncio.get_running_loop()
        self.lnd = TcpLnd(self.core, loop, params, pid=pid, report=self.reports.append)
        self.core.lnd = self.lnd
        self.params = params
        self.nis: dict[Nid, NI] = {}

    def add(self, nid: str, *, interface: str | None = None, tunables: dict[str, int] | None = None) -> NI:
        """Bring up an NI."""
        name = Nid.parse(nid)
        local = LocalNet(name.net, self.lnd, NetTunables())
        ni = NI(local, name, interface=interface, lnd_tunables=LndTunables(**(tunables or {})))
        self.lnd.startup(ni)
        self.nis[name] = ni
        return ni

    @property
    def ni(self) -> NI:
        """The only NI."""
        (ni,) = self.nis.values()
        return ni

    def state(self, ni: NI | None = None) -> NiState:
        """What the driver keeps of an NI."""
        state = (ni or self.ni).lnd_data
        assert isinstance(state, NiState)
        return state

    def peer(self, nid: Nid | str, pid: int = LNET_PID) -> Peer:
        """The driver's peer of that name; there must be one."""
        return self.state().peers[Nid.parse(nid) if isinstance(nid, str) else nid, pid]

    def dialer(self, nid: Nid | str) -> Dialer:
        """What makes the connections to a peer; there must be one."""
        dialer = self.peer(nid).dialer
        assert dialer is not None
        return dialer

    def pair(self, nid: Nid | str) -> Pair:
        """The only pair of addresses between which connections to a peer are made."""
        (pair,) = self.dialer(nid).pairs.values()
        return pair

    def kinds(self, nid: Nid | str) -> list[ConnType]:
        """The types of the connections with a peer, in order of creation."""
        name = Nid.parse(nid) if isinstance(nid, str) else nid
        peer = self.state().peers.get((name, LNET_PID))
        return [conn.ctype for conn in peer.conns] if peer is not None else []

    def put(
        self,
        target: Nid | str,
        payload: bytes = b"",
        *,
        ni: NI | None = None,
        pid: int = LNET_PID,
        pieces: int = 1,
        tag: int = 0,
        md: Md | None = None,
    ) -> Msg:
        """Send a PUT: of the memory of somebody here, or of another node's."""
        hdr = put_header(self._name(target), (ni or self.ni).nid, len(payload), tag)
        return self.send(hdr, payload, ni, pid, pieces, md)

    def send(
        self,
        hdr: Header,
        payload: bytes = b"",
        ni: NI | None = None,
        pid: int = LNET_PID,
        pieces: int = 1,
        md: Md | None = None,
    ) -> Msg:
        """Send any message to the header's destination."""
        msg = Msg(hdr)
        msg.wmd = hdr.wmd
        msg.md = md
        step = max(1, -(-len(payload) // pieces))
        view = memoryview(payload)
        msg.payload = [view[at : at + step] for at in range(0, len(payload), step)]
        msg.next_nid = hdr.dest_nid
        msg.next_pid = pid
        msg.ni = ni or self.ni
        self.core.open.add(msg)
        self.core.sending = True
        self.lnd.send(msg.ni, [msg])
        self.core.sending = False
        return msg

    def _name(self, nid: Nid | str) -> Nid:
        return Nid.parse(nid) if isinstance(nid, str) else nid

    async def ended(self, msg: Msg) -> Outcome:
        """How msg ends."""
        await until(lambda: msg not in self.core.open, "a message to be finalized")
        outcome = self.core.outcome(msg)
        assert outcome is not None
        return outcome

    def close(self) -> None:
        """Shut the driver down; nothing may be left."""
        self.lnd.close()
        assert not self.core.open, "messages that were never finalized"
        assert not self.core.held, "payloads that wait on dead connections"
        assert all(receiver.closed for receiver in self.core.receivers), "connections that are gone untold"
        assert (self.lnd.open_connections, self.lnd.queued_messages, self.lnd.pending_handshakes) == (0, 0, 0)


async def linked(a: Side, b: Side, count: int = 3) -> None:
    """Wait until both see `count` connections between them, each from its own end."""
    await until(lambda: len(a.kinds(b.ni.nid)) == len(b.kinds(a.ni.nid)) == count, "connections")


def peer_ni(nid: Nid) -> PeerNi:
    """A peer's NI, of which nobody knows more than its NID."""
    return PeerNi(nid, PeerNet(nid.net, KnownPeer(nid)), 8)


def put_header(dest: Nid, src: Nid, length: int, tag: int = 0, type: int = MsgType.PUT) -> Header:
    """The header of a PUT nobody acknowledges."""
    return Header(int(type), dest, src, LNET_PID, LNET_PID, length, NO_WMD, match_bits=tag, portal=9)


def loop_state() -> tuple[int, int]:
    """Watched descriptors and timers that are still to fire, of the running loop."""
    loop = asyncio.get_running_loop()
    selector = getattr(loop, "_selector")  # noqa: B009 - a private name, on purpose
    timers = getattr(loop, "_scheduled")  # noqa: B009
    return len(selector.get_map()), sum(not timer.cancelled() for timer in timers)


@asynccontextmanager
async def bench(**defaults: object) -> AsyncIterator[Callable[..., Side]]:
    """Makes sides that share a port; afterwards the loop watches and awaits what it did before."""
    before = loop_state()
    port = free_port()
    sides: list[Side] = []

    def make(
        *nids: str, tunables: dict[str, int] | None = None, pid: int = LNET_PID, **params: object
    ) -> Side:
        values: dict[str, object] = {
            "accept": "all",
            "accept_port": port,
            **UNPRIVILEGED,
            **defaults,
            **params,
        }
        side = Side(TcpParams(**values), pid)  # type: ignore[arg-type]
        sides.append(side)
        for nid in nids:
            side.add(nid, tunables=tunables)
        return side

    try:
        yield make
    finally:
        for side in sides:
            side.close()
        while RawPeer.opened:
            RawPeer.opened.pop().close()
        await turns()
    assert loop_state() == before, "the loop still watches a descriptor or awaits a timer"


# Raw peers -----------------------------------------------------------------------------------------


def unwatch(sock: socket.socket) -> None:
    """A call that was cancelled just before still watches it, and its number's next owner would find that."""
    if sock.fileno() >= 0:
        loop = asyncio.get_running_loop()
        loop.remove_reader(sock)
        loop.remove_writer(sock)


class RawPeer:
    """A socket that a test drives byte by byte; the bench closes it at the end."""

    opened: ClassVar[list[RawPeer]] = []

    def __init__(self, sock: socket.socket) -> None:
        self.opened.append(self)
        sock.setblocking(False)
        self.sock = sock
        self.hello: Hello | None = None

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def read(self, size: int) -> bytes:
        """Exactly size bytes."""
        data = b""
        while len(data) < size:
            async with asyncio.timeout(PATIENCE):
                piece = await asyncio.get_running_loop().sock_recv(self.sock, size - len(data))
            assert piece, f"end of file after {len(data)} bytes: {data[:64].hex()}"
            data += piece
        return data

    async def rest(self) -> tuple[bytes, str]:
        """All bytes until the connection ends, and how: EOF or RESET."""
        data = b""
        while True:
            try:
                async with asyncio.timeout(PATIENCE):
                    piece = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
            except ConnectionResetError:
                return data, "RESET"
            if not piece:
                return data, "EOF"
            data += piece

    async def refused(self) -> str:
        """How the connection ends, EOF or RESET, without any answer."""
        try:
            async with asyncio.timeout(PATIENCE):
                piece = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
        except ConnectionResetError:
            return "RESET"
        assert not piece, f"it was answered: {piece[:64].hex()}"
        return "EOF"

    async def silent(self, seconds: float = 0.05) -> None:
        """Nothing comes, and the connection stays open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                piece = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
            raise AssertionError(f"not silent: {piece[:64].hex() or 'end of file'}")

    async def read_hello(self) -> Hello:
        """The peer's HELLO, v2 to v4 or v1."""
        prefix = await self.read(8)
        version = 1 if prefix[:4] == bytes.fromhex("ed0dbcee") else struct.unpack("<I", prefix[4:])[0]
        return Hello.unpack(prefix + await self.read(hello_rest_size(version)))

    async def frame(self, large: bool = False) -> tuple[int, int, int, int, Header | None, bytes]:
        """The next frame: type, checksum, cookies, LNet header and payload."""
        kind, csum, cookie0, cookie1 = struct.unpack("<IIQQ", await self.read(24))
        if kind == FrameType.NOOP:
            return kind, csum, cookie0, cookie1, None, b""
        hdr = unpack_header(await self.read(96 if large else 72), 0, large)
        return kind, csum, cookie0, cookie1, hdr, await self.read(hdr.payload_length)

    def close(self) -> None:
        unwatch(self.sock)
        self.sock.close()

    def reset(self) -> None:
        unwatch(self.sock)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


async def dial(side: Side, source: str, *, port: int = 0, to: Nid | None = None) -> RawPeer:
    """A raw TCP connection from an address to a side's NI."""
    target = to or next(iter(side.nis))
    sock = socket.socket(socket.AF_INET6 if target.is_large else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    raw = RawPeer(sock)
    sock.bind((source, port))
    await asyncio.get_running_loop().sock_connect(sock, (target.ip, side.params.accept_port))
    return raw


def hello_bytes(
    src: Nid,
    dst: Nid,
    ctype: int = ConnType.CONTROL,
    *,
    version: int = 0,
    incarnation: int = 7,
    pid: int = LNET_PID,
    byteorder: ByteOrder = "little",
) -> bytes:
    """A HELLO as a peer would send it."""
    version = version or (4 if src.is_large else 3)
    return Hello(version, src, dst, pid, 0, incarnation, 0, int(ctype), byteorder=byteorder).pack()


async def connect(
    side: Side,
    nid: str,
    ctype: int = ConnType.CONTROL,
    *,
    to: Nid | None = None,
    source: str | None = None,
    port: int = 0,
    version: int = 0,
    incarnation: int = 7,
    pid: int = LNET_PID,
    byteorder: ByteOrder = "little",
) -> RawPeer:
    """A raw peer with its handshake through; its answer is in `hello`."""
    src = Nid.parse(nid)
    dst = to or next(iter(side.nis))
    raw = await dial(side, source or src.ip, to=dst, port=port)
    request = ConnRequest(2 if dst.is_large else 1, dst, byteorder).pack()
    await raw.send(
        request
        + hello_bytes(src, dst, ctype, version=version, incarnation=incarnation, pid=pid, byteorder=byteorder)
    )
    raw.hello = await raw.read_hello()
    return raw


def noop(cookie0: int, cookie1: int, csum: int = 0) -> bytes:
    """A NOOP frame: an acknowledgement, or a keepalive."""
    return pack_frame_header(FrameType.NOOP, csum, cookie0, cookie1)


def lnet_frame(
    hdr: Header,
    payload: bytes = b"",
    *,
    csum: int = 0,
    cookie0: int = 0,
    cookie1: int = 0,
    large: bool = False,
    byteorder: ByteOrder = "little",
) -> bytes:
    """A whole LNET frame."""
    frame = pack_frame_header(FrameType.LNET, csum, cookie0, cookie1, byteorder)
    return frame + pack_header(hdr, large) + payload


class RawListener:
    """A listening socket that a test answers by hand."""

    def __init__(self, ip: str, port: int) -> None:
        self.sock = socket.create_server((ip, port))
        self.sock.setblocking(False)

    async def accept(self) -> RawPeer:
        # Python 3.11's `wait_for` would lose a cancellation that comes as the caller does.
        async with asyncio.timeout(PATIENCE):
            sock, _ = await asyncio.get_running_loop().sock_accept(self.sock)
        return RawPeer(sock)

    async def accept_hello(self) -> tuple[RawPeer, ConnRequest, Hello]:
        """The next caller, with its request and HELLO."""
        raw = await self.accept()
        request = ConnRequest.unpack(await raw.read(16))
        return raw, request, await raw.read_hello()

    def close(self) -> None:
        unwatch(self.sock)
        self.sock.close()
