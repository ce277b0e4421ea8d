"""Every probe of a kernel node, put to ours: the same bytes come back and the connection ends the same way.

The probes and the kernel's answers are those of ../shared/reference/40_raw_probes.txt and
43_ctype_probes.txt; their captures are replayed here against a whole node. Addresses are mapped to
loopback, both where the probes name them and where the answers do; incarnations are the node's own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lnd.conftest import Addresses
from lnd.kit import RawPeer
from lnd.recorded import Act, Event, Recording, recording
from support.ports import free_port
from ulnet import Node
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.nid import Nid
from ulnet.wire.socklnd import MAGIC, V1_MAGIC

pytestmark = pytest.mark.requirement("LND-sock")

PROBES = recording("i_raw_probes_from_host", "192.168.110.1")
TYPES = recording("i2_ctype_probes", "192.168.110.1")

# In the order of the capture, under the names of the transcript.
NAMES = [
    "unprivileged source port 40000",
    "HELLO v3 CONTROL",
    "HELLO v3 BULK_IN",
    "HELLO v3 BULK_OUT",
    "HELLO v3 ANY",
    "HELLO v3 ctype 9",
    "HELLO v2",
    "HELLO v5",
    "HELLO v9",
    "HELLO v1",
    "big-endian HELLO v3",
    "request for a NID we are not",
    "request for our other NID",
    "request for net tcp9",
    "request version 2",
    "request version 7",
    "request magic deadbeef",
    "HELLO without request",
    "request with LNet's magic",
    "request then silence",
    "two bytes then silence",
    "ping",
    "ping, big-endian",
    "ping with sink length 20",
    "GET to a NID that is not ours",
    "GET on portal 25",
    "message type 9",
    "frame type 0xc5",
    "keepalive, then ping",
    "ping with zero-copy cookie on CONTROL",
    "push",
    "PUT of 2 MiB",
]
BIG_ENDIAN = {10, 22}
TYPE_NAMES = {
    (0,): "ANY only",
    (1,): "BULK_OUT only",
    (2,): "BULK_IN only",
    (3, 4, 5): "all three",
    (6,): "cookie on CONTROL only",
    (7, 8, 9): "cookie on BULK_OUT of three",
    (10, 11): "cookie with CONTROL and BULK_IN",
    (12, 13): "cookie with CONTROL and BULK_OUT",
}
# The kernel sends the answer or drops it with the connection: 29 and (6,) show one, (10, 11) the other.
RACES = {(10, 11)}
SILENCE = 0.03  # seconds without a byte that count as an open, silent connection


def mapping(at: Addresses, data: bytes) -> bytes:
    """192.168.110.x and 192.168.111.x become loopback addresses, in either byte order."""
    first, second = (int(part) for part in at.ip(0).split(".")[:2])
    for rail in (110, 111):
        data = data.replace(bytes((rail, 168, 192)), bytes((rail, second, first)))
        data = data.replace(bytes((192, 168, rail)), bytes((first, second, rail)))
    return data


def without_incarnation(data: bytes) -> bytes:
    """A HELLO with its source incarnation blanked; anything else as it is."""
    if data[:4] == MAGIC.to_bytes(4, "little") and len(data) == 56:
        return data[:32] + bytes(8) + data[40:]
    if data[:4] == V1_MAGIC.to_bytes(4, "little") and len(data) == 72:
        return data[:32] + bytes(8) + data[40:]
    return data


@asynccontextmanager
async def node(at: Addresses, **params: object) -> AsyncIterator[Node]:
    """The probed node: two NIs, as the kernel's."""
    values: dict[str, object] = {"accept": "all", "accept_port": free_port(), "reserved_ports": False}
    values |= {"accept_timeout": 0.3, **params}
    async with Node(tcp=TcpParams(**values)) as one:  # type: ignore[arg-type]
        for rail in (110, 111):
            one.add_ni(at.nid(12, net=rail))
        yield one


def without_mark(data: bytes) -> bytes:
    """Of ping info, all but the mark that we keep identities of PUTs, which kernel nodes have not."""
    at = max(data.find(magic) for magic in (b"gnip", b"ping")) + 44
    if at < 44 or len(data) < at + 4:
        return data
    assert b"\x75\x6c" in (data[at : at + 2], data[at + 2 : at + 4][::-1])
    return data[:at] + bytes(4) + data[at + 4 :]


