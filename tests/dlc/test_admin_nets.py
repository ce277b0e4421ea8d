"""`net add`, `net del`, `net show` on a node: the errno of each table, all or nothing, and what is shown."""

from __future__ import annotations

import errno
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path
from socket import AF_INET6
from typing import Any

import msgspec
import pytest

import ulnet
from support.configurations import Driver
from ulnet.core.routing import RoutingSettings
from ulnet.core.status import LNetError
from ulnet.core.tunables import DEFAULT_TIMEOUT, GlobalSettings, LndTunables, NetTunables
from ulnet.dlc import model
from ulnet.dlc.errors import DlcError
from ulnet.dlc.request import Tunables
from ulnet.dlc.settings import BUFFERS, ROUTER, SETTINGS
from ulnet.dlc.tunables import TUNABLES
from ulnet.host import Address, Link, NumaNode, Topology
from ulnet.nid import NetType, Nid, NidList
from ulnet.node import Node
from ulnet.node.admin import Admin
from ulnet.node.admin.names import read_nids

LINKS = [
    Link("lo", 1, addresses=(Address("127.0.0.1", 8),), loopback=True),
    Link(
        "eth0", 2, speed_mbps=100_000, addresses=(Address("10.0.0.1", 24), Address("fd00::1", 64, AF_INET6))
    ),
    Link("eth1", 3, addresses=(Address("10.1.0.1", 24), Address("10.1.0.2", 24))),
    Link("eth2", 4, up=False, addresses=(Address("10.2.0.1", 24),)),
    Link("eth3", 5),
    Link(
        *("eth4", 6),
        addresses=(Address("10.4.0.1", 24), Address("10.4.0.2", 24, label="eth4:1"), Address("10.5.0.2", 24)),
    ),
]


def _every(*values: int) -> Tunables:
    """Of all tunables that a tcp net of kernel nodes has."""
    names = [name for name, one in TUNABLES.items() if one.is_of(NetType.TCP) and not one.own]
    return dict(zip(names, values, strict=True))


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    one_cpt = Topology((NumaNode(0, (0,), (10,)),))  # whatever this machine has
    async with Node(topology=one_cpt) as node:
        yield node


@pytest.fixture
def driver(node: Node) -> Driver:
    driver = Driver()
    node.core.register_lnd(driver)
    return driver


@pytest.fixture
def admin(node: Node, driver: Driver) -> Admin:
    return Admin(node, host=lambda: LINKS)


def add(net: str | None = "tcp", *interfaces: str, **more: Any) -> model.NetAdd:
    return model.NetAdd(net=net, interfaces=list(interfaces), **more)


async def refused(admin: Admin, request: model.Request) -> tuple[int, str]:
    """Errno and words of a refusal, which must have changed nothing."""
    before = await shown(admin, 1)
    with pytest.raises(DlcError) as caught:
        await admin.handle(request)
    assert await shown(admin, 1) == before
    return caught.value.errno, caught.value.descr


async def shown(admin: Admin, verbosity: int = 0, net: str | None = None) -> list[Any]:
    document = (await admin.handle(model.NetShow(net=net, verbosity=verbosity))).document
    nets: list[Any] = msgspec.to_builtins(document, str_keys=True)["net"]
    return nets


def nids(nets: list[Any]) -> dict[str, list[str]]:
    return {net["net type"]: [ni["nid"] for ni in net["local NI(s)"]] for net in nets}


@pytest.mark.requirement("cfg-010", "cfg-015", "cfg-060")
async def test_interfaces_become_nis_grouped_under_their_nets(admin: Admin) -> None:
    await admin.handle(add("tcp", "eth0", "eth1"))
    await admin.handle(add("tcp01", "eth1"))
    assert nids(await shown(admin)) == {
        "lo": ["0@lo"],
        "tcp": ["10.0.0.1@tcp", "10.1.0.1@tcp"],
        "tcp1": ["10.1.0.1@tcp1"],
    }
    assert (await shown(admin, net="tcp1"))[0]["local NI(s)"] == [
        {"nid": "10.1.0.1@tcp1", "status": "up", "interfaces": {"0": "eth1"}}
    ]


