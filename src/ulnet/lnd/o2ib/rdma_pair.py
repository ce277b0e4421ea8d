"""A queue pair of a real device, its buffers, and the way to its connection (see rdma.py)."""

from __future__ import annotations

import ctypes as c
import errno
import random
import socket
from typing import TYPE_CHECKING, Final

from ulnet.core.status import LNetError, errno_text
from ulnet.lnd.o2ib import abi
from ulnet.lnd.o2ib.verbs import CmEvent, Send, Slot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from ulnet.lnd.o2ib.rdma import RdmaDevice
    from ulnet.lnd.o2ib.verbs import PairOwner, Shape, Work

    CmIdPtr: TypeAlias = c._Pointer[abi.CmId]

__all__ = ["RdmaDomain", "RdmaPair", "RdmaRegion", "key_of", "peer_of", "sockaddr"]

_SLOT: Final = 4096
_RESOLVE_MS: Final = 5000
_POLLED: Final = 32  # completions that are asked for by one call
_TURN: Final = 128  # … and looked at before others have their turn
_REPOSTED: Final = 4  # receive buffers that are posted by one call
_LINGER: Final = 5.0  # seconds that a connection has to tell the other side of its end
_SENT: Final = 1 << 32  # in the id of a message's work request
_UNNAMED: Final = 1 << 33
_RESERVED_PORTS: Final = range(1023, 511, -1)
_TRIES: Final = 16  # ports below 1024 that are tried
_STORAGE: Final = 128  # bytes of a sockaddr_storage: our address, then the peer's
_OPTION_ID: Final = 0
_OPTION_TOS: Final = 0
_ADDR_RESOLVED, _ROUTE_RESOLVED, _TIMEWAIT_EXIT = 0, 2, 15
_ESTABLISHED, _DISCONNECTED = 9, 10
_CM_EVENTS: Final = {
    1: CmEvent.ADDR_ERROR,
    3: CmEvent.ROUTE_ERROR,
    6: CmEvent.CONNECT_ERROR,
    7: CmEvent.UNREACHABLE,
    8: CmEvent.REJECTED,
    _ESTABLISHED: CmEvent.ESTABLISHED,
    _DISCONNECTED: CmEvent.DISCONNECTED,
}


class _SockAddr(c.Structure):
    _fields_ = [("family", c.c_uint16), ("port", c.c_uint16), ("address", c.c_uint32), ("_", c.c_uint64)]


def sockaddr(ip: str, port: int) -> _SockAddr:
    """An address for the connection manager."""
    address = int.from_bytes(socket.inet_aton(ip), "little")
    return _SockAddr(socket.AF_INET, socket.htons(port), address, 0)


class _PyBuffer(c.Structure):
    _fields_ = [
        ("buf", c.c_void_p),
        ("obj", c.py_object),
        ("len", c.c_ssize_t),
        ("itemsize", c.c_ssize_t),
        ("readonly", c.c_int),
        ("ndim", c.c_int),
        ("format", c.c_char_p),
        ("shape", c.c_void_p),
        ("strides", c.c_void_p),
        ("suboffsets", c.c_void_p),
        ("internal", c.c_void_p),
    ]


def _address_of(view: memoryview) -> int:
    """Where memory is, also memory that may only be read; its owner keeps it there."""
    buffer = _PyBuffer()
    c.pythonapi.PyObject_GetBuffer(c.py_object(view), c.byref(buffer), 0)
    address = buffer.buf
    c.pythonapi.PyBuffer_Release(c.byref(buffer))
    assert isinstance(address, int)
    return address


class RdmaDomain:
    """The protection domain of one connection: no other queue pair takes the keys of its memory."""

    def __init__(self, device: RdmaDevice) -> None:
        """Raises LNetError."""
        self.device = device
        self.regions: dict[RdmaRegion, None] = {}
        self._closing = False
        self.pd: int = device.lib.ibv_alloc_pd(device.context_at) or 0
        if not self.pd:
            raise abi.failed(f"{device.name}: no protection domain for another connection")
        device.domains[self] = None

    def close(self) -> None:
        """Its queue pair is gone: give it back, once all memory is released."""
        self._closing = True
        if self.pd and not self.regions:
            pd, self.pd = self.pd, 0
            del self.device.domains[self]
            number = self.device.lib.ibv_dealloc_pd(pd)
            if number == errno.EBUSY:
                self.device.verbs.report(f"{self.device.name}: a protection domain is still in use")

    def left(self, region: RdmaRegion) -> None:
        """That memory is not registered any more."""
        del self.regions[region]
        if self._closing:
            self.close()