class Replay:
    """Acts out the client of a recording and checks what the node does."""

    def __init__(self, target: Node, at: Addresses, script: Recording) -> None:
        self.address = (at.ip(12, net=110), target.driver(TcpLnd).params.accept_port)
        self.at = at
        self.script = script.mapped(lambda data: mapping(at, data))
        self.socks: dict[int, RawPeer] = {}
        self.over: set[int] = set()

    async def run(self) -> None:
        try:
            for event in self.script.events:
                if event.stream not in self.over:
                    await self.step(event)
        finally:
            while RawPeer.opened:
                RawPeer.opened.pop().close()

    async def step(self, event: Event) -> None:
        if event.act is Act.OPEN:
            self.socks[event.stream] = await self.open(event.stream)
            return
        raw = self.socks[event.stream]
        if event.act is Act.SAYS:
            await raw.send(event.data)
        elif event.act is Act.ANSWERS:
            answer = await raw.read(len(event.data))
            assert without_incarnation(without_mark(answer)).hex() == without_incarnation(event.data).hex()
        else:
            await self.end(event, raw)

    async def end(self, event: Event, raw: RawPeer) -> None:
        self.over.add(event.stream)
        if event.act is Act.HANGS_UP:
            await raw.silent(SILENCE)
            raw.close()
            return
        expected = "RESET" if event.act is Act.RESETS else "EOF"
        assert await raw.rest() == (b"", expected)

    async def open(self, stream: int) -> RawPeer:
        """Connect from the address that the HELLO will name, so that its name is believed."""
        said = self.script.said(stream)
        host = 1
        if said[16:20] == MAGIC.to_bytes(4, "little"):
            host = said[24]
        elif said[16:20] == MAGIC.to_bytes(4, "big"):
            host = said[31]
        sock = socket.socket()
        raw = RawPeer(sock)
        sock.bind((self.at.ip(host, net=110), 0))
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        return raw


def right_byte_order(script: Recording, stream: int) -> Recording:
    """The kernel leaves a big-endian peer's NIDs unswapped in its answer; we name the peer properly."""
    src = int.from_bytes(script.said(stream)[24:32], "big").to_bytes(8, "little")
    events = []
    for event in script.events:
        data = event.data
        if event.act is Act.ANSWERS and len(data) == 56:
            data = data[:16] + src + data[24:]
        events.append(Event(event.stream, event.act, data))
    return Recording(tuple(events))


def test_the_capture_holds_all_probes() -> None:
    assert PROBES.streams == list(range(len(NAMES)))
    assert sum(len(streams) for streams in TYPE_NAMES) == len(TYPES.streams)


@pytest.mark.parametrize("stream", range(1, len(NAMES)), ids=NAMES[1:])
async def test_probe(at: Addresses, stream: int) -> None:
    script = PROBES.only({stream})
    if stream in BIG_ENDIAN:
        script = right_byte_order(script, stream)
    async with node(at) as target:
        if NAMES[stream] == "push":  # the kernel's own push went where nothing answers: over the other rail
            target.core.discovery.stop()
        await Replay(target, at, script).run()


async def test_probe_from_an_unprivileged_port(at: Addresses) -> None:
    """Stream 0: the kernel, which wants secure ports, resets it."""
    assert [e.act for e in PROBES.only({0}).events] == [Act.OPEN, Act.SAYS, Act.RESETS]
    async with node(at, accept="secure") as target:
        replay = Replay(target, at, PROBES.only({0}))
        try:
            await replay.run()
        except ConnectionError:  # the reset is there before the request is out
            pass
        assert target.driver(TcpLnd).open_connections == 0


@pytest.mark.parametrize("streams", TYPE_NAMES, ids=TYPE_NAMES.values())
async def test_type_probe(at: Addresses, streams: tuple[int, ...]) -> None:
    script = TYPES.only(set(streams))
    if streams in RACES:
        script = Recording(tuple(e for e in script.events if e.act is not Act.ANSWERS or len(e.data) == 56))
    async with node(at) as target:
        await Replay(target, at, script).run()


async def test_a_correct_big_endian_peer_is_served(at: Addresses) -> None:
    """The probe also sent its LNet header big-endian, which no LNet does; with that put right it works."""
    script = right_byte_order(PROBES.only({22}), 22)
    ping = PROBES.only({21})
    get = next(e.data for e in ping.events if e.act is Act.SAYS and len(e.data) == 96)
    reply = next(e.data for e in ping.events if e.act is Act.ANSWERS and len(e.data) == 160)
    frame = (0xC1).to_bytes(4, "big") + bytes(20)
    events = [e for e in script.events if len(e.data) != 96 and e.act not in (Act.ENDS, Act.HANGS_UP)]
    # Its NID ends in 21 where that of the other probe ends in 20.
    events += [
        Event(22, Act.SAYS, frame + get[24:32] + b"\x15" + get[33:]),
        Event(22, Act.ANSWERS, reply[:24] + b"\x15" + reply[25:]),
    ]
    async with node(at) as target:
        await Replay(target, at, Recording(tuple(events))).run()


def test_nids_of_this_module(at: Addresses) -> None:
    """The mapping keeps what a NID is, in both encodings."""
    kernel, ours = Nid.parse("192.168.110.12@tcp"), Nid.parse(at.nid(12, net=110))
    assert mapping(at, kernel.nid4.to_bytes(8, "little")) == ours.nid4.to_bytes(8, "little")
    assert mapping(at, bytes(kernel)) == bytes(ours)
