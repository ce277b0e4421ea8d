"""Links and addresses as the kernel's messages tell them: bytes made by hand, and a namespace's real ones."""

from __future__ import annotations

import array
import asyncio
import errno
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.inside import Inside
from support.netns import Cluster
from ulnet.core.ni import NI, LocalNet
from ulnet.core.tunables import NetTunables
from ulnet.host import HostError, LinkMonitor, link_speed
from ulnet.host.link_monitor import _whole_table
from ulnet.host.link_table import DONE, LinkTable
from ulnet.lnd.base import DeviceNews
from ulnet.lnd.lo import LoLnd
from ulnet.nid import Nid
from ulnet.node.devices import Devices

UP, RUNNING = 0x1, 0x1 | 0x10000
NEW_LINK, DEL_LINK, NEW_ADDRESS, DEL_ADDRESS = 16, 17, 20, 21
LATE = ("link add late0 type veth peer late1", "link set late1 up", "link set late0 up")
TEN, SIX = socket.inet_aton("10.0.0.1"), socket.inet_pton(socket.AF_INET6, "fd00::1")


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def link(index: int, name: str, flags: int, *, kind: int = NEW_LINK, family: int = 0) -> bytes:
    body = struct.pack("=BxHiII", family, 1, index, flags, 0)
    return message(kind, body + attribute(3, name.encode() + b"\0"))


def address(index: int, raw: bytes, *, kind: int = NEW_ADDRESS, flags: int = 0, wide: bool = False) -> bytes:
    body = struct.pack("=BBBBI", 2 if len(raw) == 4 else 10, 24, 0 if wide else flags, 0, index)
    more = attribute(8, struct.pack("=I", flags)) if wide else b""
    return message(kind, body + attribute(1, raw) + more)


def test_a_link_is_usable_with_its_carrier_and_its_address() -> None:
    table = LinkTable()
    assert table.why_unusable(7, TEN) == "it is gone"
    table.feed(link(7, "eth0", 0))
    assert (table.index_of("eth0"), table.name_of(7)) == (7, "eth0")
    assert table.why_unusable(7, TEN) == "it is switched off"
    table.feed(link(7, "eth0", UP))
    assert table.why_unusable(7, TEN) == "it has no carrier"
    table.feed(link(7, "eth0", RUNNING))
    assert table.why_unusable(7, TEN) == "it has lost the address"
    assert table.why_unusable(7, None) == ""
    table.feed(address(7, TEN) + address(7, SIX))
    assert table.why_unusable(7, TEN) == table.why_unusable(7, SIX) == ""
    assert table.holder_of(SIX) == 7
    table.feed(address(7, TEN, kind=DEL_ADDRESS))
    assert table.why_unusable(7, TEN) == "it has lost the address"
    table.feed(link(7, "eth0", RUNNING, kind=DEL_LINK))
    assert table.why_unusable(7, None) == "it is gone"
    assert table.holder_of(SIX) is None


@pytest.mark.parametrize("flag", [0x40, 0x08])
@pytest.mark.parametrize("wide", [True, False])
def test_an_address_that_may_not_be_used_does_not_count(flag: int, wide: bool) -> None:
    table = LinkTable()
    table.feed(link(7, "eth0", RUNNING) + address(7, SIX, flags=flag, wide=wide))
    assert table.why_unusable(7, SIX) == "it has lost the address"
    table.feed(address(7, SIX))
    assert table.why_unusable(7, SIX) == ""
    table.feed(address(7, SIX, flags=flag, wide=wide))
    assert table.why_unusable(7, SIX) == "it has lost the address"


def test_what_a_bridge_says_of_its_ports_is_not_about_links() -> None:
    table = LinkTable()
    table.feed(link(7, "eth0", RUNNING) + link(7, "eth0", 0, kind=DEL_LINK, family=7))
    assert table.why_unusable(7, None) == ""


def test_the_end_of_a_dump_and_an_error_end_it() -> None:
    table = LinkTable()
    assert table.feed(link(1, "lo", RUNNING) + message(3, bytes(4))) == DONE
    assert table.feed(message(2, bytes(20))) == DONE
    assert table.feed(b"") == 0


@given(data=st.binary(max_size=300))
def test_any_bytes_are_taken(data: bytes) -> None:
    LinkTable().feed(data)


@given(
    kind=st.sampled_from([NEW_LINK, DEL_LINK, NEW_ADDRESS, DEL_ADDRESS, 2, 3, 99]),
    body=st.binary(max_size=80),
    cut=st.integers(0, 20),
)
def test_any_message_is_taken(kind: int, body: bytes, cut: int) -> None:
    whole = message(kind, body) + link(3, "eth3", RUNNING)
    LinkTable().feed(whole[: len(whole) - cut])


# In a namespace ---------------------------------------------------------------------------------------


@pytest.fixture
def inside(two_hosts: Cluster) -> Iterator[Inside]:
    home = Inside(two_hosts.hosts[0])
    try:
        yield home
    finally:
        home.close()


