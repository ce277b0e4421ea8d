"""A driver of another package is found by its entry point, and carries messages; ulnet names it nowhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ulnet import Node
from ulnet.bond import BondLnd
from ulnet.core.md import MdOption
from ulnet.core.status import LNetError
from ulnet.lnd.registry import installed_drivers
from ulnet.lnd.sim import SimLnd
from ulnet.lnd.tcp import TcpLnd, TcpParams

TOY = '''\
"""Carries messages between the nodes of one process, over a net type that ulnet knows by name only."""

import errno

from ulnet.core.status import HealthStatus
from ulnet.nid import NetType

NODES = {}  # the core and the NI that have a NID
CLOSED = []


class Delivery:
    def __init__(self, sender, receiver, msg):
        self.sender, self.receiver, self.msg = sender, receiver, msg

    def take(self, incoming, buffers, mlen, rlen):
        if incoming is not None:
            data, at = memoryview(b"".join(self.msg.payload)), 0
            for buffer in buffers:
                buffer[:] = data[at : at + buffer.nbytes]
                at += buffer.nbytes
            self.receiver.end(incoming)
        self.sender.completed([self.msg])

    def abandon(self, incoming):
        return False

    def unanswered(self):
        pass


class ToyLnd:
    name, net_type, reports_timeout = "toy", int(NetType.GNI), False

    def __init__(self, core, loop):
        self.core, self.loop = core, loop

    def startup(self, ni):
        NODES[ni.nid] = self.core, ni
        ni.lnd_data = {}

    def shutdown(self, ni):
        del NODES[ni.nid]
        for receiver in ni.lnd_data.values():
            receiver.close()

    def retune(self, ni, timeout):
        pass

    def access_changed(self, ni):
        pass

    def verify(self, ni, nid):
        return True

    def send(self, ni, msgs):
        for msg in msgs:
            self.loop.call_soon(self.deliver, ni, msg)

    def deliver(self, ni, msg):
        core, other = NODES.get(msg.next_nid, (None, None))
        if core is None or not ni.active:
            self.core.completed([msg], HealthStatus.REMOTE_ERROR, errno.EHOSTUNREACH, "no such node")
            return
        if ni.nid not in other.lnd_data:
            other.lnd_data[ni.nid] = core.receiver(other, ni.nid)
        receiver = other.lnd_data[ni.nid]
        hdr = msg.hdr.copy()
        hdr.wmd = msg.wmd
        if receiver.begin(hdr, Delivery(self.core, receiver, msg)) or not hdr.payload_length:
            self.core.completed([msg])

    def close(self):
        CLOSED.append(self)
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with that driver, and one whose driver cannot be loaded."""
    (tmp_path / "ulnet_toylnd.py").write_text(TOY)
    for name, entry in (("toylnd", "toy = ulnet_toylnd:ToyLnd"), ("broken", "broken = ulnet_nix:Nothing")):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[ulnet.lnd]\n{entry}\n")
    monkeypatch.syspath_prepend(tmp_path)
    installed_drivers.cache_clear()
    yield
    installed_drivers.cache_clear()
    sys.modules.pop("ulnet_toylnd", None)


async def test_a_driver_of_another_package_carries_messages(installed: None) -> None:
    told: list[str] = []
    async with Node(report=told.append) as one, Node() as other:
        one.add_ni("1@gni")
        other.add_ni("2@gni")
        memory = bytearray(100_000)
        options = MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE
        other.attach(30, 7, memory, options=options, handler=lambda event: None)
        data = bytes(range(250)) * 400
        assert await one.put("2@gni", 30, 7, data) == len(data)
        assert memory == data
        back = bytearray(10)
        assert await one.get("2@gni", 30, 7, back, offset=5) == 10
        assert back == data[5:15]
        assert (await one.ping("2@gni")).nids
    assert told == ["driver broken cannot be used: ModuleNotFoundError: No module named 'ulnet_nix'"]
    assert len(sys.modules["ulnet_toylnd"].CLOSED) == 2


async def test_without_it_such_a_net_has_no_driver() -> None:
    async with Node() as node:
        with pytest.raises(
            LNetError, match="no driver for net gni: this node has drivers for bond, o2ib, tcp"
        ):
            node.add_ni("1@gni")


async def test_a_driver_is_had_by_its_class() -> None:
    node = Node()
    with pytest.raises(LNetError, match="no driver is a TcpLnd: this node has none before it is started"):
        node.driver(TcpLnd)
    async with node:
        assert node.driver(TcpLnd).name == "tcp"
        assert node.driver(BondLnd).bonds == {}
        with pytest.raises(LNetError, match="no driver is a SimLnd: this node has tcp, o2ib, lo, bond"):
            node.driver(SimLnd)


def test_parameters_are_those_of_a_driver() -> None:
    with pytest.raises(LNetError, match="'tpc' is no driver with parameters: those are tcp"):
        Node(tpc=TcpParams())
    with pytest.raises(LNetError, match="tcp=988: give it as TcpParams"):
        Node(tcp=988)
