"""Discovery between nodes on real sockets, and who answers behind a NID after a restart."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.cli.pki import make_authority, make_node
from ulnet.core.md import OP_GET, OP_PUT
from ulnet.core.status import LNetError
from ulnet.core.tunables import LndTunables
from ulnet.dlc.documents import StatsDocument
from ulnet.dlc.model import StatsShow
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import LNET_PID, Nid
from ulnet.node.admin import Admin
from ulnet.wire.lnet import PING_MATCH_BITS
from ulnet.wire.ping import NiEntry, PingInfo

A, B, C = (tuple(f"127.0.{rail}.{host}@tcp{rail or ''}" for rail in (0, 1)) for host in (61, 62, 63))


def nodes(count: int) -> list[Node]:
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    return [Node(tcp=params) for _ in range(count)]


def add(node: Node, *nids: str) -> None:
    for nid in nids:
        node.add_ni(nid)


@pytest.mark.requirement("dyn-005", "cfg-085", "HLD-redisc")
async def test_the_first_put_finds_all_rails() -> None:
    a, b = nodes(2)
    async with a, b:
        add(a, *A)
        add(b, *B)
        inbox = b.attach(30, 1, bytearray(1000))
        assert await a.put(B[1], 30, 1, b"hello") == 5
        assert (await inbox.next_event()).initiator == Nid.parse(A[0])
        peer = await a.discover(B[0], force=True, timeout=10)
        assert [str(nid) for nid in peer.nids()] == list(B)
        peer = await b.discover(A[1], timeout=10)
        assert [str(nid) for nid in peer.nids()] == list(A)


async def test_what_the_target_has_no_memory_for_fails_at_once() -> None:
    """LNet drops it in silence; nodes that have discovered each other tell, and show what they dropped."""
    a, b = nodes(2)
    async with a, b:
        add(a, *A)
        add(b, *B)
        b.attach(30, 1, bytearray(8), options=OP_PUT | OP_GET)
        await a.discover(B[0], timeout=10)
        await b.discover(A[0], timeout=10)
        with pytest.raises(LNetError, match=r"dropped it: nothing is attached to its portal") as refused:
            await a.put(B[0], 31, 1, b"hello")
        assert refused.value.errno == errno.ENOENT
        with pytest.raises(LNetError, match=r"dropped it: no match entry takes it") as refused:
            await a.get(B[0], 30, 2, bytearray(8))
        assert refused.value.errno == errno.ENOENT
        with pytest.raises(LNetError, match=r"dropped it: it does not fit the memory there") as refused:
            await a.put(B[0], 30, 1, bytes(9))
        assert refused.value.errno == errno.EMSGSIZE
        shown = (await Admin(b).handle(StatsShow())).document
        assert isinstance(shown, StatsDocument)
        assert shown.statistics.drops == {
            "message longer than the matching memory descriptor": 1,
            "no matching entry": 1,
            "nothing is attached to the portal": 1,
        }
        assert all(pni.health == 1000 for pni in a.core.peers.nis())


async def test_discovery_of_nobody_fails_with_the_reason() -> None:
    (a,) = nodes(1)
    async with a:
        add(a, *A)
        with pytest.raises(LNetError) as refused:
            await a.discover(B[0], timeout=10)
        assert refused.value.errno == errno.ECONNREFUSED
        with pytest.raises(LNetError, match="within 0 s; it is still being tried"):
            await a.discover(B[1], timeout=0)
        with pytest.raises(LNetError, match=f"{B[0]} could not be discovered: "):
            await a.put(B[0], 30, 1, b"hello")


@pytest.mark.requirement("dyn-065")
async def test_another_node_behind_a_nid_gets_nothing_before_it_is_known() -> None:
    """The connection's HELLO tells that another life is there: what waits is held until a ping told whose."""
    a, b, c = nodes(3)
    async with a, c:
        add(a, *A)
        async with b:
            add(b, *B)
            b.attach(30, 1, bytearray(1000))
            await a.put(B[0], 30, 1, b"for b")
        add(c, C[0], B[0])  # another node took the address over
        inbox = c.attach(30, 1, bytearray(1000))
        seen: list[list[str]] = []

        def arrived(event: object) -> None:
            peer = a.core.peers.find(Nid.parse(B[0]))
            seen.append([] if peer is None else [str(nid) for nid in peer.nids()])

        assert inbox.md is not None
        inbox.md.handler = arrived
        for _ in range(20):  # the first may meet what is left of the old connections
            try:
                await a.put(B[0], 30, 1, b"for whom?", timeout=5)
                break
            except LNetError:
                continue
        assert seen == [[C[0], B[0]]]