async def test_a_nid_finds_its_interface(admin: Admin) -> None:
    await admin.handle(model.NetAdd(nids=["10.1.0.2@tcp3", "fd00::1@tcp3"]))
    (net,) = await shown(admin, net="tcp3")
    assert [(ni["nid"], ni["interfaces"]["0"]) for ni in net["local NI(s)"]] == [
        ("10.1.0.2@tcp3", "eth1"),
        ("fd00::1@tcp3", "eth0"),
    ]


async def test_an_address_label_names_its_address(admin: Admin) -> None:
    await admin.handle(add("tcp", "eth4"))
    await admin.handle(add("tcp1", "eth4:1[0]"))
    assert nids(await shown(admin)) == {
        "lo": ["0@lo"],
        "tcp": ["10.4.0.1@tcp"],
        "tcp1": ["10.4.0.2@tcp1"],
    }
    assert await refused(admin, model.NetDel("tcp", ["eth4:1"])) == (
        errno.ENODEV,
        "interface eth4:1 has 10.4.0.2, which is no NI of net tcp: see 'lnetctl net show'",
    )
    assert (await refused(admin, add("tcp2", "eth4:2")))[0] == errno.ENETDOWN
    await admin.handle(model.NetDel("tcp1", ["eth4:1"]))
    assert nids(await shown(admin)) == {"lo": ["0@lo"], "tcp": ["10.4.0.1@tcp"]}


async def test_every_address_of_loopback_can_be_an_ni(admin: Admin) -> None:
    await admin.handle(model.NetAdd(nids=["127.0.0.[2-3]@tcp"]))
    (net,) = await shown(admin, net="tcp")
    assert net["local NI(s)"] == [
        {"nid": "127.0.0.2@tcp", "status": "up"},
        {"nid": "127.0.0.3@tcp", "status": "up"},
    ]


async def test_large_nids_are_preferred_when_lnet_was_configured_so(node: Node, admin: Admin) -> None:
    await admin.handle(model.LnetUnconfigure())
    await admin.handle(model.LnetConfigure(large=True))
    node.core.register_lnd(Driver())
    await admin.handle(add("tcp", "eth0", "eth1"))
    assert nids(await shown(admin))["tcp"] == ["fd00::1@tcp", "10.1.0.1@tcp"]


async def test_a_preferred_address_is_taken_if_the_interface_has_it(admin: Admin) -> None:
    await admin.handle(add("tcp", "eth1", prefer="10.1.0.2@tcp"))
    await admin.handle(add("tcp1", "eth1", prefer="192.168.9.9@tcp1"))
    assert nids(await shown(admin)) == {"lo": ["0@lo"], "tcp": ["10.1.0.2@tcp"], "tcp1": ["10.1.0.1@tcp1"]}


