"""Recorded kernel nodes against ours: as those that call, and as those that are called."""

from __future__ import annotations

import asyncio
import socket

import pytest

from lnd.conftest import Addresses
from lnd.kit import RawPeer
from lnd.recorded import Act, Event, Recording, recording
from lnd.test_kernel_probes import Replay, mapping
from support.ports import free_port
from ulnet import Node
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.nid import Nid
from ulnet.node import PingResult
from ulnet.wire.lnet import unpack_header
from ulnet.wire.ping import PingInfo

pytestmark = pytest.mark.requirement("LND-sock")

FIRST_CONTACT = recording("a_connect_and_ping_1rail")
OLD_RELEASE = recording("m_b2_15_vmC_to_master_vmA", "192.168.110.13")
IPV6 = recording("j_large_nid_ipv6_hello_v4")
A6, B6, SELF6 = Nid.parse("fd00:110::11@tcp"), Nid.parse("fd00:110::12@tcp"), Nid.parse("::1@tcp")


def without_incarnation(data: bytes) -> bytes:
    """A HELLO of version 3 or 4 with its source incarnation blanked; anything else as it is."""
    at = {56: 32, 80: 56}.get(len(data))
    return data if at is None else data[:at] + bytes(8) + data[at + 8 :]


def params() -> TcpParams:
    return TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)


# A kernel calls us ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "us"),
    [(FIRST_CONTACT, 12), (OLD_RELEASE.only({0, 1, 2}), 11)],
    ids=["development version", "2.15.8"],
)
async def test_a_kernel_calls_us(at: Addresses, script: Recording, us: int) -> None:
    """Three connections, HELLOs, a ping; then they stay open."""
    quiet = tuple(e for e in script.events if e.act in (Act.OPEN, Act.SAYS, Act.ANSWERS))
    # What comes after the first ping (the old release's discovery goes on) has its own tests.
    until_reply = next(n for n, e in enumerate(quiet) if e.act is Act.ANSWERS and e.data[:1] == b"\xc1")
    last_hello = max(n for n, e in enumerate(quiet) if len(e.data) == 56)
    script = Recording(quiet[: max(until_reply, last_hello) + 1])
    async with Node(tcp=params()) as node:
        for rail in (110, 111) if us == 11 else (110,):
            node.add_ni(at.nid(us, net=rail))
        replay = Replay(node, at, script)
        replay.address = (at.ip(us, net=110), replay.address[1])
        await replay.run()


async def test_a_kernel_calls_us_over_ipv6() -> None:
    """Large NIDs: request of 28 bytes, HELLO v4, headers of 96, ping info with large entries."""
    script = IPV6.only({0, 1, 2})
    quiet = [e for e in script.events if e.act in (Act.OPEN, Act.SAYS, Act.ANSWERS)]
    async with Node(tcp=params()) as node:
        node.add_ni(SELF6)
        port = node.driver(TcpLnd).params.accept_port
        raws: dict[int, RawPeer] = {}
        reply = b""
        for event in quiet:
            data = event.data.replace(bytes(A6), bytes(SELF6)).replace(bytes(B6), bytes(SELF6))
            if event.act is Act.OPEN:
                sock = socket.socket(socket.AF_INET6)
                raws[event.stream] = RawPeer(sock)
                await asyncio.get_running_loop().sock_connect(sock, ("::1", port))
            elif event.act is Act.SAYS:
                await raws[event.stream].send(data)
            elif len(data) == 80:
                answer = await raws[event.stream].read(80)
                assert without_incarnation(answer) == without_incarnation(data)
            else:
                reply = await raws[event.stream].read(len(data))
                assert reply[: 24 + 96] == data[: 24 + 96]
                assert PingInfo.unpack(reply[120:]).entries[0].nid == SELF6
                break
        assert reply
        while RawPeer.opened:
            RawPeer.opened.pop().close()