@pytest.mark.requirement("dyn-025")
async def test_what_a_ping_tells_of_a_discovered_peer_is_merged() -> None:
    """A note of the documents on discovery: so does a ping that a user asks for."""
    a, b = nodes(2)
    async with a, b:
        add(a, *A)
        add(b, B[0])
        peer = await a.discover(B[0], timeout=10)
        b.core.discovery.active = False  # its push is lost
        add(b, B[1])
        b.core.discovery.active = True
        assert len((await a.ping(B[0], timeout=10)).nids) == 2
        async with asyncio.timeout(60):
            while not peer.settled:
                await asyncio.sleep(0)
        assert [str(nid) for nid in peer.nids()] == list(B)


async def test_a_ping_makes_no_peer_of_a_stranger() -> None:
    a, b = nodes(2)
    async with a, b:
        add(a, *A)
        add(b, *B)
        await a.ping(B[0], timeout=10)
        await asyncio.sleep(0)
        peer = a.core.peers.find(Nid.parse(B[0]))
        assert peer is None or (not peer.multi_rail and len(peer.members) == 1)


@pytest.mark.requirement("HLD-redisc")
@pytest.mark.parametrize("configured", [True, False])
async def test_a_forced_discovery_that_changes_nothing_is_complained_of(
    configured: bool, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = nodes(2)
    async with a, b:
        add(a, *A)
        add(b, *B)
        if configured:
            a.core.peers.add(Nid.parse(B[0]), [Nid.parse(B[1])], True)
        else:
            a.core.set_discovery(0)
        await a.discover(B[0], timeout=10)
        assert "is forced" not in caplog.text
        await a.discover(B[0], force=True, timeout=10)
        what = "its NIDs are configured and stay" if configured else "while discovery is off"
        assert f"discovery of peer {B[0]} is forced" in caplog.text
        assert what in caplog.text


async def test_a_peer_with_more_nis_than_there_may_be_is_complained_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    a, b = nodes(2)
    async with a, b:
        add(a, *A)
        add(b, *B)
        a.core.settings.max_interfaces = 1
        await a.discover(B[0], timeout=10)
        assert f"peer {B[0]} tells of 2 NIs, and max_interfaces is 1" in caplog.text


@pytest.mark.parametrize("sequence", [2, 0xFFFFFFF0])
async def test_a_plain_node_gets_nothing_that_is_for_a_secured_net(tmp_path: Path, sequence: int) -> None:
    """Of 16 PUTs for a node that had shown no certificate yet it got 16, and 8 once that had shown one."""
    make_authority(tmp_path / "ca", "site")
    port, credentials = free_port(), []
    for name, nid in (("a", A[0]), ("b", B[0])):
        make_node(tmp_path / "ca", tmp_path / name, [nid], days=30)
        credentials.append(str(tmp_path / name))
    a, b, foe = (
        Node(tcp=TcpParams(accept="all", accept_port=port, reserved_ports=False, credentials=directory))
        for directory in (*credentials, None)
    )
    secured = LndTunables(security=2)
    says = PingInfo(0x1E, LNET_PID, sequence, [NiEntry(Nid.parse(nid)) for nid in (C[1], B[0])]).pack()
    async with a, b, foe:
        a.add_ni(A[0], lnd_tunables=secured)
        add(a, A[1])
        add(foe, C[1])
        stolen = foe.attach(30, 1, bytearray(1000), options=OP_PUT)
        opened = bytearray(8)
        a.attach(31, 1, opened, nid=B[0])
        md = foe.core.info._ping
        assert md is not None
        md.fragments, md.length = [memoryview(says)], len(says)
        await a.discover(C[1], timeout=10)
        await foe.put(A[1], 0, PING_MATCH_BITS, says)
        b.add_ni(B[0], lnd_tunables=secured)
        b.attach(30, 1, bytearray(1000))
        for _ in range(2):
            for _ in range(16):
                await a.put(B[0], 30, 1, b"secret")
            await b.discover(A[0], force=True, timeout=10)
        assert stolen.md is not None
        assert stolen.md.offset == 0
        with pytest.raises(LNetError):
            await foe.put(A[1], 31, 1, b"EVIL", timeout=1)
        assert opened == bytes(8)
        peers = [[str(nid) for nid in peer.nids()] for peer in a.core.peers]
        assert [B[0]] in peers
        assert [C[1]] in peers