NO_NET = model.NetAdd()
ERRORS = [
    (add("tcp", "eth9"), errno.ENETDOWN, "no interface is named 'eth9': this host has lo, eth0"),
    (add("tcp", "eth2"), errno.ENETDOWN, "interface eth2 is down: switch it on"),
    (add("tcp", "eth3"), errno.ENETDOWN, "interface eth3 has no usable IP address"),
    (add("tcp", "lo"), errno.ENETDOWN, "lo is the loopback interface"),
    (add("tcp", "eth0", "eth9"), errno.ENETDOWN, "eth9"),
    (add("tcp"), errno.EINVAL, "net tcp needs at least one interface"),
    (NO_NET, errno.EINVAL, "no net is named"),
    (add(None, "eth0"), errno.EINVAL, "no net is named"),
    (add("banana", "eth0"), errno.ENOENT, "'banana' has no known type"),
    (add("", "eth0"), errno.ENOENT, "'' has no known type"),
    (add("TCP1", "eth0"), errno.ENOENT, "'TCP1' has no known type"),
    (add("tcp-1", "eth0"), errno.ENOENT, "'tcp-1': after tcp comes a number"),
    (add("tcp65536", "eth0"), errno.EINVAL, "'tcp65536': after tcp comes a number from 0 to 65535"),
    (add("lo", "eth0"), errno.ENODEV, "net lo belongs to every node"),
    (add("gip", "eth0"), errno.EINVAL, "no driver for net gip: this node has drivers for bond, o2ib, tcp"),
    (add("o2ib", "eth0"), errno.ENETDOWN, "RDMA"),
    (add("gni", "eth0"), errno.EINVAL, "net gni: its NIDs are numbers"),
    (add("tcp", "eth0", "eth0"), errno.EEXIST, "named twice"),
    (add("tcp", "eth0 eth1"), errno.EINVAL, "is not written as a name"),
    (add("tcp", "eth0[9]"), errno.ERANGE, "CPT 9 does not exist: this node's CPTs are 0 to 0"),
    (add("tcp", "eth0", cpts="[9]"), errno.ERANGE, "CPT 9 does not exist"),
    (add("tcp", "eth0", cpts="banana"), errno.EINVAL, "write CPTs such as"),
    (add("tcp", "eth0", tunables=Tunables(credits=-2)), errno.EINVAL, "credits -2 is out of range"),
    (add("tcp", "eth0", tunables=Tunables(conns_per_peer=128)), errno.EINVAL, "use 0 to 127"),
    (add("tcp", "eth0", tunables=Tunables(tos=256)), errno.EINVAL, "use 0 to 255, or -1"),
    (model.NetAdd(nids=["10.0.0.99@tcp"]), errno.ENETDOWN, "10.0.0.99 is not an address of this host"),
    (model.NetAdd(nids=["10.2.0.1@tcp"]), errno.ENETDOWN, "interface eth2 is down"),
    (model.NetAdd(nids=["banana"]), errno.EINVAL, "'banana'"),
    (model.NetAdd(nids=["0@lo"]), errno.ENODEV, "net lo"),
    (model.NetAdd(nids=["10.0.0.1@tcp"], net="tcp"), errno.EINVAL, "give either --nid, or --net with --if"),
    (model.NetAdd(nids=["10.0.0.[1-99]@tcp"]), errno.ENETDOWN, "10.0.0.2"),
    (model.NetAdd(nids=["10.0.*.*@tcp"]), errno.EINVAL, "more than 1024 NIDs"),
    (model.NetDel(net="tcp77"), errno.EINVAL, "net tcp77 is not configured"),
    (model.NetDel(net="banana"), errno.EINVAL, "'banana' has no known type"),
    (model.NetDel(net="lo"), errno.ENODEV, "net lo belongs to every node"),
    (model.NetDel(nids=["0@lo"]), errno.ENODEV, "net lo belongs to every node"),
    (model.NetDel(nids=["1.2.3.4@tcp"]), errno.ENOENT, "1.2.3.4@tcp is not one of this node's NIDs"),
    (model.NetDel(), errno.EINVAL, "no net is named"),
    (model.NetShow(net="tcp9"), errno.ESRCH, "net tcp9 is not configured on this node: it has lo"),
    (model.NetShow(net="banana"), errno.ENOENT, "'banana' has no known type"),
]


@pytest.mark.parametrize(("request_", "number", "words"), ERRORS, ids=lambda value: str(value)[:60])
async def test_bad_input_is_refused_and_changes_nothing(
    admin: Admin, request_: model.Request, number: int, words: str
) -> None:
    got, text = await refused(admin, request_)
    assert errno.errorcode[got] == errno.errorcode[number]
    assert words in text