class RdmaRegion:
    """Registered memory; holds a view of it, so that Python keeps it where it is."""

    __slots__ = ("_domain", "_mr", "_view", "address", "key", "lkey")

    def __init__(self, domain: RdmaDomain, view: memoryview, access: int) -> None:
        device = domain.device
        self._domain = domain
        self._view: memoryview | None = view
        self.address: int = _address_of(view)
        mr = device.lib.ibv_reg_mr(domain.pd, self.address, view.nbytes, access)
        if not mr:
            raise device.refused_memory(view.nbytes)
        self._mr = mr
        self.lkey: int = mr.contents.lkey
        self.key: int = mr.contents.rkey
        domain.regions[self] = None

    def release(self) -> None:
        """Unregister it."""
        if self._view is not None:
            self._view = None
            self._domain.device.lib.ibv_dereg_mr(self._mr)
            self._domain.left(self)


class RdmaPair:
    """A queue pair with its protection domain, completion queue, and buffers for what comes and is sent."""

    def __init__(self, device: RdmaDevice, cm_id: CmIdPtr, owner: PairOwner, shape: Shape) -> None:
        self.device = device
        self.lib = device.lib
        self.owner = owner
        self.shape = shape
        self.id = cm_id
        self.open: bool = True
        self.linger: bool = False  # the other side knows of the connection
        self.cq: int = 0
        self.qp: int = 0
        self._private = b""
        self._failed = False
        self._domain: RdmaDomain | None = None
        self._region: RdmaRegion | None = None
        self._tokens: dict[int, object] = {}
        self._free: list[int] = []
        self._idle: list[Slot] = []  # receive buffers that are to be posted
        device.verbs.pairs[key_of(cm_id)] = self

    # Being set up -----------------------------------------------------------------------------------

    def make(self) -> None:
        """Make queue pair and buffers, and post all that receive. Raises LNetError."""
        device, lib, shape = self.device, self.lib, self.shape
        context = device.context
        most = shape.sends * (shape.writes + 1)
        self._domain = domain = RdmaDomain(device)
        self.cq = lib.ibv_create_cq(
            device.context_at, shape.sends * 2 + shape.receives + 16, None, device.channel, 0
        )
        if not self.cq:
            raise abi.failed(f"{device.name}: no completion queue")
        device.cqs[self.cq] = self
        attr = abi.QpInitAttr(
            None, self.cq, self.cq, None, most, shape.receives, device.pieces, 1, 0, abi.QPT_RC, 0
        )
        if lib.rdma_create_qp(self.id, domain.pd, c.byref(attr)):
            raise abi.failed(f"{device.name}: no queue pair for {most} work requests")
        self.qp = c.addressof(self.id.contents.qp.contents)
        device.qps[self.qp] = self
        count = shape.receives + shape.sends
        buf = bytearray(count * _SLOT)
        self._view = memoryview(buf)
        self._region = region = RdmaRegion(domain, self._view, abi.ACCESS_LOCAL)
        self._slots = [Slot(buf, number * _SLOT, number) for number in range(shape.receives)]
        self._free = list(range(shape.receives, count))
        # Work requests are written into memory of our own: see abi.SEND_WR.
        self._send_wrs, self._send_at = _memory(most * abi.SEND_WR_SIZE)
        self._send_sges, self._sge_at = _memory(most * device.pieces * abi.SGE.size)
        self._recv_wrs, self._recv_at = _memory(shape.receives * abi.RECV_WR.size)
        self._recv_sges, self._recv_sge_at = _memory(shape.receives * abi.SGE.size)
        for slot in self._slots:
            at = slot.number * abi.SGE.size
            abi.SGE.pack_into(self._recv_sges, at, region.address + slot.start, _SLOT, region.lkey)
        self._wcs, self._wcs_at = _memory(_POLLED * abi.WC_SIZE)
        self._bad, self._bad_at = _memory(8)
        self._poll = lib.poll_cq(context)
        self._notify = lib.req_notify_cq(context)
        self._post_send = lib.post_send(context)
        self._post_recv = lib.post_recv(context)
        self._notify(self.cq, 0)
        self._idle = list(self._slots)
        self._repost()

    def _param(self, private: bytes) -> abi.ConnParam:
        self._private = private  # kept until the call is over
        shape = self.shape
        data = c.cast(c.c_char_p(private), c.c_void_p)
        return abi.ConnParam(data, len(private), 0, 0, 1, shape.retries, shape.rnr_retries, 0, 0)

    def accept(self, private: bytes) -> None:
        """Accept the call. Raises LNetError."""
        param = self._param(private)
        if self.lib.rdma_accept(self.id, c.byref(param)):
            raise abi.failed(f"{self.device.name}: cannot accept")
        self.linger = True

    def call(self, private: bytes) -> None:
        """The route is known: connect. Raises LNetError."""
        self.make()
        param = self._param(private)
        if self.lib.rdma_connect(self.id, c.byref(param)):
            raise abi.failed(f"{self.device.name}: cannot connect")

    def begin(self, address: str, private: bytes) -> None:
        """Look for the address. Raises LNetError."""
        device, lib = self.device, self.lib
        self._private = private
        if self.shape.tos >= 0:
            tos = c.c_uint8(self.shape.tos)
            lib.rdma_set_option(self.id, _OPTION_ID, _OPTION_TOS, c.byref(tos), 1)
        there = sockaddr(address, device.service)
        ports = random.sample(_RESERVED_PORTS, _TRIES) if device.verbs.privileged else []
        for port in [*ports, 0]:
            here = sockaddr(device.ip, port)
            if not lib.rdma_resolve_addr(self.id, c.byref(here), c.byref(there), _RESOLVE_MS):
                return
            if c.get_errno() not in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
                break
        raise abi.failed(f"{device.name}: cannot resolve {address}")

    def managed(self, event: int, status: int, private: bytes) -> None:
        """The connection manager tells of it."""
        if not self.open:
            if event in (_DISCONNECTED, _TIMEWAIT_EXIT):
                self.device.verbs.bury(self)
            return
        try:
            if event == _ADDR_RESOLVED:
                if self.lib.rdma_resolve_route(self.id, _RESOLVE_MS):
                    raise abi.failed(f"{self.device.name}: no route")
            elif event == _ROUTE_RESOLVED:
                self.call(self._private)
            elif event in _CM_EVENTS:
                self.linger = self.linger or event == _ESTABLISHED
                self.owner.managed(_CM_EVENTS[event], abs(status), private)
        except LNetError as failed:
            self.device.verbs.report(failed.text)
            self.owner.managed(CmEvent.CONNECT_ERROR, failed.errno, b"")

    # Working ----------------------------------------------------------------------------------------

    def register(self, view: memoryview, remote: bool) -> RdmaRegion:
        """Register memory in its domain. Raises LNetError."""
        if self._domain is None or not self.open:
            text = f"{self.device.name}: memory cannot be registered for a connection that is not there"
            raise LNetError(errno.ENOTCONN, text)
        return RdmaRegion(self._domain, view, abi.ACCESS_REMOTE if remote else 0)

    def post(self, works: Sequence[Work]) -> None:
        """Do these in order, by one call."""
        pack, pack_sge = abi.SEND_WR.pack_into, abi.SGE.pack_into
        region = self._region
        assert region is not None
        wr = sge = 0
        last = len(works) - 1
        for at, work in enumerate(works):
            following = self._send_at + wr + abi.SEND_WR_SIZE if at != last else 0
            first = self._sge_at + sge
            if isinstance(work, Send):
                number = self._free.pop()
                start = begin = number * _SLOT
                for part in work.parts:
                    end = start + len(part)
                    self._view[start:end] = part
                    start = end
                pack_sge(self._send_sges, sge, region.address + begin, start - begin, region.lkey)
                sge += abi.SGE.size
                self._tokens[number] = work.token
                # fmt: off
                pack(self._send_wrs, wr, _SENT | number, following, first, 1, abi.SEND, abi.SIGNALED, 0, 0, 0)
                # fmt: on
            else:
                for piece in work.pieces:
                    there = piece.region
                    assert isinstance(there, RdmaRegion)
                    pack_sge(self._send_sges, sge, there.address + piece.offset, piece.length, there.lkey)
                    sge += abi.SGE.size
                # fmt: off
                pack(self._send_wrs, wr, _UNNAMED, following, first, len(work.pieces), abi.WRITE, 0, 0,
                     work.address, work.key)
                # fmt: on
            wr += abi.SEND_WR_SIZE
        number = self._post_send(self.qp, self._send_at, self._bad_at)
        if number:
            self._break(f"post: {errno_text(number)}", True)

    def recycle(self, slot: Slot) -> None:
        """Post that receive buffer again, soon."""
        self._idle.append(slot)
        if len(self._idle) >= _REPOSTED:
            self._repost()

    def _repost(self) -> None:
        idle, self._idle = self._idle, []
        at = self._recv_at
        behind = 0
        for slot in reversed(idle):
            number = slot.number
            place = number * abi.RECV_WR.size
            sge = self._recv_sge_at + number * abi.SGE.size
            abi.RECV_WR.pack_into(self._recv_wrs, place, number, behind, sge, 1)
            behind = at + place
        if behind and self.open:
            number = self._post_recv(self.qp, behind, self._bad_at)
            if number:
                self._break(f"post receive: {errno_text(number)}", True)

    def completions(self) -> None:
        """Look at what is completed."""
        unpack, wcs = abi.WC.unpack_from, self._wcs
        looked = 0
        sent: list[object] = []
        while self.open and not self._failed:
            count = self._poll(self.cq, _POLLED, self._wcs_at)
            if count <= 0:
                break
            looked += count
            for at in range(0, count * abi.WC_SIZE, abi.WC_SIZE):
                number, status, _, _, size = unpack(wcs, at)
                if status:
                    self._settle(sent)
                    ours = status == abi.WC_LENGTH and number >= _SENT
                    self._break(abi.WC_STATUS.get(status, f"status {status}"), ours or status in abi.WC_HERE)
                    return
                if number - _SENT in self._tokens:
                    number -= _SENT
                    self._free.append(number)
                    sent.append(self._tokens.pop(number))
                    continue
                self._settle(sent)
                if number >= len(self._slots) or size > _SLOT:
                    self._break_by(number, size)
                    return
                if self._is_open():
                    slot = self._slots[number]
                    slot.size = size
                    self.owner.received(slot)
                if not self._is_open():
                    return
            if looked >= _TURN:
                self.device.verbs.loop.call_soon(self.completions)
                break
        self._settle(sent)
        if self._idle and self.open:
            self._repost()

    def _break_by(self, number: int, size: int) -> None:
        """The device says what cannot be."""
        if number >= len(self._slots):
            self._break("the device completed work that it was not given", True)
        else:
            self._break(f"the device tells of {size} bytes in a buffer of {_SLOT}", True)

    def _is_open(self) -> bool:
        """Whether its owner has not closed it in the meantime."""
        return self.open

    def _settle(self, sent: list[object]) -> None:
        if sent and self.open:
            tokens = list(sent)
            sent.clear()
            self.owner.sent(tokens)

    def woken(self) -> None:
        """Its completion queue has an event: ask for the next one, then look."""
        if self.open and not self._failed:
            self._notify(self.cq, 0)
            self.completions()

    def _break(self, status: str, here: bool) -> None:
        if not self._failed:
            self._failed = True
            self.device.verbs.loop.call_soon(self.fail, status, here)

    def fail(self, status: str, here: bool) -> None:
        """It broke, `here` or by what the peer or the network did."""
        self._failed = True
        if self.open:
            self.owner.broken(status, here)

    # The end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """End it at once: the device touches nothing more. The domain goes when all is released."""
        if not self.open:
            return
        self.open = False
        lib, device = self.lib, self.device
        if self.linger:
            lib.rdma_disconnect(self.id)
        if self.qp:
            del device.qps[self.qp]
            lib.rdma_destroy_qp(self.id)
        if self.cq:
            del device.cqs[self.cq]
            lib.ibv_destroy_cq(self.cq)
        if self._region is not None:
            self._region.release()
        if self._domain is not None:
            self._domain.close()
        self._tokens.clear()
        verbs = device.verbs
        if self.linger and not verbs.closing:
            verbs.lingering[self] = verbs.loop.call_later(_LINGER, verbs.bury, self)
        else:
            verbs.bury(self)


def peer_of(cm_id: CmIdPtr) -> str:
    """The address at the other end."""
    at = c.addressof(cm_id.contents.route) + _STORAGE
    return socket.inet_ntoa(_SockAddr.from_address(at).address.to_bytes(4, "little"))


def key_of(cm_id: CmIdPtr) -> int:
    """What tells an identifier of the connection manager from others."""
    return c.addressof(cm_id.contents)


def _memory(size: int) -> tuple[bytearray, int]:
    """Memory of our own, and where it is."""
    buf = bytearray(size)
    return buf, c.addressof((c.c_char * size).from_buffer(buf))
