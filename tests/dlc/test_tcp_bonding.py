"""`use_tcp_bonding`: one NI over all interfaces of a tcp net, for nets configured while it is on."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import yaml

from ulnet.dlc import calls, model
from ulnet.dlc.config import Verb, read_config
from ulnet.dlc.differences import compare, meaning_of
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.importing import importing
from ulnet.dlc.model import GlobalSet, NetAdd, NetDel, NetShow
from ulnet.dlc.modprobe import read_modprobe
from ulnet.dlc.protocol import HEADER_SIZE, Answer, decode_reply, encode_reply
from ulnet.dlc.writing import document_of
from ulnet.dlc.yaml_out import emit_document
from ulnet.host import Address, Link
from ulnet.node.admin import Admin
from ulnet.node.dry_run import dry_run

pytestmark = pytest.mark.requirement("HLD-bonding-tcp")

LINKS = [
    Link("lo", 1, addresses=(Address("127.0.0.1", 8),), loopback=True),
    Link("eth0", 2, addresses=(Address("10.0.0.1", 24),)),
    Link("eth1", 3, addresses=(Address("10.1.0.1", 24), Address("10.1.0.2", 24))),
    Link("eth2", 4, addresses=(Address("10.2.0.1", 24),)),
]
ON = GlobalSet({"use_tcp_bonding": 1})
OFF = GlobalSet({"use_tcp_bonding": 0})
BOTH = NetAdd("tcp", ["eth0", "eth1"])


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with dry_run(LINKS, cpts=2) as admin:
        yield admin


async def nets(admin: Admin, verbosity: int = 1) -> list[tuple[str, list[str], object]]:
    """NID, interfaces and `tcp bonding` of each NI."""
    answer = await admin.handle(NetShow(verbosity=verbosity))
    document = yaml.safe_load(emit_document(msgspec.to_builtins(answer.document, str_keys=False)))
    return [
        (ni["nid"], list(ni.get("interfaces", {}).values()), ni.get("tcp bonding"))
        for net in document["net"][1:]
        for ni in net["local NI(s)"]
    ]


async def refusal(admin: Admin, request: model.Request) -> tuple[int, str]:
    before = await nets(admin)
    with pytest.raises(DlcError) as refused:
        await admin.handle(request)
    assert await nets(admin) == before
    return -refused.value.item.errno, refused.value.item.descr


async def imported(admin: Admin, text: str, verb: Verb = "add") -> list[ErrorItem]:
    work = importing(read_config(text, verb))
    try:
        request = next(work)
        while True:
            try:
                answer = await admin.handle(request)
            except DlcError as refused:
                answer = Answer(errors=[refused.item])
            request = work.send(decode_reply(encode_reply(answer)[HEADER_SIZE:]))
    except StopIteration as end:
        errors: list[ErrorItem] = end.value[1]
        return errors


async def exported(admin: Admin, backup: bool) -> Any:
    answer = await admin.handle(model.Export(backup=backup))
    return emit_document(msgspec.to_builtins(answer.document, str_keys=False))


ONE_NI = [("10.0.0.1@tcp", ["eth0", "eth1"], 1)]


async def test_it_makes_one_ni_of_all_interfaces(admin: Admin) -> None:
    await admin.handle(ON)
    await admin.handle(BOTH)
    assert await nets(admin) == ONE_NI
    assert await nets(admin, 0) == ONE_NI


async def test_nets_that_exist_stay_what_they_are(admin: Admin) -> None:
    await admin.handle(NetAdd("tcp", ["eth0"]))
    await admin.handle(ON)
    await admin.handle(NetAdd("tcp", ["eth1", "eth2"]))
    await admin.handle(NetAdd("tcp1", ["eth0", "eth1"]))
    await admin.handle(OFF)
    await admin.handle(NetAdd("tcp2", ["eth0", "eth1"]))
    assert await nets(admin) == [
        ("10.0.0.1@tcp", ["eth0"], None),
        ("10.1.0.1@tcp", ["eth1"], None),
        ("10.2.0.1@tcp", ["eth2"], None),
        ("10.0.0.1@tcp1", ["eth0", "eth1"], 1),
        ("10.0.0.1@tcp2", ["eth0"], None),
        ("10.1.0.1@tcp2", ["eth1"], None),
    ]


@pytest.mark.parametrize("interfaces", [["eth0"], ["eth0", "eth1"]])
@pytest.mark.parametrize("still_on", [True, False])
async def test_such_a_net_takes_no_other_interface(
    admin: Admin, interfaces: list[str], still_on: bool
) -> None:
    await admin.handle(ON)
    await admin.handle(NetAdd("tcp", interfaces))
    await admin.handle(ON if still_on else OFF)
    for request in (NetAdd("tcp", ["eth2"]), NetAdd(nids=["10.2.0.1@tcp"])):
        number, text = await refusal(admin, request)
        assert number == errno.EPERM
        assert text.startswith(
            "net tcp was configured with use_tcp_bonding: it is one NI, 10.0.0.1@tcp, and takes no other; "
            "to change its interfaces"
        )


async def test_a_net_without_ni_is_forgotten(admin: Admin) -> None:
    await admin.handle(ON)
    await admin.handle(BOTH)
    await admin.handle(NetDel("tcp"))
    await admin.handle(OFF)
    await admin.handle(BOTH)
    assert len(await nets(admin)) == 2


async def test_its_interfaces_go_together(admin: Admin) -> None:
    await admin.handle(ON)
    await admin.handle(BOTH)
    number, text = await refusal(admin, NetDel("tcp", ["eth0"]))
    assert number == errno.EPERM and "one NI over eth0, eth1; name all of them" in text
    number, text = await refusal(admin, NetDel("tcp", ["eth0", "eth2"]))
    assert number == errno.ENODEV and text == "interface eth2 is not in net tcp: it has eth0, eth1"
    await admin.handle(NetDel("tcp", ["eth1", "eth0"]))
    assert await nets(admin) == []


async def test_nids_cannot_tell_of_several_interfaces(admin: Admin) -> None:
    await admin.handle(ON)
    number, text = await refusal(admin, NetAdd(nids=["10.0.0.1@tcp", "10.1.0.1@tcp"]))
    assert number == errno.EINVAL and "name these with --net and --if" in text
    await admin.handle(NetAdd(nids=["10.0.0.1@tcp", "10.1.0.1@tcp1"]))  # a net each
    assert [bonding for _, _, bonding in await nets(admin)] == [1, 1]


async def test_it_is_for_tcp_nets(admin: Admin) -> None:
    await admin.handle(ON)
    await admin.handle(NetAdd("o2ib", ["eth0", "eth1"]))
    assert [bonding for _, _, bonding in await nets(admin)] == [None, None]
    number, text = await refusal(admin, NetAdd("o2ib1", ["eth0"], bonding=True))
    assert number == errno.EINVAL and "only tcp nets" in text


async def test_a_value_that_it_has_not(admin: Admin) -> None:
    number, text = await refusal(admin, GlobalSet({"use_tcp_bonding": 2}))
    assert (number, text) == (errno.EINVAL, "use_tcp_bonding 2 is out of range: use 0 to 1")


async def test_the_library_has_it(admin: Admin) -> None:
    await admin.handle(calls.set_tcp_bonding(True).request)
    await admin.handle(calls.add_net("tcp", ["eth0", "eth1"]).request)
    await admin.handle(calls.set_tcp_bonding(False).request)
    await admin.handle(calls.add_net("tcp1", ["eth0", "eth1"], bonding=True).request)
    assert [bonding for _, _, bonding in await nets(admin)] == [1, 1]


async def test_cpts_are_those_of_all_its_interfaces(admin: Admin) -> None:
    await admin.handle(ON)
    await admin.handle(NetAdd("tcp", ["eth0[1]", "eth1[0]"]))
    await admin.handle(NetAdd("tcp1", ["eth0[1]", "eth1[1]"]))
    assert [ni.cpts for ni in admin.node.core.nis.values() if str(ni.nid) != "0@lo"] == [(0, 1), (1,)]


async def test_one_interface_named_twice_is_refused(admin: Admin) -> None:
    await admin.handle(ON)
    number, _ = await refusal(admin, NetAdd("tcp", ["eth0", "eth0"]))
    assert number == errno.EEXIST


# Files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backup", [True, False])
@pytest.mark.parametrize("on", [True, False], ids=["on at last", "off at last"])
async def test_what_export_writes_import_restores_whatever_the_setting(
    admin: Admin, backup: bool, on: bool
) -> None:
    await admin.handle(NetAdd("tcp2", ["eth0", "eth1"]))
    await admin.handle(ON)
    await admin.handle(BOTH)
    await admin.handle(ON if on else OFF)
    text = await exported(admin, backup)
    for setting in (ON, OFF) if on else (OFF,):  # without a word in the file the node's setting counts
        async with dry_run(LINKS, cpts=2) as fresh:
            await fresh.handle(setting)
            assert await imported(fresh, text) == []
            assert [one[:2] for one in await nets(fresh)] == [one[:2] for one in await nets(admin)]
            assert fresh.node.core.settings.use_tcp_bonding == on


async def test_import_shows_and_deletes_them(admin: Admin) -> None:
    text = "net: [{net type: tcp, local NI(s): [{interfaces: {0: eth0, 1: eth1}, tcp bonding: 1}]}]"
    assert await imported(admin, text) == []
    assert await nets(admin) == ONE_NI
    assert await imported(admin, text, "del") == []
    assert await nets(admin) == []


async def test_a_file_of_an_older_release_says_that_there_is_none(admin: Admin) -> None:
    text = "net: [{net type: tcp, local NI(s): [{interfaces: {0: eth0}, dev cpt: 0, tcp bonding: 0}]}]"
    assert await imported(admin, text) == []
    assert await nets(admin) == [("10.0.0.1@tcp", ["eth0"], None)]
    (error,) = await imported(admin, text.replace("bonding: 0", "bonding: 7"))
    assert error.descr == "line 1: 'tcp bonding' 7 is neither 0 nor 1: write one of them"


async def test_ip2nets_make_one_ni_of_all_that_match(admin: Admin) -> None:
    text = "use_tcp_bonding: 1\nip2nets: [{net-spec: tcp, ip-range: {0: '10.[0-1].*.*'}}]\n"
    assert await imported(admin, text) == []
    assert await nets(admin) == ONE_NI


@pytest.mark.parametrize("words", ["networks=tcp(eth0,eth1)", 'ip2nets="tcp(eth0,eth1) 10.*.*.*"'])
async def test_module_parameters_and_the_yaml_that_they_become(admin: Admin, words: str) -> None:
    found = read_modprobe(f"options lnet {words} use_tcp_bonding=1\n")
    assert found.notes == []
    text = yaml.safe_dump(document_of(found.requests), sort_keys=False)
    assert text.startswith("use_tcp_bonding: 1\n")
    assert await imported(admin, text) == []
    assert await nets(admin) == ONE_NI
    async with dry_run(LINKS) as other:
        for request in found.requests:
            await other.handle(request)
        assert await nets(other) == ONE_NI


def test_a_difference_between_one_ni_and_two_is_told() -> None:
    net = "net: [{net type: tcp, local NI(s): [{interfaces: {0: eth0, 1: eth1}%s}]}]"
    one = meaning_of(step.request for step in read_config(net % ", tcp bonding: 1").steps)
    two = meaning_of(step.request for step in read_config(net % "").steps)
    by_setting = meaning_of(step.request for step in read_config("use_tcp_bonding: 1\n" + net % "").steps)
    assert [str(change) for change in compare(one, two)] == [
        "- net tcp NI eth0 eth1: tcp bonding 1",
        "+ net tcp NI eth0",
        "+ net tcp NI eth1",
    ]
    assert [change.thing for change in compare(one, by_setting)] == ["setting use_tcp_bonding"]
