"""The port on rdma-core: queue pairs and RDMA CM of real devices, InfiniBand and RoCE, on an event loop."""

from __future__ import annotations

import asyncio
import ctypes as c
import errno
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ulnet.core.status import LNetError, errno_text, of_system
from ulnet.lnd.forks import lead_nowhere
from ulnet.lnd.o2ib import abi
from ulnet.lnd.o2ib.rdma_pair import RdmaPair, key_of, peer_of, sockaddr
from ulnet.lnd.o2ib.verbs import DeviceEvent

if TYPE_CHECKING:
    from ulnet.core.ni import NI
    from ulnet.lnd.o2ib.params import O2ibParams
    from ulnet.lnd.o2ib.rdma_pair import CmIdPtr, RdmaDomain
    from ulnet.lnd.o2ib.verbs import DeviceOwner, PairOwner, Shape

__all__ = ["RdmaVerbs"]

_BACKLOG: Final = 127
_CONNECT_REQUEST, _DEVICE_REMOVAL, _ADDR_CHANGE = 4, 11, 14
_QP_FATAL: Final = 1
_QP_ERRORS: Final = {
    _QP_FATAL: "fatal error of the queue pair",
    2: "invalid request",  # of the peer, as is the next one
    3: "local access error",
}
_COMM_EST: Final = 4
_DEVICE_EVENTS: Final = {8: DeviceEvent.DEVICE_FATAL, 9: DeviceEvent.PORT_ACTIVE, 10: DeviceEvent.PORT_ERR}


class _Request:
    """A peer wants to connect."""

    def __init__(self, device: RdmaDevice, cm_id: CmIdPtr, private: bytes) -> None:
        self.private = private
        self.source = peer_of(cm_id)
        self._device = device
        self._id = cm_id
        self.answered = False

    def accept(self, owner: PairOwner, private: bytes, shape: Shape) -> RdmaPair:
        """Let it. Raises LNetError."""
        self.answered = True
        pair = RdmaPair(self._device, self._id, owner, shape)
        try:
            pair.make()
            pair.accept(private)
        except LNetError:
            del self._device.verbs.pairs[key_of(self._id)]  # `reject` needs the identifier, and destroys it
            pair.close()
            raise
        return pair

    def reject(self, private: bytes) -> None:
        """Do not."""
        self.answered = True
        self._device.lib.rdma_reject(self._id, private, len(private))
        self._device.lib.rdma_destroy_id(self._id)


class RdmaDevice:
    """A device that listens at one address."""

    pieces = 2

    def __init__(self, verbs: RdmaVerbs, ip: str, service: int, owner: DeviceOwner) -> None:
        self.verbs = verbs
        self.lib = verbs.lib
        self.ip = ip
        self.service = service
        self.owner = owner
        self.name: str = ip
        self.domains: dict[RdmaDomain, None] = {}
        self.cqs: dict[int, RdmaPair] = {}
        self.qps: dict[int, RdmaPair] = {}
        self.channel: c._Pointer[abi.CompChannel] | None = None
        self.open: bool = True
        self.id = verbs.new_id()
        try:
            self._listen()
        except LNetError:
            self.close()
            raise

    def _listen(self) -> None:
        lib, ip = self.lib, self.ip
        address = sockaddr(ip, self.service if self.verbs.listen else 0)
        if lib.rdma_bind_addr(self.id, c.byref(address)):
            raise _not_bound(ip, self.service, c.get_errno())
        if not self.id.contents.verbs:
            raise _no_device(ip)
        self.context = self.id.contents.verbs.contents
        self.context_at: int = c.addressof(self.context)
        self.name = lib.ibv_get_device_name(self.context.device).decode()
        self.port = self.id.contents.port_num
        self.channel = lib.ibv_create_comp_channel(self.context_at)
        if not self.channel:
            raise abi.failed(f"{self.name}: no completion channel")
        fd = self.channel.contents.fd
        os.set_blocking(fd, False)
        self.verbs.loop.add_reader(fd, self._completed)
        if self.verbs.listen and lib.rdma_listen(self.id, _BACKLOG):
            raise _not_bound(ip, self.service, c.get_errno())
        self.verbs.listeners[key_of(self.id)] = self
        self.verbs.watch(self)
        if not self.port_is_up():
            self.verbs.loop.call_soon(self.told, DeviceEvent.PORT_ERR, "")

    def port_is_up(self) -> bool:
        """Whether the port can carry anything."""
        path = Path("/sys/class/infiniband", self.name, "ports", str(self.port), "state")
        with suppress(OSError):
            return path.read_text("ascii").startswith("4")
        return True

    def told(self, event: DeviceEvent, words: str) -> None:
        """Something became of it."""
        if self.open:
            self.owner.device_event(event, words)

    def _completed(self) -> None:
        """Completion queues have events."""
        assert self.channel is not None
        cq, context = c.c_void_p(), c.c_void_p()
        woken: dict[RdmaPair, None] = {}
        while not self.lib.ibv_get_cq_event(self.channel, c.byref(cq), c.byref(context)):
            self.lib.ibv_ack_cq_events(cq, 1)
            pair = self.cqs.get(cq.value or 0)
            if pair is not None:
                woken[pair] = None
        for pair in woken:
            pair.woken()

    def requested(self, cm_id: CmIdPtr, private: bytes) -> None:
        """A peer calls."""
        request = _Request(self, cm_id, private)
        self.owner.requested(request)
        assert request.answered

    def connect(self, address: str, owner: PairOwner, private: bytes, shape: Shape) -> RdmaPair:
        """Call the address. Raises LNetError."""
        pair = RdmaPair(self, self.verbs.new_id(), owner, shape)
        try:
            pair.begin(address, private)
        except LNetError:
            pair.close()
            raise
        return pair

    def refused_memory(self, size: int) -> LNetError:
        """Why memory cannot be registered."""
        number = c.get_errno() or errno.ENOMEM
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        allowed = "without limit" if limit == resource.RLIM_INFINITY else f"up to {limit >> 10} KiB"
        text = (
            f"{self.name}: cannot register {size} bytes: {errno_text(number)}; memory is locked {allowed}: "
            "`ulimit -l unlimited` raises that, or LimitMEMLOCK=infinity in the service"
        )
        return LNetError(errno.ENOMEM, text)

    def close(self) -> None:
        """Listen no more, and give everything back."""
        if not self.open:
            return
        self.open = False
        verbs, lib = self.verbs, self.lib
        verbs.listeners.pop(key_of(self.id), None)
        verbs.unwatch(self)
        for domain in list(self.domains):
            for region in list(domain.regions):
                region.release()
            domain.close()
        if self.channel:
            verbs.loop.remove_reader(self.channel.contents.fd)
            lib.ibv_destroy_comp_channel(self.channel)
        lib.rdma_destroy_id(self.id)
        verbs.close_if_idle()


