"""The LNet node of an event loop, which all comms of that loop share: its rails, its partners, its ports."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import struct
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from ulnet.core.status import LNetError
from ulnet.dask.assembly import EAGER_PIECE
from ulnet.dask.comm import HEAD, PART, UlnetComm
from ulnet.dask.partner import SERVICE, SLOTS, Partner
from ulnet.dask.rails import add_rails
from ulnet.dask.settings import Settings, settings
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.node.shares import Shares
from ulnet.rpc import Call, RpcError, Server, Service

__all__ = ["MOST_COMMS", "PREFIX", "Endpoint", "endpoint_for", "present_endpoint"]

_log = logging.getLogger("distributed.comm.ulnet")
PREFIX: Final = "ulnet://"
_CONNECT: Final = struct.Struct("<HHQ")  # the port called, the caller's, the caller's number of the comm
_NUMBER: Final = struct.Struct("<Q")
_FIRST_PORT, _PORTS = 20000, 40000
_LAST_WORDS: Final = 1.0  # seconds
# Pieces of a frame under way, and the bytes of the first: on slow networks the rails are to end together.
_WINDOW: Final = 8
_PIECE: Final = 262144
_LARGEST: Final = EAGER_PIECE + 256  # bytes of a request: what goes before a piece is not joined with it
MOST_COMMS: Final = 16384  # that others have opened: four for each of the sessions that a server has
_HANDLERS: Final = 1 << 16  # those that wait for room keep nobody else waiting
_BYTES: Final = 1 << 50  # data have come with their requests: none is refused for others that wait

_endpoints: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Endpoint] = weakref.WeakKeyDictionary()


async def endpoint_for(ip: str, exactly: bool = False) -> tuple[Endpoint, str]:
    """The endpoint of the running loop, which is made if need be, and the address that it has for `ip`.

    Raises LNetError.
    """
    loop = asyncio.get_running_loop()
    endpoint = _endpoints.get(loop)
    if endpoint is None or endpoint.closed:
        endpoint = _endpoints[loop] = Endpoint(settings())
    return endpoint, await endpoint.address(ip, exactly)


def present_endpoint() -> Endpoint | None:
    """The endpoint of the running loop, if there is one."""
    try:
        return _endpoints.get(asyncio.get_running_loop())
    except RuntimeError:
        return None


class Endpoint:
    """A node with a service, open while anybody listens or has a comm, and a little longer."""

    def __init__(self, given: Settings) -> None:
        self.closed: bool = False
        self.ip = ""
        self.net: str = "tcp"
        self.listeners: dict[int, Callable[[UlnetComm], None]] = {}
        self.comms: dict[int, UlnetComm] = {}
        self._opened: dict[int, Nid] = {}  # comms that others have opened, and who has
        self._places = Shares(MOST_COMMS)  # for those
        self.taken: int = 0  # bytes of what came and is not read yet, on all comms
        self.partners: dict[Nid, Partner] = {}
        self._settings = given
        self._starting = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._holders = 0
        self._end: asyncio.TimerHandle | None = None
        params = TcpParams(accept="all", accept_port=given.accept_port, reserved_ports=False)
        self.node: Node = Node(tcp=params, report=_log.info)  # processes of Dask come and go
        service = Service(SERVICE)
        service.method("connect", body=False)(self._connect)
        service.method("message", body=False)(self._message)
        service.method("part", body=False)(self._part)
        service.method("eager", body=False)(self._eager)
        service.method("joined", body=False)(self._joined)
        service.stream("presence")(self._presence)
        self._server = Server(
            service,
            self.node,
            concurrency=_HANDLERS,
            queue_bytes=_BYTES,
            slots=SLOTS,
            streams=_HANDLERS,
            largest=_LARGEST,
            window=_WINDOW,
            piece=_PIECE,
        )

    # Life ------------------------------------------------------------------------------------------

    async def address(self, ip: str, exactly: bool) -> str:
        """Which of its addresses is meant. The first time it starts. Raises LNetError."""
        async with self._starting:
            if not self.ip:
                await self.node.start()
                try:
                    self.ip, self.net = add_rails(self.node, self._settings.networks, ip, exactly)
                    self._server.start()
                except BaseException:
                    await self.close()
                    raise
                self._let_go_later()
            elif exactly and ip and all(str(nid).partition("@")[0] != ip for nid in self.node.core.nis):
                add_rails(self.node, None, ip, exactly)
                return ip
        return ip if exactly and ip else self.ip

    def hold(self) -> None:
        """One more needs it."""
        self._holders += 1
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def let_go(self) -> None:
        """One needs it no more; the last one closes it, in a moment."""
        self._holders -= 1
        self._let_go_later()

    def _let_go_later(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._holders and not self.closed and not loop.is_closed():
            self._end = loop.call_later(self._settings.linger, self._let_go_now)

    def _let_go_now(self) -> None:
        self._end = None
        if not self._holders:
            self.in_background(self.close())

    async def close(self) -> None:
        """End all: comms break off, the node is shut down."""
        if self.closed:
            return
        self.closed = True
        for comm in list(self.comms.values()):
            comm.break_off("the node is closed")
        me = asyncio.current_task()
        ends = [task for task in self._tasks if task is not me]  # what tells others that comms are closed
        if ends:
            await asyncio.wait(ends, timeout=_LAST_WORDS)
        for partner in list(self.partners.values()):
            await partner.close()
        with suppress(LNetError):
            await self._server.close()
        await self.node.close()
        for task in self._tasks:
            if task is not me:
                task.cancel()

    def in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run it; how it ends is not asked for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is seen

    # Ports -----------------------------------------------------------------------------------------

    def listen(self, port: int, accept: Callable[[UlnetComm], None]) -> int:
        """Call `accept` for each comm to that port; 0: any. Raises OSError(EADDRINUSE)."""
        if port in self.listeners:
            text = f"port {port} of {self.ip}: this process listens there already: give another one, or 0"
            raise OSError(errno.EADDRINUSE, text)
        port = port or self._free_port()
        self.listeners[port] = accept
        self.hold()
        return port

    def listen_no_more(self, port: int) -> None:
        """Take no comms there any more."""
        if self.listeners.pop(port, None) is not None:
            self.let_go()

    def _free_port(self) -> int:
        while True:
            port = _FIRST_PORT + secrets.randbelow(_PORTS)
            if port not in self.listeners:
                return port

    # Comms -----------------------------------------------------------------------------------------

    async def connect(self, ip: str, port: int, deserialize: bool) -> UlnetComm:
        """A comm to a port of another process. Raises LNetError, RpcError(ECONNREFUSED)."""
        self.hold()  # until the comm does
        try:
            partner = self.partner(await self.node.primary_nid(f"{ip}@{self.net}"))
            own = self._free_port()
            comm = self._comm(partner, f"{PREFIX}{self.ip}:{own}", f"{PREFIX}{ip}:{port}", deserialize)
            try:
                answer = await partner.call("connect", _CONNECT.pack(port, own, comm.number))
                comm.begin(_NUMBER.unpack(bytes(answer))[0])
            except BaseException as failed:
                comm.break_off(str(failed))
                raise
            return comm
        finally:
            self.let_go()

    def partner(self, nid: Nid) -> Partner:
        """The other process of that primary NID."""
        partner = self.partners.get(nid)
        if partner is None:
            partner = self.partners[nid] = Partner(self.node, nid, self._gone)
        return partner

    def _gone(self, partner: Partner, why: str) -> None:
        """A partner ended, or is not heard any more."""
        if self.partners.get(partner.nid) is partner:
            del self.partners[partner.nid]
        for comm in list(self.comms.values()):
            if comm.partner is partner:
                comm.break_off(why)
        self.in_background(partner.close())

    def _comm(self, partner: Partner, local: str, remote: str, deserialize: bool) -> UlnetComm:
        comm = UlnetComm(self, partner, local, remote, secrets.randbits(63), deserialize)
        self.comms[comm.number] = comm
        self.hold()
        return comm

    def forget(self, comm: UlnetComm) -> None:
        """A comm is closed."""
        if self.comms.pop(comm.number, None) is not None:
            self.let_go()
            nid = self._opened.pop(comm.number, None)
            if nid is not None:
                self._places.give(nid)

    # The service -----------------------------------------------------------------------------------

    async def _connect(self, call: Call, data: bytes) -> bytes:
        port, their_port, theirs = _unpacked(_CONNECT, data)
        accept = self.listeners.get(port)
        if accept is None:
            raise RpcError(
                errno.ECONNREFUSED, f"nobody listens on port {port} of {self.ip}: start it, or name its port"
            )
        if not self._places.take(call.client):
            raise RpcError(
                errno.EAGAIN,
                f"{self._places.own(call.client)} comms of that process are open here, which is half of what "
                f"others leave of {MOST_COMMS}: close some",
            )
        ip = str(call.client).partition("@")[0]
        remote = f"{PREFIX}{self.ip if ip == '0' else ip}:{their_port}"
        comm = self._comm(self.partner(call.client), f"{PREFIX}{self.ip}:{port}", remote, True)
        self._opened[comm.number] = call.client
        comm.begin(theirs)
        accept(comm)
        return _NUMBER.pack(comm.number)

    async def _message(self, call: Call, data: bytes) -> None:
        ours, number, count, limit = _unpacked(HEAD, data)
        await self._comm_of(ours, call.client).message(
            number, count, limit, memoryview(bytearray(data))[HEAD.size :]
        )

    async def _part(self, call: Call, data: bytes) -> None:
        ours, number, index, eager = _unpacked(PART, data)
        await self._comm_of(ours, call.client).part(number, index, eager, call)

    async def _eager(self, call: Call, data: bytes) -> None:
        ours, number, _, offset = _unpacked(PART, data)
        await self._comm_of(ours, call.client).eager(number, offset, memoryview(data)[PART.size :])

    async def _joined(self, call: Call, data: bytes) -> None:
        ours, number, _, _ = _unpacked(PART, data)
        await self._comm_of(ours, call.client).joined(number, call)

    async def _presence(self, call: Call) -> AsyncIterator[bytes]:
        """Nothing, for as long as this process is there: the stream breaks when it is not."""
        await asyncio.get_running_loop().create_future()
        yield b""

    def _comm_of(self, number: int, client: Nid) -> UlnetComm:
        """A comm with that client; who else has seen its number learns nothing. Raises RpcError."""
        comm = self.comms.get(number)
        if comm is None or not self._are_one(client, comm.partner.nid):
            raise RpcError(errno.ENOTCONN, "this comm is closed")
        return comm

    def _are_one(self, client: Nid, partner: Nid) -> bool:
        """Whether both are NIDs of one process, as far as discovery knows."""
        if client == partner:
            return True
        core = self.node.core
        peer = core.peers.find(client)
        return (peer is not None and peer.owns(partner)) or (client in core.nis and partner in core.nis)


def _unpacked(form: struct.Struct, data: bytes) -> tuple[Any, ...]:
    if len(data) < form.size:
        raise RpcError(errno.EBADMSG, f"{len(data)} bytes are too few: {form.size} are expected")
    return form.unpack_from(data)