@pytest.mark.requirement("cfg-040")
async def test_one_device_carries_one_ni_of_a_net(admin: Admin) -> None:
    await admin.handle(add("tcp", "eth1"))
    told = admin.node.core.info.sequence
    for request in (add("tcp", "eth1"), add("tcp", "eth0", "eth1"), model.NetAdd(nids=["10.1.0.1@tcp"])):
        assert (await refused(admin, request))[0] == errno.EEXIST
    for nids in (["10.1.0.2@tcp"], ["10.0.0.1@tcp", "10.1.0.2@tcp"]):
        assert (await refused(admin, model.NetAdd(nids=nids)))[0] == errno.EEXIST
    assert admin.node.core.info.sequence == told  # no NI came and went
    nid = Nid.parse("10.1.0.2@tcp")
    with pytest.raises(LNetError, match="one device carries one NI of a net"):
        admin.node.core.add_ni(nid.net, nid, interface="eth1")


@pytest.mark.requirement("cfg-005")
async def test_several_interfaces_come_up_all_or_none(admin: Admin, driver: Driver) -> None:
    driver.broken = {"10.1.0.1@tcp"}
    number, text = await refused(admin, add("tcp", "eth0", "eth1"))
    assert number == errno.ENETDOWN
    assert text == "10.1.0.1@tcp: port 988 is taken (none of 2 NIs was added)"
    assert driver.up == []


async def test_more_interfaces_than_allowed_are_refused(admin: Admin) -> None:
    await admin.handle(model.GlobalSet({"max_interfaces": 16}))
    await admin.handle(model.NetAdd(nids=["127.0.0.[1-14]@tcp"]))
    number, text = await refused(admin, add("tcp1", "eth0", "eth1"))
    assert (number, "max_interfaces" in text) == (errno.ENOSPC, True)


async def test_an_interface_in_the_wrong_net_is_not_deleted(admin: Admin) -> None:
    await admin.handle(add("tcp", "eth0"))
    number, text = await refused(admin, model.NetDel(net="tcp", interfaces=["eth0", "eth1"]))
    assert (number, text) == (errno.ENODEV, "interface eth1 is not in net tcp: it has eth0")


@pytest.mark.requirement("cfg-020", "cfg-060")
async def test_nis_are_deleted_by_net_interface_and_nid(admin: Admin, driver: Driver) -> None:
    await admin.handle(add("tcp", "eth0", "eth1"))
    await admin.handle(add("tcp1", "eth0", "eth1"))
    await admin.handle(add("tcp2", "eth0", "eth1"))
    await admin.handle(model.NetDel(net="tcp"))
    await admin.handle(model.NetDel(net="tcp1", interfaces=["eth0"]))
    await admin.handle(model.NetDel(nids=["10.1.0.1@tcp2"]))
    assert nids(await shown(admin)) == {"lo": ["0@lo"], "tcp1": ["10.1.0.1@tcp1"], "tcp2": ["10.0.0.1@tcp2"]}
    assert driver.up == ["10.1.0.1@tcp1", "10.0.0.1@tcp2"]


@pytest.mark.parametrize(
    ("given", "tunables", "driver_tunables"),
    [
        (Tunables(), (180, 8, 0, 256), (4, 50, -1)),
        (
            _every(90, 16, 4, 512, 2, 20, 32),
            (90, 16, 4, 512),
            (2, 20, 32),
        ),
        (
            _every(-1, -1, -1, -1, -1, -1, -1),
            (180, 8, 0, 256),
            (4, 50, -1),
        ),
        (
            _every(0, 0, 0, 0, 0, 0, 0),
            (0, 8, 0, 256),
            (4, 50, 0),
        ),
        (Tunables(credits=4, peer_credits=8), (180, 4, 0, 4), (4, 50, -1)),
        (Tunables(credits=4), (180, 4, 0, 4), (4, 50, -1)),
        (Tunables(conns_per_peer=127), (180, 8, 0, 256), (127, 50, -1)),
    ],
)
async def test_tunables_are_taken_as_real_nodes_take_them(
    admin: Admin, given: Tunables, tunables: tuple[int, ...], driver_tunables: tuple[int, ...]
) -> None:
    await admin.handle(add("tcp", "eth0", tunables=given))
    ((ni,),) = ([net["local NI(s)"]] for net in await shown(admin, 1, "tcp"))
    assert tuple(ni[0]["tunables"].values()) == tunables
    assert tuple(ni[0]["lnd tunables"].values()) == driver_tunables


