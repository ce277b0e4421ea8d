"""Tells drivers at once what becomes of the devices under their NIs: links, carriers, speeds, addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from ulnet.core.ni import NI, Place
from ulnet.host import HostError, LinkMonitor, link_speed
from ulnet.lnd.base import DeviceNews
from ulnet.lnd.forks import of_this_process
from ulnet.nid import Nid

__all__ = ["Devices"]

_FAR_LESS: Final = 2  # times
_BYTES: Final = 125_000.0  # a second, in 1 Mb/s


@dataclass(slots=True)
class _Watched:
    """The device of one NI."""

    tell: Callable[[DeviceNews], None]
    index: int
    name: str
    address: bytes | None  # None: it never had the NI's address as its own (loopback has whole nets)
    failure: str = ""
    slow: str = ""
    speed: int = 0  # Mb/s now; 0: not known
    best_speed: int = 0  # as ever seen


class Devices:
    """A `DeviceWatch` over one netlink socket, which is open while there is an NI to watch.

    An NI that was given without an interface is watched by the link that has its address. Where netlink
    is not to be had, `report` is told so once, and nobody is watched.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[str], None]) -> None:
        self._loop = loop
        self._report = report
        self._monitor: LinkMonitor | None = None
        self._unavailable = False
        self._watched: dict[tuple[NI, Nid], _Watched] = {}

    def add(self, ni: NI, tell: Callable[[DeviceNews], None], place: Place | None = None) -> None:
        """Call `tell` whenever the device of ni, at `place` if it has several, fails or can be used again."""
        nid, interface = place or (ni.nid, ni.interface)
        if self._unavailable or (not interface and ip_address(nid.ip).is_loopback):
            return
        if self._monitor is None:
            try:
                self._monitor = LinkMonitor(self._loop, self._changed)
                of_this_process(self._monitor)
            except HostError as refused:
                self._unavailable = True
                self._report(f"{refused.text}: a device that fails will be noticed by time-outs alone")
                return
        elif self._monitor.catch_up():  # the device may be as new as its NI
            self._loop.call_soon(self._changed)
        table = self._monitor.table
        address = nid.address
        index = table.index_of(interface.partition(":")[0]) if interface else table.holder_of(address)
        if index is not None:
            kept = address if table.has(index, address) else None
            self._watched[ni, nid] = _Watched(tell, index, table.name_of(index), kept)
            self._loop.call_soon(self._look, (ni, nid))
        self._close_if_idle()

    def remove(self, ni: NI) -> None:
        """The NI is gone."""
        for which in [one for one in self._watched if one[0] is ni]:
            del self._watched[which]
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._watched and self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def _changed(self) -> None:
        for which in list(self._watched):
            self._look(which)

    def _look(self, which: tuple[NI, Nid]) -> None:
        """Compare what is with what was told of the device of an NI."""
        device, monitor = self._watched.get(which), self._monitor
        if device is None or monitor is None:
            return
        failure = monitor.table.why_unusable(device.index, device.address)
        if not monitor.table.name_of(device.index):
            self._tell(device, failure, gone=True)
            successor = monitor.table.index_of(device.name)
            if successor is None:
                return
            device.index = successor
            failure = monitor.table.why_unusable(successor, device.address)
            device.best_speed = 0
        if which in self._watched:  # who was told may have deleted it
            speed = None if failure else link_speed(device.name)
            device.speed = speed or 0
            self._tell_rate(which[0])
            self._tell(device, failure, slow="" if failure else _slowness(device, speed))

    def _tell_rate(self, ni: NI) -> None:
        """What all its devices carry together; nothing is said unless all of them say it."""
        speeds = [device.speed for (one, _), device in self._watched.items() if one is ni]
        ni.link_rate = sum(speeds) * _BYTES if all(speeds) else 0.0

    def _tell(self, device: _Watched, failure: str, *, gone: bool = False, slow: str = "") -> None:
        if (device.failure, device.slow) != (failure, slow):
            device.failure, device.slow = failure, slow
            device.tell(DeviceNews(device.name, failure, gone, slow))


def _slowness(device: _Watched, speed: int | None) -> str:
    """Words for a link that runs at less than half of its former speed; none where the speed is not known."""
    if speed is None:
        return device.slow
    device.best_speed = best = max(device.best_speed, speed)
    return f"it runs at {speed} Mb/s, in place of {best}" if speed * _FAR_LESS < best else ""
