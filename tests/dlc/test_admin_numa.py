"""CPTs by request: `--cpt`, `net set`, `numa show`, `cpt-of-nid`, on a machine of eight NUMA nodes."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from support.configurations import Driver
from ulnet.core.cpt import share_of_nid
from ulnet.core.ni import NI
from ulnet.core.selection.paths import Key
from ulnet.core.status import LNetError
from ulnet.dlc import model
from ulnet.dlc.config import read_config
from ulnet.dlc.errors import DlcError
from ulnet.host import Address, Link, NumaNode, Topology
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.node.admin import Admin
from ulnet.wire.lnet import HEADER_SIZE, MsgType

# Two sockets of four nodes, two CPUs each; eth0 is in node 1, eth1 in node 6.
EIGHT = Topology(
    tuple(
        NumaNode(
            node,
            (2 * node, 2 * node + 1),
            tuple(10 if node == other else 16 if node // 4 == other // 4 else 32 for other in range(8)),
        )
        for node in range(8)
    ),
    {"eth0": 1, "eth1": 6},
)
LINKS = [
    Link("lo", 1, addresses=(Address("127.0.0.1", 8),), loopback=True),
    Link("eth0", 2, addresses=(Address("10.0.0.1", 24),), numa_node=0),  # of the real machine: not asked
    Link("eth1", 3, addresses=(Address("10.1.0.1", 24),)),
    Link("eth2", 4, addresses=(Address("10.2.0.1", 24),)),
]


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with Node(topology=EIGHT) as node:
        node.core.register_lnd(Driver())
        yield Admin(node, host=lambda: LINKS)


def ni_of(admin: Admin, nid: str) -> NI:
    return admin.node.core.nis[Nid.parse(nid)]


async def shown(admin: Admin, request: model.Request) -> Any:
    return msgspec.to_builtins((await admin.handle(request)).document)


async def refused(admin: Admin, request: model.Request, number: int, words: str) -> None:
    with pytest.raises(DlcError) as refusal:
        await admin.handle(request)
    item = refusal.value.item
    assert (item.errno, item.verb, item.entity) == (-number, request.verb, request.entity)
    assert words in item.descr


@pytest.mark.requirement("cfg-025", "cfg-035", "snd-010")
async def test_nis_get_the_cpts_asked_for_and_the_node_of_their_device(admin: Admin) -> None:
    await admin.handle(model.NetAdd(net="tcp", interfaces=["eth0[0,2-3]", "eth1"], cpts="[7]"))
    await admin.handle(model.NetAdd(net="tcp1", interfaces=["eth2"]))
    await admin.handle(model.NetAdd(nids=["10.1.0.1@tcp2"], cpts="5"))
    found = [(ni.cpts, ni.dev_cpt) for nid, ni in admin.node.core.nis.items() if not nid.is_lo]
    everything = tuple(range(8))
    assert found == [((0, 2, 3), 1), ((7,), 6), (everything, -1), ((5,), 6)]
    nets = (await shown(admin, model.NetShow(verbosity=1)))["net"]
    views = [view for net in nets for view in net["local NI(s)"]]
    assert [(view["dev cpt"], view["CPT"]) for view in views] == [
        (-1, "[0,1,2,3,4,5,6,7]"),
        (1, "[0,2,3]"),
        (6, "[7]"),
        (-1, "[0,1,2,3,4,5,6,7]"),
        (6, "[5]"),
    ]


@pytest.mark.requirement("cfg-025")
@pytest.mark.parametrize(
    ("request_", "number", "words"),
    [
        (model.NetAdd(net="tcp", interfaces=["eth0"], cpts="[8]"), errno.ERANGE, "CPTs are 0 to 7"),
        (model.NetAdd(net="tcp", interfaces=["eth0", "eth1[3-9]"]), errno.ERANGE, "CPT 9 does not exist"),
        (model.NetAdd(net="tcp", interfaces=["eth0"], cpts="banana"), errno.EINVAL, "write CPTs such as"),
        (model.NetAdd(net="tcp", interfaces=["eth0"], cpts="[]"), errno.EINVAL, "write CPTs such as"),
        (model.NetAdd(nids=["10.0.0.1@tcp"], cpts="[-1]"), errno.EINVAL, "CPT"),
    ],
)
async def test_cpts_that_do_not_exist_are_refused(
    admin: Admin, request_: model.NetAdd, number: int, words: str
) -> None:
    await refused(admin, request_, number, words)
    assert len(admin.node.core.nis) == 1


@pytest.mark.requirement("cfg-030")
async def test_cpts_are_changed_of_one_ni_of_several_or_of_all(admin: Admin) -> None:
    await admin.handle(model.NetAdd(net="tcp", interfaces=["eth0", "eth1"], cpts="[0]"))
    await admin.handle(model.NetSet(nids=["10.0.0.1@tcp"], cpts="[2,4]"))
    assert [ni_of(admin, nid).cpts for nid in ("10.0.0.1@tcp", "10.1.0.1@tcp")] == [(2, 4), (0,)]
    assert len(ni_of(admin, "10.0.0.1@tcp").tx_queues) == 2
    await admin.handle(model.NetSet(all=True, cpts="[1]"))
    assert [ni_of(admin, nid).cpts for nid in ("10.0.0.1@tcp", "10.1.0.1@tcp")] == [(1,), (1,)]
    await admin.handle(model.NetSet(nids=["10.[0-1].0.1@tcp"], cpts="*"))
    assert ni_of(admin, "10.1.0.1@tcp").cpts == tuple(range(8))


@pytest.mark.requirement("cfg-030")
@pytest.mark.parametrize(
    ("request_", "number", "words"),
    [
        (model.NetSet(nids=["10.0.0.1@tcp"], all=True, cpts="0"), errno.EINVAL, "either --nid"),
        (model.NetSet(cpts="0"), errno.EINVAL, "either --nid"),
        (model.NetSet(all=True), errno.EINVAL, "nothing is to be set"),
        (model.NetSet(all=True, cpts="[8]"), errno.ERANGE, "CPT 8"),
        (model.NetSet(nids=["10.0.0.1@tcp", "10.9.0.1@tcp"], cpts="[1]"), errno.ENOENT, "10.9.0.1@tcp"),
        (model.NetSet(nids=["10.0.0.1@tcp", "0@lo"], cpts="[1]"), errno.EINVAL, "0@lo"),
    ],
)
async def test_changes_that_cannot_be_change_nothing(
    admin: Admin, request_: model.NetSet, number: int, words: str
) -> None:
    await admin.handle(model.NetAdd(net="tcp", interfaces=["eth0"], cpts="[0]"))
    await refused(admin, request_, number, words)
    assert ni_of(admin, "10.0.0.1@tcp").cpts == (0,)


@pytest.mark.requirement("CPT", "cfg-090")
async def test_the_table_of_distances_is_shown_with_the_range(admin: Admin) -> None:
    await admin.handle(model.GlobalSet({"numa_range": 16}))
    numa = (await shown(admin, model.NumaShow()))["numa"]
    assert numa["range"] == 16
    assert len(numa["CPTs"]) == 8
    assert numa["CPTs"][5] == {
        "cpt": 5,
        "cpus": "10-11",
        "nodes": "5",
        "distances": "0:32 1:32 2:32 3:32 4:16 5:10 6:16 7:16",
    }


@pytest.mark.requirement("cfg-090", "snd-025")
async def test_the_range_takes_effect_at_once_also_on_choices_that_were_kept(admin: Admin) -> None:
    core = admin.node.core
    await admin.handle(model.NetAdd(net="tcp", interfaces=["eth0", "eth1"]))
    await admin.handle(model.PeerAdd(primary="10.0.0.9@tcp"))
    dest = core.peers.find_ni(Nid.parse("10.0.0.9@tcp"))
    assert dest is not None
    near, far = ni_of(admin, "10.0.0.1@tcp"), ni_of(admin, "10.1.0.1@tcp")
    near.seq, far.seq = 2, 1  # it is the far one's turn
    chosen = []
    for numa_range in (0, 2**32 - 1, 20):
        await admin.handle(model.GlobalSet({"numa_range": numa_range}))
        chosen.append(core.selector.choose(dest, Key(int(MsgType.PUT)), HEADER_SIZE).ni)
    assert chosen == [near, far, near]


async def test_the_cpt_of_a_nid_is_among_those_of_its_net(admin: Admin) -> None:
    await admin.handle(model.NetAdd(net="tcp", interfaces=["eth0[2]", "eth1[2,5]"]))
    request = model.CptOfNids(["10.0.0.[2-9]@tcp", "10.0.0.2@tcp1"])
    found = (await shown(admin, request))["cpt-of-nid"]
    assert [one["nid"] for one in found] == [f"10.0.0.{n}@tcp" for n in range(2, 10)] + ["10.0.0.2@tcp1"]
    assert {one["cpt"] for one in found[:8]} == {2, 5}
    assert found[8]["cpt"] == share_of_nid(Nid.parse("10.0.0.2@tcp1"), 8)
    await refused(admin, model.CptOfNids(["10.0.0.2@banana"]), errno.EINVAL, "banana")
    await refused(admin, model.CptOfNids([]), errno.EINVAL, "no NID is named")


async def test_what_numa_show_prints_can_be_read_back() -> None:
    text = "numa:\n    range: 7\n    CPTs:\n        - cpt: 0\n          distances: 0:10\n"
    config = read_config(text)
    assert not config.errors
    assert [step.request for step in config.steps] == [model.GlobalSet({"numa_range": 7})]


@pytest.mark.requirement("CPT")
def test_cpts_may_be_divided_otherwise_than_by_nodes() -> None:
    table = Node(topology=EIGHT, cpu_npartitions=2).machine.cpts
    assert (table.count, table.distance(0, 0), table.distance(0, 1)) == (2, 16, 32)
    table = Node(topology=EIGHT, cpu_pattern="N 0[0,4] 1[1]").machine.cpts
    assert (table.distance(0, 0), table.distance(1, 1), table.of_cpu(9), table.of_cpu(15)) == (32, 10, 0, -1)
    with pytest.raises(LNetError, match="no node 8") as refusal:
        Node(topology=EIGHT, cpu_pattern="N 0[8]")
    assert refusal.value.errno == errno.EINVAL


@pytest.mark.requirement("snd-005", "snd-020")
async def test_messages_over_tcp_take_the_ni_that_is_near_their_memory() -> None:
    def new_node() -> Node:
        return Node(tcp=TcpParams(accept="all", accept_port=9880, reserved_ports=False), topology=EIGHT)

    async with new_node() as client, new_node() as server:
        nis = [client.add_ni(f"127.0.{net}.1@tcp{net}", device_node=node) for net, node in ((70, 1), (71, 6))]
        for net in (70, 71):
            server.add_ni(f"127.0.{net}.2@tcp{net}")
        client.add_peer("127.0.70.2@tcp70", ["127.0.71.2@tcp71"])
        server.attach(30, 1, bytearray(4096), ignore_bits=0)
        await client.discover("127.0.70.2@tcp70")
        for ni in nis:
            ni.stats.reset()
        counts = []
        for cpt in (0, 3, 4, 7):
            for _ in range(3):
                await client.put("127.0.70.2@tcp70", 30, 1, b"data", cpt=cpt)
                await client.get("127.0.71.2@tcp71", 30, 1, bytearray(4), cpt=cpt)
            counts.append([ni.stats.sent[1] + ni.stats.sent[2] for ni in nis])
        assert counts == [[6, 0], [12, 0], [12, 6], [12, 12]]
        with pytest.raises(LNetError, match="CPT 8 does not exist"):
            await client.put("127.0.70.2@tcp70", 30, 1, b"data", cpt=8)
        told = client.explain("127.0.70.2@tcp70", cpt=5)
        assert told.ni is nis[1]