async def test_tunables_that_differ_from_the_nets_are_logged(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    await admin.handle(add("tcp", "eth0", tunables=Tunables(credits=64, peer_credits=4)))
    await admin.handle(add("tcp", "eth1", tunables=Tunables(credits=64, peer_credits=16)))
    await admin.handle(add("tcp", "eth4"))
    assert [record.getMessage() for record in caplog.records if record.name == "ulnet"] == [
        "10.1.0.1@tcp asks for peer_credits 16 (the net has 4): the first NI of a net sets it for all, "
        "delete the net to change it"
    ]


def test_settings_are_those_of_the_core() -> None:
    own = {
        name: one for name, one in SETTINGS.items() if not (one.added or one.name or name == "lnd_timeout")
    }
    assert {name: one.default for name, one in own.items()} == asdict(GlobalSettings())
    assert ROUTER.keys() == asdict(RoutingSettings()).keys()
    assert tuple(BUFFERS) == model.BuffersSet.__struct_fields__


def test_tunables_are_described_once() -> None:
    defaults = {**asdict(NetTunables()), **asdict(LndTunables()), "timeout": DEFAULT_TIMEOUT}
    of_host = {"peercredits_hiw": None, "concurrent_sends": None}
    assert {name: one.default for name, one in TUNABLES.items()} == {
        **defaults,
        "conns_per_peer": None,
        **of_host,
    }
    assert {name for name, one in TUNABLES.items() if one.driver} == asdict(LndTunables()).keys()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("tos", "tunables.py"),
        ("conns_per_peer", "tunables.py"),
        ("recovery_limit", "settings.py"),
        ("avoid_asym_router_failure", "settings.py"),
    ],
)
def test_what_is_configured_is_named_where_it_is_described(name: str, file: str) -> None:
    rooms = ("cli", "dlc", "node")
    source = Path(ulnet.__file__).parent
    files = [path for room in rooms for path in (source / room).rglob("*.py")]
    naming = {path.name for path in files if re.search(rf"\b{name}\b", path.read_text())}
    assert naming == {file}


async def test_a_tunable_that_there_is_not_is_refused(admin: Admin) -> None:
    with pytest.raises(
        DlcError, match="'colour' is no tunable of an NI: known are peer_timeout, "
    ) as refused:
        await admin.handle(add("tcp", "eth0", tunables={"colour": 1}))
    assert refused.value.errno == errno.EINVAL


async def test_a_nets_tunables_are_those_of_its_first_ni(admin: Admin) -> None:
    await admin.handle(add("tcp", "eth0", tunables=Tunables(credits=100)))
    await admin.handle(add("tcp", "eth1", tunables=Tunables(credits=200)))
    (net,) = await shown(admin, 1, "tcp")
    assert [ni["tunables"]["credits"] for ni in net["local NI(s)"]] == [100, 100]


@pytest.mark.requirement("cfg-025", "cfg-035")
@pytest.mark.parametrize("cpts", [None, "[0]", "0", "*"])
async def test_cpts(admin: Admin, cpts: str | None) -> None:
    await admin.handle(add("tcp", "eth0", cpts=cpts))
    await admin.handle(add("tcp", "eth1[0]"))
    (net,) = await shown(admin, 1, "tcp")
    assert [ni["CPT"] for ni in net["local NI(s)"]] == ["[0]", "[0]"]


async def test_commands_on_a_node_that_is_down_say_how_to_configure_it(admin: Admin) -> None:
    await admin.handle(model.LnetUnconfigure())
    await admin.handle(model.LnetUnconfigure())
    requests: list[tuple[model.Request, int]] = [
        (add("tcp", "eth0"), errno.ESHUTDOWN),
        (model.NetShow(), errno.ENETDOWN),
        (model.PeerAdd(primary="10.0.0.2@tcp"), errno.ENETDOWN),
        (model.PeerShow(), errno.ENETDOWN),
        (model.Ping(["10.0.0.2@tcp"]), errno.ENETDOWN),
        (model.StatsShow(), errno.ENETDOWN),
        (model.GlobalShow(), errno.ENETDOWN),
        (model.Export(), errno.ENETDOWN),
    ]
    for request, number in requests:
        with pytest.raises(DlcError, match="run 'lnetctl lnet configure' first") as down:
            await admin.handle(request)
        assert down.value.errno == number
    await admin.handle(model.LnetConfigure())
    await admin.handle(model.LnetConfigure())
    assert nids(await shown(admin)) == {"lo": ["0@lo"]}