async def until(true: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    patience = loop.time() + 10
    while not true():
        assert loop.time() < patience, "waited in vain"
        await asyncio.sleep(0.005)


@pytest.mark.requirement("hlt-005", "hlt-010")
def test_the_kernel_tells_of_each_change(two_hosts: Cluster, inside: Inside) -> None:
    host = two_hosts.hosts[0]
    raw = socket.inet_aton(host.address(1))

    async def watch() -> None:
        changes: list[int] = []
        monitor = LinkMonitor(asyncio.get_running_loop(), lambda: changes.append(1))
        try:
            table = monitor.table
            index = table.index_of("rail1")
            assert index is not None
            await until(lambda: not table.why_unusable(index, raw))
            changes.clear()

            def says(why: str) -> bool:
                return table.why_unusable(index, raw) == why

            for fail, repair, why in (
                (lambda: host.set_link(1, False), lambda: host.set_link(1, True), "it is switched off"),
                (
                    lambda: two_hosts.set_cable(host, 1, False),
                    lambda: two_hosts.set_cable(host, 1, True),
                    "it has no carrier",
                ),
                (
                    lambda: host.run("ip", "address", "del", f"{host.address(1)}/24", "dev", "rail1"),
                    lambda: host.run("ip", "address", "add", f"{host.address(1)}/24", "dev", "rail1"),
                    "it has lost the address",
                ),
            ):
                fail()
                await until(partial(says, why))
                repair()
                await until(lambda: not table.why_unusable(index, raw))
            host.run("ip", "link", "del", "rail1")
            await until(lambda: table.why_unusable(index, raw) == "it is gone")
            assert len(changes) >= 7
        finally:
            monitor.close()

    inside.run(watch())


@pytest.mark.parametrize("refusals", [0, 2])
def test_changes_that_were_lost_are_made_up_for(
    two_hosts: Cluster, inside: Inside, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    host = two_hosts.hosts[0]
    refused: list[int] = []

    def dump() -> LinkTable:
        if len(refused) < refusals:
            refused.append(1)
            raise OSError(errno.EMFILE, "no more descriptors")
        return _whole_table()

    async def watch() -> None:
        monitor = LinkMonitor(asyncio.get_running_loop(), lambda: None)
        try:
            monkeypatch.setattr("ulnet.host.link_monitor._whole_table", dump)
            monkeypatch.setattr("ulnet.host.link_monitor._AGAIN", 0.1)
            monitor._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            lines = [f"address add 10.77.{n}.1/24 dev rail0" for n in range(100)]
            lines += [f"address del 10.77.{n}.1/24 dev rail0" for n in range(50)]
            host.run("ip", "-batch", "-", stdin="\n".join(lines))  # the loop stands still meanwhile
            kept = [socket.inet_aton(f"10.77.{n}.1") for n in range(50, 100)]
            await until(lambda: all(monitor.table.holder_of(one) for one in kept))
            assert len(refused) == refusals
            fresh = _whole_table()
            await until(lambda: monitor.table._addresses == fresh._addresses)
            assert monitor.table._links.keys() == fresh._links.keys()
        finally:
            monitor.close()

    inside.run(watch())


# Who is watched ---------------------------------------------------------------------------------------


def new_ni(nid: str, interface: str | None) -> NI:
    name = Nid.parse(nid)
    net = LocalNet(name.net, LoLnd(None, lambda: None), NetTunables())  # type: ignore[arg-type]
    return NI(net, name, interface=interface)


async def test_loopback_addresses_need_no_netlink() -> None:
    devices = Devices(asyncio.get_running_loop(), lambda line: None)
    devices.add(new_ni("127.0.0.1@tcp", None), lambda device: None)
    assert devices._monitor is None


async def test_without_netlink_the_log_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise HostError(errno.EPERM, "links cannot be watched: no")

    monkeypatch.setattr("ulnet.node.devices.LinkMonitor", refuse)
    said: list[str] = []
    devices = Devices(asyncio.get_running_loop(), said.append)
    for number in (1, 2):
        devices.add(new_ni(f"10.0.0.{number}@tcp", "eth0"), lambda device: None)
    assert len(said) == 1 and "time-outs alone" in said[0]
    devices.remove(new_ni("10.0.0.3@tcp", "eth0"))


def test_an_ni_is_watched_by_its_interface_or_by_its_address(two_hosts: Cluster, inside: Inside) -> None:
    host = two_hosts.hosts[0]

    async def watch() -> None:
        devices = Devices(asyncio.get_running_loop(), lambda line: None)
        told: dict[str, list[DeviceNews]] = {"named": [], "unnamed": [], "nowhere": []}
        named, unnamed = new_ni(host.nid(0), "rail0"), new_ni(host.nid(1), None)
        nowhere = new_ni("10.99.0.1@tcp", None)
        devices.add(nowhere, told["nowhere"].append)
        assert devices._monitor is None, "nothing to watch, nothing open"
        devices.add(named, told["named"].append)
        devices.add(unnamed, told["unnamed"].append)
        host.set_link(1, False)
        await until(lambda: told["unnamed"])
        assert told["unnamed"] == [DeviceNews("rail1", "it is switched off")]
        host.set_link(1, True)
        await until(lambda: told["unnamed"][-1] == DeviceNews("rail1"))
        assert not told["named"] and not told["nowhere"]
        devices.remove(named)
        devices.remove(unnamed)
        assert devices._monitor is None

    inside.run(watch())


@pytest.mark.requirement("hlt-005")
def test_a_device_that_was_made_a_moment_ago_is_watched(two_hosts: Cluster, inside: Inside) -> None:
    """What the kernel said of it may not have been read yet when its NI is added."""
    host = two_hosts.hosts[0]

    async def watch() -> None:
        devices = Devices(asyncio.get_running_loop(), lambda line: None)
        old, new = new_ni(host.nid(0), "rail0"), new_ni("10.9.0.1@tcp", "late0")
        told: dict[NI, list[DeviceNews]] = {old: [], new: []}
        devices.add(old, told[old].append)
        lines = (*LATE, "address add 10.9.0.1/24 dev late0")
        host.run("ip", "-batch", "-", stdin="\n".join(lines))  # the loop stands still meanwhile
        host.set_link(0, False)
        devices.add(new, told[new].append)
        await until(lambda: told[old])
        host.run("ip", "address", "del", "10.9.0.1/24", "dev", "late0")
        await until(lambda: told[new])
        assert told[new] == [DeviceNews("late0", "it has lost the address")]
        for ni in told:
            devices.remove(ni)

    inside.run(watch())


def set_speed(name: str, mbits: int) -> None:
    """What `ethtool -s NAME speed MBITS` does."""
    command = array.array("B", struct.pack("=I8xH14xH14x", 2, mbits & 0xFFFF, mbits >> 16))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, 0x8946, struct.pack("16sP16x", name.encode(), command.buffer_info()[0]))


@pytest.mark.requirement("hlt-015", "hlt-020")
def test_a_link_that_runs_far_below_its_speed_is_told_of(two_hosts: Cluster, inside: Inside) -> None:
    host = two_hosts.hosts[0]
    made = host.run("ip", "tuntap", "add", "tap7", "mode", "tap", check=False)
    if made.returncode:
        pytest.skip(f"no tap devices here, whose speed can be set: {made.stderr.strip()}")
    host.run("ip", "address", "add", "10.7.0.1/24", "dev", "tap7")

    async def watch() -> None:
        devices = Devices(asyncio.get_running_loop(), lambda line: None)
        told: list[DeviceNews] = []
        ni = new_ni("10.7.0.1@tcp", "tap7")
        keep = os.open("/dev/net/tun", os.O_RDWR)  # who has it open is the carrier
        try:
            fcntl.ioctl(keep, 0x400454CA, struct.pack("16sH22x", b"tap7", 0x1002))
            host.run("ip", "link", "set", "tap7", "up")
            devices.add(ni, told.append)
            await asyncio.sleep(0)

            def slow_now(shown: str) -> bool:
                return (told[-1].slow if told else "") == shown

            def seen(speed: int) -> bool:
                return devices._watched[ni, ni.nid].best_speed >= speed and ni.link_rate == speed * 125_000

            for speed, shown in (
                (1000, "it runs at 1000 Mb/s, in place of 10000"),
                (10000, ""),
                (9000, ""),
                (40000, ""),
                (10000, "it runs at 10000 Mb/s, in place of 40000"),
            ):
                set_speed("tap7", speed)
                host.run("ip", "address", "replace", f"10.8.0.{speed % 251}/32", "dev", "tap7")  # any news
                await until(partial(slow_now, shown))
                await until(partial(seen, speed))
            assert [device.failure for device in told] == [""] * len(told)
            assert len(told) == 3
        finally:
            devices.remove(ni)
            os.close(keep)

    inside.run(watch())


def test_a_link_without_a_speed_says_nothing() -> None:
    assert link_speed("lo") is None
    assert link_speed("no-such-link") is None
    assert link_speed("a name that is far too long") is None
    assert link_speed("") is None


def test_a_device_that_is_down_from_the_beginning_is_told_of(two_hosts: Cluster, inside: Inside) -> None:
    host = two_hosts.hosts[0]
    subprocess.run(["ip", "-n", host.name, "link", "set", "rail1", "down"], check=True)

    async def watch() -> None:
        devices = Devices(asyncio.get_running_loop(), lambda line: None)
        told: list[DeviceNews] = []
        ni = new_ni(host.nid(1), "rail1")
        devices.add(ni, told.append)
        assert not told, "never from inside add"
        await until(lambda: told)
        assert told == [DeviceNews("rail1", "it is switched off")]
        devices.remove(ni)

    inside.run(watch())