class RdmaVerbs:
    """The RDMA devices of this host. One channel of the connection manager serves all."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, params: O2ibParams, report: Callable[[str], None]
    ) -> None:
        self.loop = loop
        self.privileged: bool = bool(params.use_privileged_port)
        self.listen: bool = params.listen
        self.report = report
        self.closing: bool = False
        self.listeners: dict[int, RdmaDevice] = {}
        self.pairs: dict[int, RdmaPair] = {}
        self.lingering: dict[RdmaPair, asyncio.TimerHandle] = {}
        self._channel: c._Pointer[abi.EventChannel] | None = None
        self._watched: dict[int, list[RdmaDevice]] = {}  # by the address of their context

    @property
    def lib(self) -> abi.Libraries:
        """The libraries. Raises LNetError."""
        return abi.libraries()

    def open(self, ni: NI, service: int, owner: DeviceOwner) -> RdmaDevice:
        """Listen at the address of an NI. Raises LNetError."""
        self.closing = False
        return RdmaDevice(self, ni.nid.ip, service, owner)

    def new_id(self) -> CmIdPtr:
        """A new identifier of the connection manager. Raises LNetError."""
        if self._channel is None:
            channel = self.lib.rdma_create_event_channel()
            if not channel:
                number = c.get_errno()
                text = (
                    f"there is no RDMA connection manager ({errno_text(number)}): "
                    "load it with `modprobe rdma_ucm`, which makes /dev/infiniband/rdma_cm"
                )
                raise of_system(errno.ENODEV, text)
            self._channel = channel
            os.set_blocking(channel.contents.fd, False)
            self.loop.add_reader(channel.contents.fd, self._managed)
        found = c.POINTER(abi.CmId)()
        if self.lib.rdma_create_id(self._channel, c.byref(found), None, abi.PS_TCP):
            raise abi.failed("no identifier of the connection manager")
        return found

    def _managed(self) -> None:
        """The connection manager has events."""
        lib = self.lib
        event = c.POINTER(abi.CmEvent)()
        while self._channel is not None and not lib.rdma_get_cm_event(self._channel, c.byref(event)):
            found = event.contents
            kind, status, cm_id = found.event, found.status, c.POINTER(abi.CmId)(found.id.contents)
            conn = found.conn
            private = c.string_at(conn.private_data, conn.private_data_len) if conn.private_data else b""
            listener = self.listeners.get(key_of(found.listen_id)) if found.listen_id else None
            lib.rdma_ack_cm_event(event)
            self._dispatch(kind, status, cm_id, private, listener)

    def _dispatch(
        self, kind: int, status: int, cm_id: CmIdPtr, private: bytes, listener: RdmaDevice | None
    ) -> None:
        if kind == _CONNECT_REQUEST:
            if listener is not None:
                listener.requested(cm_id, private)
            else:
                self.lib.rdma_reject(cm_id, None, 0)
                self.lib.rdma_destroy_id(cm_id)
            return
        device = self.listeners.get(key_of(cm_id))
        if device is not None:
            if kind in (_DEVICE_REMOVAL, _ADDR_CHANGE):
                removed = kind == _DEVICE_REMOVAL
                device.told(DeviceEvent.DEVICE_REMOVAL if removed else DeviceEvent.ADDR_CHANGE, "")
            return
        pair = self.pairs.get(key_of(cm_id))
        if pair is not None:
            pair.managed(kind, status, private)

    def bury(self, pair: RdmaPair) -> None:
        """Nothing more is to be told of a connection that has ended."""
        timer = self.lingering.pop(pair, None)
        if timer is not None:
            timer.cancel()
        if self.pairs.pop(key_of(pair.id), None) is not None:
            self.lib.rdma_destroy_id(pair.id)
        self.close_if_idle()

    # Asynchronous events ----------------------------------------------------------------------------

    def watch(self, device: RdmaDevice) -> None:
        """Hear of what becomes of a device and its queue pairs."""
        devices = self._watched.setdefault(device.context_at, [])
        if not devices:
            os.set_blocking(device.context.async_fd, False)
            self.loop.add_reader(device.context.async_fd, self._happened, device.context_at)
        devices.append(device)

    def unwatch(self, device: RdmaDevice) -> None:
        """Hear no more."""
        devices = self._watched.get(getattr(device, "context_at", 0), [])
        if device in devices:
            devices.remove(device)
            if not devices:
                del self._watched[device.context_at]
                self.loop.remove_reader(device.context.async_fd)

    def _happened(self, context: int) -> None:
        event = abi.AsyncEvent()
        while context in self._watched and not self.lib.ibv_get_async_event(context, c.byref(event)):
            kind, element = event.type, event.element or 0
            self.lib.ibv_ack_async_event(c.byref(event))
            for device in list(self._watched.get(context, ())):
                told = _DEVICE_EVENTS.get(kind)
                if told is not None and (
                    told is DeviceEvent.DEVICE_FATAL or element & 0xFFFFFFFF == device.port
                ):
                    device.told(told, "")
                pair = device.qps.get(element)
                if pair is not None and kind in _QP_ERRORS:
                    pair.fail(_QP_ERRORS[kind], kind == _QP_FATAL)
                elif pair is not None and kind == _COMM_EST:
                    self.lib.rdma_notify(pair.id, kind)

    # The end ----------------------------------------------------------------------------------------

    def close_if_idle(self) -> None:
        """Close the channel, if nothing uses it."""
        if self._channel is not None and not (self.listeners or self.pairs):
            channel, self._channel = self._channel, None
            self.loop.remove_reader(channel.contents.fd)
            self.lib.rdma_destroy_event_channel(channel)

    def close(self) -> None:
        """All NIs are gone: what lingers ends now."""
        self.closing = True
        for pair in list(self.lingering):
            self.bury(pair)

    def forked(self) -> None:
        """In a child of the process, which shares the parent's devices: touch none of them."""
        for pair in self.pairs.values():
            pair.open = False
        for timer in self.lingering.values():
            timer.cancel()
        files = [] if self._channel is None else [self._channel.contents.fd]
        for device in self.listeners.values():
            files += [device.context.async_fd, device.context.cmd_fd]
            if device.channel:
                files.append(device.channel.contents.fd)
        lead_nowhere(files)


def _no_device(ip: str) -> LNetError:
    names = sorted(path.name for path in Path("/sys/class/infiniband").glob("*"))
    there = f"its devices are {', '.join(names)}" if names else "it has none: `ibv_devices` lists them"
    text = (
        f"no RDMA device of this host has the address {ip} ({there}): name an interface of InfiniBand or RoCE"
    )
    return of_system(errno.ENODEV, text)


def _not_bound(ip: str, service: int, number: int) -> LNetError:
    if number in (errno.ENODEV, errno.EADDRNOTAVAIL):
        return _no_device(ip)
    if number == errno.EACCES:
        text = f"{ip}: only root may use services below 1024, as {service}: run as root"
    elif number == errno.EADDRINUSE:
        text = f"{ip}: service {service} is in use, by ko2iblnd or another node: stop that one"
    else:
        text = f"{ip}: cannot listen at service {service}: {errno_text(number)}"
    return of_system(number, text)