def test_a_request_of_many_ranges_is_refused_at_the_first_too_many() -> None:
    """It expanded all of them first: 256,000 NIDs kept the daemon busy for 2.4 s."""
    looked_at: list[str] = []

    def ranges() -> Iterator[str]:
        for octet in range(250):
            looked_at.append(f"10.0.{octet}.[0-255]@tcp,10.1.{octet}.[0-255]@tcp")
            yield looked_at[-1]

    with pytest.raises(LNetError, match="more than the 1024 of one request"):
        read_nids(ranges())
    assert len(looked_at) == 3


def test_nids_that_are_named_again_count_too() -> None:
    looked_at: list[str] = []

    def again() -> Iterator[str]:
        for _ in range(60_000):
            looked_at.append("10.0.0.1@tcp")
            yield looked_at[-1]

    with pytest.raises(LNetError, match="1025 NIDs are more than the 1024 of one request"):
        read_nids(again())
    assert len(looked_at) == 1025


LONG = [f"10.0.0.1@tcp{',' * 38_988}"] * 2  # 78,000 characters


@pytest.mark.parametrize(
    ("asked", "number"),
    [
        (model.CptOfNids(LONG), errno.EINVAL),
        (model.Distances(LONG), errno.EINVAL),
        (model.PeerShow(LONG), errno.EINVAL),
        (model.RouteShow(gateway="".join(LONG)), errno.EINVAL),
        (model.PeerAdd(nids=LONG), errno.EINVAL),
        (model.PeerRefresh(LONG), errno.ERANGE),
    ],
)
async def test_texts_of_nids_that_are_too_long_are_refused_before_they_are_read(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, asked: model.Request, number: int
) -> None:
    """One request of 1 MiB by a reader kept the daemon busy for minutes."""
    read: list[str] = []
    one = NidList.parse("10.0.0.1@tcp")

    def parse(text: str) -> NidList:
        read.append(text)
        return one

    monkeypatch.setattr(NidList, "parse", parse)
    with pytest.raises(DlcError, match="78000 characters of NIDs are more than the 65536 of one") as refused:
        await admin.handle(asked)
    assert refused.value.errno == number
    assert len(read) < 2  # not the one that is too much


def test_a_text_with_too_many_nids_is_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NidList, "parse", None)
    with pytest.raises(LNetError, match="1025 NIDs are more than the 1024 of one request: split it"):
        read_nids(["10.0.0.1@tcp," * 1025])


async def test_too_many_nets_are_refused_before_they_are_looked_for(admin: Admin) -> None:
    with pytest.raises(
        DlcError, match="1025 nets are more than the 1024 of one request: split it"
    ) as refused:
        await admin.handle(model.NetShow(net=",".join(["lo"] * 1025)))
    assert refused.value.errno == errno.ERANGE
    await admin.handle(model.NetShow(net=",".join(["lo"] * 1024)))


@pytest.mark.parametrize("verb", ["add", "del"])
@pytest.mark.parametrize("name", ["eth0", "eth0:1"])
async def test_too_many_interfaces_are_refused_before_the_first_is_read(
    admin: Admin, verb: str, name: str
) -> None:
    await admin.handle(add("tcp", "eth0"))
    kind = model.NetAdd if verb == "add" else model.NetDel
    request = kind(net="tcp", interfaces=[name] * 1025)
    told = "1025 interfaces are more than the 1024 of one request: split it"
    assert await refused(admin, request) == (errno.ERANGE, told)
