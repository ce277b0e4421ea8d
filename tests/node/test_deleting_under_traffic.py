"""NIs, nets, peers and policies come and go while messages flow over real sockets: nothing is lost."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from msgspec import UNSET

from support.ports import free_port
from ulnet import Node
from ulnet.core.md import MdOption
from ulnet.core.status import LNetError
from ulnet.dlc import model
from ulnet.dlc.config import read_config
from ulnet.dlc.errors import DlcError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Net, Nid
from ulnet.node.admin import Admin
from ulnet.node.admin.show_nets import show_nets
from ulnet.node.apply import Applied, apply_config, ask_admin

RAILS = ("127.0.1.%d@tcp", "127.0.2.%d@tcp", "127.0.3.%d@tcp1")
SIZE = 40_000
PORTAL, BITS = 20, 7


class Pair:
    """Two nodes with three rails on two nets, each open to the other."""

    def __init__(self, one: Node, other: Node) -> None:
        self.nodes = (one, other)
        self.admins = tuple(Admin(node, drain=5.0) for node in self.nodes)
        self.done = 0
        self.stop = False

    async def ask(self, request: Any, at: int = 0) -> None:
        answer = await self.admins[at].handle(request)
        assert answer.errors == []

    async def _exchange(self, at: int) -> None:
        target = RAILS[0] % (2 - at)
        memory = bytearray(SIZE)
        while not self.stop:
            assert await self.nodes[at].put(target, PORTAL, BITS, bytes(SIZE)) == SIZE
            assert await self.nodes[at].get(target, PORTAL, BITS, memory) == SIZE
            self.done += 2

    async def more(self, count: int) -> None:
        """Until that many more messages went through."""
        wanted = self.done + count
        while self.done < wanted:
            await asyncio.sleep(0.002)

    @asynccontextmanager
    async def traffic(self) -> AsyncIterator[None]:
        """Eight exchanges in each direction, all of which must succeed."""
        tasks = [asyncio.create_task(self._exchange(at)) for at in (0, 1) for _ in range(8)]
        checked = asyncio.gather(*tasks)
        try:
            body = asyncio.current_task()
            checked.add_done_callback(lambda one: body.cancel() if not self.stop and body else None)
            await self.more(100)
            yield
            await self.more(100)
        finally:
            self.stop = True
            await checked


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    port = free_port()
    async with (
        Node(tcp=TcpParams(accept="all", accept_port=port)) as one,
        Node(tcp=TcpParams(accept="all", accept_port=port)) as other,
    ):
        for number, node in enumerate((one, other), 1):
            for rail in RAILS:
                node.add_ni(rail % number)
            options = MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE
            node.attach(PORTAL, BITS, bytearray(SIZE), options=options, handler=lambda event: None)
        yield Pair(one, other)


@pytest.mark.requirement("HLD-dyn", "cfg-020")
@pytest.mark.parametrize("rail", [1, 2])
async def test_nis_and_nets_go_and_come_back_and_nothing_is_lost(pair: Pair, rail: int) -> None:
    nid = RAILS[rail] % 1
    async with pair.traffic():
        for _ in range(4):
            await pair.ask(model.NetDel(nids=[nid]))
            assert nid not in map(str, pair.nodes[0].core.nis)
            await pair.more(50)
            await pair.ask(model.NetAdd(nids=[nid]))
            await pair.more(50)
    assert pair.nodes[0].core.stats.response_timeout_count == 0


@pytest.mark.requirement("HLD-dyn")
async def test_a_net_with_two_nis_goes_at_once_with_both(pair: Pair) -> None:
    async with pair.traffic():
        await pair.ask(model.NetDel(net="tcp1"), at=1)
        await pair.more(50)
        await pair.ask(model.NetAdd(nids=[RAILS[2] % 2]), at=1)
        await pair.more(50)
        await pair.ask(model.NetDel(nids=[RAILS[1] % 2, RAILS[2] % 2]), at=1)
        await pair.more(50)


@pytest.mark.requirement("HLD-dyn", "cfg-070")
async def test_peers_and_their_nids_go_and_come_back(pair: Pair) -> None:
    nids = [rail % 2 for rail in RAILS]
    async with pair.traffic():
        for _ in range(3):
            await pair.ask(model.PeerDel(primary=nids[0]))
            await pair.more(30)
            await pair.ask(model.PeerAdd(primary=nids[0], nids=nids[1:]))
            await pair.more(30)
            await pair.ask(model.PeerDel(primary=nids[0], nids=nids[1:]))
            await pair.more(30)


@pytest.mark.requirement("HLD-dyn", "cfg-095")
async def test_policies_come_and_go(pair: Pair) -> None:
    async with pair.traffic():
        for _ in range(5):
            await pair.ask(model.UdspAdd(src=RAILS[1] % 1, dst=RAILS[1] % 2))
            await pair.more(30)
            await pair.ask(model.UdspAdd(src="tcp1", priority=0))
            await pair.more(30)
            await pair.ask(model.UdspDel(idx=0))
            await pair.ask(model.UdspDel(idx=0))


@pytest.mark.requirement("HLD-dyn")
async def test_a_drained_ni_carries_nothing_until_it_is_used_again(pair: Pair) -> None:
    one, other = pair.nodes
    nid = Nid.parse(RAILS[1] % 1)
    ni = one.core.nis[nid]
    with pytest.raises(DlcError, match="nothing is to be set"):
        await pair.ask(model.NetSet(nids=[str(nid)]))
    async with pair.traffic():
        await pair.ask(model.NetSet(nids=[str(nid)], drain=1))
        (net,) = show_nets(one.core, model.NetShow("tcp"))
        assert [view.nid for view in net.local_nis if view.drained is not UNSET] == [str(nid)]
        peer = other.core.peers.find(Nid.parse(RAILS[0] % 1))
        assert peer is not None and not peer.owns(nid)
        carried = sum(ni.stats.sent), sum(ni.stats.received)
        await pair.more(300)
        assert (sum(ni.stats.sent) - carried[0], sum(ni.stats.received) - carried[1]) == (0, 0)
        await pair.ask(model.NetSet(nids=[str(nid)], drain=0, health=900))
        while not peer.owns(nid) or sum(ni.stats.sent) < carried[0] + 20:
            await pair.more(10)
    assert one.core.stats.response_timeout_count == 0


@pytest.mark.requirement("HLD-dyn")
async def test_a_drained_ni_stays_so_when_it_cannot_be_deleted(pair: Pair) -> None:
    one = pair.nodes[0]
    ni = one.core.nis[Nid.parse(RAILS[1] % 1)]
    await pair.ask(model.NetSet(nids=[str(ni.nid)], drain=1))
    one.core.leaving.begin([ni])
    one.core.leaving.stay([ni])  # as after an EBUSY
    assert (ni.open, ni.listed, ni.drained) == (False, False, True)


@pytest.mark.requirement("HLD-dyn")
async def test_the_last_ni_ends_what_was_begun_and_takes_nothing_new(pair: Pair) -> None:
    one = pair.nodes[0]
    for rail in RAILS[1:]:
        one.del_ni(rail % 1)
    target = RAILS[0] % 2
    assert await one.put(target, PORTAL, BITS, bytes(SIZE)) == SIZE
    begun = [asyncio.create_task(one.put(target, PORTAL, BITS, bytes(SIZE))) for _ in range(60)]
    await asyncio.sleep(0)
    deleting = asyncio.create_task(pair.admins[0].handle(model.NetDel(net="tcp")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(LNetError) as refused:
        await one.put(target, PORTAL, BITS, bytes(SIZE))
    assert refused.value.errno == errno.EHOSTUNREACH
    await deleting
    assert await asyncio.gather(*begun) == [SIZE] * 60
    assert [str(nid) for nid in one.core.nis] == ["0@lo"]


@pytest.mark.requirement("HLD-dyn")
@pytest.mark.parametrize("at", [0, 1])
async def test_what_does_not_end_is_named_and_the_ni_stays(pair: Pair, at: int) -> None:
    """A PUT waits for memory at node 1: there it holds the NI itself, at node 0 by the answer that is due."""
    one, other = pair.nodes
    nid = RAILS[0] % (at + 1)
    for node, number in ((one, 1), (other, 2)):
        for rail in RAILS[1:]:
            node.del_ni(rail % number)
    other.core.memory.set_lazy(30)
    put = asyncio.create_task(one.put(RAILS[0] % 2, 30, BITS, bytes(SIZE)))
    while not other.core.memory.portal(30).delayed:
        await asyncio.sleep(0.005)
    hasty = Admin(pair.nodes[at], drain=0.1)
    with pytest.raises(DlcError) as refused:
        await hasty.handle(model.NetDel(nids=[nid]))
    assert refused.value.item.errno == -errno.EBUSY
    held = ("1 answers due from 127.0.1.2@tcp", "1 messages that wait for a program")[at]
    assert refused.value.item.descr.startswith(f"{nid} is in use: {held}")
    ni = pair.nodes[at].core.nis[Nid.parse(nid)]
    assert (ni.open, ni.listed) == (True, True)
    other.attach(30, BITS, bytearray(SIZE))
    assert await put == SIZE
    await hasty.handle(model.NetDel(nids=[nid]))
    assert nid not in map(str, pair.nodes[at].core.nis)


async def test_force_waits_for_nothing(pair: Pair) -> None:
    one, other = pair.nodes
    other.core.memory.set_lazy(30)
    put = asyncio.create_task(one.put(RAILS[0] % 2, 30, BITS, bytes(SIZE), timeout=0.5))
    while not other.core.memory.portal(30).delayed:
        await asyncio.sleep(0.005)
    for rail in RAILS:
        await pair.ask(model.NetDel(nids=[rail % 2], force=True), at=1)
    assert [str(nid) for nid in other.core.nis] == ["0@lo"]
    with pytest.raises(LNetError):
        await put
    await other.close(drain=0)  # it would wait for what waits for memory


def configuration(rails: int, credits: int, tos: int, peer: bool) -> str:
    """Some rails of the first node, the others without peer and net; `credits` of the last one's net."""
    nis = [{"nid": rail % 1, "lnd tunables": {"tos": tos}} for rail in RAILS]
    last = nis[2] | {"tunables": {"credits": credits}}
    nets = [
        {"net type": "tcp", "local NI(s)": nis[: min(rails, 2)]},
        {"net type": "tcp1", "local NI(s)": [last]},
    ]
    nids = [{"nid": rail % 2} for rail in RAILS]
    peers = [{"primary nid": nids[0]["nid"], "peer ni": nids}] if peer else []
    return yaml.safe_dump({"net": nets[: 1 + rails // 3], "peer": peers, "global": {"retry_count": 3}})


@pytest.mark.requirement("HLD-dyn", "cfg-170")
async def test_a_node_is_brought_to_files_and_nothing_is_lost(pair: Pair) -> None:
    """A net goes and comes back with other credits, NIs and peers come and go, tunables change."""
    ask = ask_admin(pair.admins[0])
    core = pair.nodes[0].core
    async with pair.traffic():
        for rails, credits, tos, peer in (
            *((3, 256, 8, True), (3, 64, 8, True), (3, 128, -1, False)),
            *((2, 0, -1, True), (1, 0, 16, False), (3, 256, 8, True)),
        ):
            config = read_config(configuration(rails, credits, tos, peer))
            applied = await apply_config(ask, config)
            assert applied.done
            assert applied.refused == []
            assert await apply_config(ask, config) == Applied([], [])
            assert len(core.nis) == 1 + rails
            assert {ni.lnd_tunables.tos for ni in core.nis.values() if ni.lnd_tunables is not None} == {tos}
            if rails == 3:
                assert core.nets[Net.parse("tcp1")].tunables.credits == credits
            await pair.more(50)
    assert core.stats.response_timeout_count == 0