# We call a kernel -------------------------------------------------------------------------------------


class KernelStandIn:
    """Listens where the kernel node would, compares what we say, and says what the kernel said."""

    def __init__(self, sock: socket.socket, script: list[list[Event]], header: int) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.script = script  # per connection, in the order in which they are made
        self.header = header
        self.differences: list[str] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        talks = []
        for events in self.script:
            sock, _ = await loop.sock_accept(self.sock)
            talks.append(asyncio.create_task(self.converse(RawPeer(sock), events)))
        await asyncio.gather(*talks)

    async def converse(self, raw: RawPeer, events: list[Event]) -> None:
        wmd = b""
        for event in events:
            if event.act is Act.SAYS:
                said = await raw.read(len(event.data))
                if event.data[:4] == b"\xc1\0\0\0":
                    wmd = said[24 + self.header - 40 :][:16]
                self.compare(said, event.data)
            elif event.act is Act.ANSWERS:
                data = event.data
                if data[:4] == b"\xc1\0\0\0":
                    at = 24 + self.header - 40
                    data = data[:at] + wmd + data[at + 16 :]
                await raw.send(data)

    def compare(self, said: bytes, expected: bytes) -> None:
        """All but incarnation, wire handle, and how much a ping asks for."""
        if said[:4] == b"\xc1\0\0\0":
            ours, theirs = (unpack_header(data, 24, self.header == 96) for data in (said, expected))
            ours.wmd, ours.length = theirs.wmd, theirs.length
            same = ours == theirs and said[:24] == expected[:24]
        else:
            same = without_incarnation(said) == without_incarnation(expected)
        if not same:
            self.differences.append(f"said {said.hex()}, the kernel {expected.hex()}")


def server_script(script: Recording) -> list[list[Event]]:
    """Each connection's exchange up to the first reply."""
    result = []
    for stream in script.streams:
        events: list[Event] = []
        for event in script.events:
            if event.stream == stream and event.act in (Act.SAYS, Act.ANSWERS):
                events.append(event)
                if event.act is Act.ANSWERS and event.data[:4] == b"\xc1\0\0\0":
                    break
        result.append(events)
    return result


async def call(node: Node, stand_in: KernelStandIn, target: Nid) -> PingResult:
    serving = asyncio.create_task(stand_in.run())
    try:
        result = await node.ping(target, timeout=10)
        await asyncio.wait_for(serving, 10)
    finally:
        serving.cancel()
    assert not stand_in.differences
    return result


async def test_we_call_a_kernel(at: Addresses) -> None:
    """Byte for byte what the kernel's own first contact said, in the same order."""
    script = FIRST_CONTACT.mapped(lambda data: mapping(at, data))
    async with Node(tcp=params()) as node:
        node.add_ni(at.nid(11, net=110))
        with socket.create_server((at.ip(12, net=110), node.driver(TcpLnd).params.accept_port)) as sock:
            stand_in = KernelStandIn(sock, server_script(script), 72)
            result = await call(node, stand_in, Nid.parse(at.nid(12, net=110)))
        assert result.nids == (Nid.parse(at.nid(12, net=110)),)
    while RawPeer.opened:
        RawPeer.opened.pop().close()


async def test_we_call_a_kernel_over_ipv6() -> None:
    script = IPV6.only({0, 1, 2}).mapped(
        lambda data: data.replace(bytes(A6), bytes(SELF6)).replace(bytes(B6), bytes(SELF6))
    )
    async with Node(tcp=TcpParams(accept="none", accept_port=free_port())) as node:
        node.add_ni(SELF6)
        port = node.driver(TcpLnd).params.accept_port
        with socket.create_server(("::1", port), family=socket.AF_INET6) as sock:
            stand_in = KernelStandIn(sock, server_script(script), 96)
            await call(node, stand_in, SELF6)
    while RawPeer.opened:
        RawPeer.opened.pop().close()
