"""Bonding NIs configured: strings, files, requests; what is refused, and that it changes nothing."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.configurations import Driver
from ulnet.dlc import model
from ulnet.dlc.config import read_config
from ulnet.dlc.differences import compare, meaning_of
from ulnet.dlc.documents import ExportDocument
from ulnet.dlc.errors import DlcError
from ulnet.dlc.legacy import LegacyError, read_ip2nets, read_networks
from ulnet.dlc.model_bond import BondAdd, BondFailover, BondOptions, BondSet, BondSwitch
from ulnet.dlc.writing import document_of
from ulnet.dlc.yaml_out import emit_document
from ulnet.host import Address, Link, NumaNode, Topology
from ulnet.node import Node
from ulnet.node.admin import Admin

# Strings -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BOND-config")
def test_the_strings_of_the_design() -> None:
    networks = "tcp0(eth0), tcp1(eth1), bond0(*@tcp0, *@tcp1, mode=loadbalance)"
    assert [request.net for request in read_networks(networks)] == ["tcp0", "tcp1", "bond"]  # type: ignore[union-attr]
    assert read_networks(networks)[-1] == BondAdd("bond", ["*@tcp0", "*@tcp1"], BondOptions("loadbalance"))
    ip2nets = "tcp0(eth0) 192.168.0.*; tcp1(eth1) 10.1.1.*; bond0(@tcp0, @tcp1) 192.168.0.*"
    rule = read_ip2nets(ip2nets)[-1]
    assert (rule.net, rule.ranges, rule.bond) == (
        "bond",
        ["192.168.0.*"],
        BondAdd("bond", ["@tcp0", "@tcp1"]),
    )
    (bond,) = read_networks("bond0(@o2ib0, @o2ib1, bds=192.168.1.1@o2ib0,10.1.1.1@o2ib1)")
    assert bond == BondAdd(
        "bond", ["@o2ib0", "@o2ib1"], BondOptions(servers=["192.168.1.1@o2ib0", "10.1.1.1@o2ib1"])
    )


def test_all_options_of_a_string() -> None:
    text = "bond2(@tcp, mode=loadbalance, policy=weights, weights=3,1, failback=stay, keepalive=0.5)"
    options = BondOptions("loadbalance", "weights", "stay", [3, 1], None, 0.5)
    assert read_networks(text) == [BondAdd("bond2", ["@tcp"], options)]
    assert read_networks("bond0(@tcp), tcp0(eth0)")[-1] == BondAdd("bond", ["@tcp"])  # slaves come first


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bond0", "net bond names no slave"),
        ("bond0(mode=standby)", "net bond names no slave"),
        ("bond0(@tcp, credits=4)", "net bond: no option is called 'credits': known are mode, policy"),
        ("bond0(@tcp, weights=1,x)", "net bond: weights=1,x: write numbers"),
        ("bond0(@tcp, keepalive=soon)", "net bond: keepalive=soon is no number of seconds"),
        ("bond0(@tcp, mode=standby, @tcp1)", "net bond: '@tcp1' after the options: write slaves before them"),
        ("bondage(@tcp)", "net 'bondage': after bond comes a number"),
    ],
)
def test_what_is_wrong_in_a_string_is_named(text: str, told: str) -> None:
    for read in (read_networks, read_ip2nets):
        with pytest.raises(LegacyError) as wrong:
            read(text)
        assert str(wrong.value).startswith(told)


# Files ---------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["10.0.0.1@tcp", "*@tcp1", "@tcp", "10.1.0.[1-3]@tcp2"])
OPTIONS = st.builds(
    BondOptions,
    st.sampled_from([None, "standby", "loadbalance"]),
    st.sampled_from([None, "dynamic"]),
    st.sampled_from([None, "return", "stay"]),
    st.none() | st.lists(st.integers(1, 99), min_size=1, max_size=3),
    st.none() | st.lists(st.sampled_from(["10.0.0.8@tcp", "10.0.0.9@tcp"]), min_size=1, unique=True),
    st.none() | st.floats(0.1, 60).map(lambda seconds: round(seconds, 3)),
)
ADDS = st.builds(
    BondAdd, st.sampled_from(["bond", "bond3"]), st.lists(WORDS, min_size=1, max_size=3, unique=True), OPTIONS
)


@pytest.mark.requirement("BOND-config")
@given(st.lists(ADDS, max_size=3))
def test_what_is_written_to_a_file_is_read_back(requests: list[BondAdd]) -> None:
    config = read_config(emit_document(document_of(requests)))
    assert not config.errors
    assert [step.request for step in config.steps] == requests


def test_ip2nets_with_bonds_are_written_and_read_back() -> None:
    rules = read_ip2nets("tcp0(eth0) 192.168.0.*; bond0(@tcp0, mode=loadbalance) 192.168.0.*; bond1(@tcp)")
    config = read_config(emit_document(document_of([model.NetMatch(rules)])))
    assert not config.errors
    assert [step.request for step in config.steps] == [model.NetMatch(rules, first_wins=True)]


def test_bonds_of_a_file_come_after_their_slaves() -> None:
    text = """
net:
    - net type: bond0
      local NI(s):
        - slaves:
              0: "*@tcp"
          bond:
              mode: loadbalance
    - net type: tcp
      local NI(s):
        - interfaces:
              0: eth0
"""
    config = read_config(text)
    assert [type(step.request).__name__ for step in config.steps] == ["NetAdd", "BondAdd"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- nid: 10.0.0.1@bond", "has no 'slaves'"),
        ("- slaves: tcp", "'slaves' holds numbered names"),
        ("- slaves: {0: '@tcp'}\n          bond: {color: red}", "invalid key 'color' in bond"),
        ("- slaves: {0: '@tcp'}\n          bond: {weights: 'a,b'}", "weights 'a,b': write numbers"),
        ("- slaves: {0: '@tcp'}\n          bond: {bds: 10.0.0.9@tcp}", "'bds' holds numbered NIDs"),
        ("- slaves: {0: '@tcp'}\n          bond: {keepalive: often}", "'keepalive' is a number of seconds"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text: str, told: str) -> None:
    config = read_config(f"net:\n    - net type: bond0\n      local NI(s):\n        {text}\n")
    assert told in config.errors[0].descr
    assert not config.steps


def test_files_are_compared_by_what_bonds_are_like() -> None:
    old, new = BondAdd("bond", ["@tcp"]), BondAdd("bond", ["@tcp"], BondOptions("loadbalance"))
    (change,) = compare(meaning_of([old]), meaning_of([new]))
    assert (change.field, change.after) == ("mode", "loadbalance")


# Requests ------------------------------------------------------------------------------------------------


LINKS = [Link(f"eth{rail}", rail + 2, addresses=(Address(f"10.{rail}.0.1", 24),)) for rail in range(3)]
NID = "10.0.0.1@bond"


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    """A node with three rails: eth0 on tcp, eth1 on tcp1, eth2 on tcp2."""
    one_cpt = Topology((NumaNode(0, (0,), (10,)),))
    async with Node(topology=one_cpt, drivers=lambda core: [Driver()]) as node:
        admin = Admin(node, host=lambda: LINKS)
        for rail, net in enumerate(("tcp", "tcp1", "tcp2")):
            await admin.handle(model.NetAdd(net=net, interfaces=[f"eth{rail}"]))
        yield admin


async def shown(admin: Admin, verbosity: int = 1, net: str | None = "bond") -> list[Any]:
    document = (await admin.handle(model.NetShow(net=net, verbosity=verbosity))).document
    nets: list[Any] = msgspec.to_builtins(document, str_keys=True)["net"]
    return nets


async def the_bond(admin: Admin) -> dict[str, Any]:
    ni = (await shown(admin))[0]["local NI(s)"][0]
    bond: dict[str, Any] = ni["bond"]
    return bond


def add(*slaves: str, net: str = "bond0", **options: Any) -> BondAdd:
    return BondAdd(net, list(slaves) or ["*@tcp", "*@tcp1"], BondOptions(**options))


async def refused(admin: Admin, request: model.Request) -> tuple[int, str]:
    before = await shown(admin, net=None)
    with pytest.raises(DlcError) as caught:
        await admin.handle(request)
    assert await shown(admin, net=None) == before
    return caught.value.errno, caught.value.descr


@pytest.mark.requirement("BOND-ni", "BOND-config")
async def test_a_bond_has_the_address_of_its_first_slave_and_no_credits(admin: Admin) -> None:
    await admin.handle(add("10.1.0.1@tcp1", "*@tcp", mode="loadbalance", weights=[1, 4]))
    ((net,), (ni,)) = (await shown(admin), (await shown(admin))[0]["local NI(s)"])
    assert (net["net type"], ni["nid"], ni["status"]) == ("bond", "10.1.0.1@bond", "up")
    assert ni["slaves"] == {"0": "10.1.0.1@tcp1", "1": "10.0.0.1@tcp"}
    assert ni["tunables"]["credits"] == ni["tunables"]["peer_credits"] == 0
    bond = ni["bond"]
    assert (bond["mode"], bond["policy"], bond["weights"]) == ("loadbalance", "weights", "1,4")
    assert bond["slave_status"] == {"10.1.0.1@tcp1": "up", "10.0.0.1@tcp": "up"}
    assert bond["incarnation"] > 0


@pytest.mark.requirement("BOND-config")
async def test_mode_policy_weights_and_slaves_change_while_it_runs(admin: Admin) -> None:
    await admin.handle(add(failback="stay"))
    first = await the_bond(admin)
    assert (first["mode"], first["failback"], first["active"]) == ("standby", "stay", "10.0.0.1@tcp")
    await admin.handle(BondSet(NID, None, BondOptions("loadbalance")))
    assert (await the_bond(admin))["policy"] == "roundrobin"
    await admin.handle(BondSet(NID, None, BondOptions(policy="weights", weights=[3, 1])))
    await admin.handle(BondSet(NID, ["@tcp", "@tcp2", "@tcp1"], BondOptions(policy="dynamic")))
    last = await the_bond(admin)
    assert (last["policy"], list(last["slave_status"])) == (
        "dynamic",
        ["10.0.0.1@tcp", "10.2.0.1@tcp2", "10.1.0.1@tcp1"],
    )
    assert last["incarnation"] == first["incarnation"] + 3  # grew with each change
    await admin.handle(BondSet(NID, ["@tcp"], BondOptions("standby")))
    assert (await the_bond(admin))["failback"] == "stay"


@pytest.mark.requirement("BOND-util", "BOND-config")
async def test_slaves_are_switched_off_and_failed_over_by_command(admin: Admin) -> None:
    await admin.handle(add("@tcp", "@tcp1", "@tcp2"))
    active = [(await the_bond(admin))["active"]]
    for request in (
        BondFailover(NID),
        BondFailover(NID, "10.2.0.1@tcp2"),
        BondSwitch(NID, "10.2.0.1@tcp2", on=False),
        BondSwitch(NID, "10.0.0.1@tcp", on=False),
        BondSwitch(NID, "10.0.0.1@tcp", on=True),
    ):
        await admin.handle(request)
        active.append((await the_bond(admin))["active"])
    assert [nid.partition("@")[2] for nid in active] == ["tcp", "tcp1", "tcp2", "tcp", "tcp1", "tcp"]
    assert (await the_bond(admin))["slave_status"]["10.2.0.1@tcp2"] == "off"
    await admin.handle(BondSet(NID, ["@tcp", "@tcp2"], BondOptions()))
    assert (await the_bond(admin))["slave_status"] == {"10.0.0.1@tcp": "up", "10.2.0.1@tcp2": "off"}


@pytest.mark.requirement("BOND-ni", "BOND-config")
@pytest.mark.parametrize(
    ("request_", "number", "words"),
    [
        (add(net="bond1"), None, ""),  # a slave may serve one NI a bonding net
        (add("@tcp2", "@tcp1"), errno.EEXIST, "10.1.0.1@tcp1 is a slave of 10.0.0.1@bond already"),
        (add("@tcp2"), errno.EINVAL, "first slave 10.2.0.1@tcp2: all first slaves of bond are on one net"),
        (add("10.0.0.1@bond", net="bond1"), errno.EINVAL, "is a bonding NI, which cannot be a slave"),
        (add("0@lo", net="bond1"), errno.EINVAL, "is the loopback NI, which cannot be a slave"),
        (add("@tcp9", net="bond1"), errno.ENOENT, "slave @tcp9: no NI of this node is meant"),
        (add(net="banana"), errno.ENOENT, "'banana' has no known type"),
        (add(net="tcp5"), errno.EINVAL, "net tcp5 is no bonding net"),
        (add(net="bond1", failback="never"), errno.EINVAL, "failback 'never' does not exist"),
        (model.NetAdd(net="bond1", interfaces=["eth0"]), errno.EINVAL, "net bond1 needs slaves"),
        (model.NetDel(net="tcp"), errno.EBUSY, "10.0.0.1@tcp is a slave of 10.0.0.1@bond: delete that first"),
        (BondSet("10.0.0.9@bond"), errno.ENOENT, "10.0.0.9@bond is no bonding NI of this node: it has 10.0"),
        (BondSet(NID, ["@tcp1"]), errno.EINVAL, "10.0.0.1@bond has the address of its first slave"),
        (
            BondSwitch(NID, "10.2.0.1@tcp2", on=False),
            errno.ENOENT,
            "10.2.0.1@tcp2 is no slave of 10.0.0.1@bo",
        ),
        (BondFailover(NID, "10.2.0.1@tcp2"), errno.ENOENT, "10.2.0.1@tcp2 is no slave"),
    ],
)
async def test_what_cannot_be_is_refused(
    admin: Admin, request_: model.Request, number: int | None, words: str
) -> None:
    await admin.handle(add())
    if number is None:
        await admin.handle(request_)
        return
    found, told = await refused(admin, request_)
    assert words in told
    assert found == number


async def test_a_net_with_a_slave_is_deleted_whole_or_not_at_all(admin: Admin) -> None:
    await admin.handle(model.NetAdd(net="tcp2", interfaces=["eth1"]))
    await admin.handle(add("10.1.0.1@tcp2", "@tcp"))
    assert (await refused(admin, model.NetDel(net="tcp2")))[0] == errno.EBUSY
    number, told = await refused(admin, model.NetDel(nids=["10.1.0.1@tcp2", "10.1.0.1@bond"]))
    assert number == errno.EBUSY
    assert "10.1.0.1@bond and slaves of it in one request" in told
    await admin.handle(model.NetDel(net="bond"))
    await admin.handle(model.NetDel(net="tcp2"))


async def test_the_last_slave_stays_on_and_balanced_load_has_no_active_slave(admin: Admin) -> None:
    await admin.handle(add(mode="loadbalance"))
    assert (await refused(admin, BondFailover(NID)))[0] == errno.EINVAL
    await admin.handle(BondSwitch(NID, "10.0.0.1@tcp", on=False))
    number, told = await refused(admin, BondSwitch(NID, "10.1.0.1@tcp1", on=False))
    assert number == errno.EBUSY
    assert "the only slave of 10.0.0.1@bond that is switched on" in told
    await admin.handle(BondSet(NID, None, BondOptions("standby")))
    assert (await refused(admin, BondFailover(NID)))[0] == errno.EBUSY


@pytest.mark.requirement("BOND-config")
@pytest.mark.parametrize("backup", [True, False])
async def test_what_export_writes_import_restores(admin: Admin, backup: bool) -> None:
    await admin.handle(
        add("@tcp1", "@tcp", mode="loadbalance", weights=[2, 1], servers=["10.9.0.1@tcp"], keepalive=0.5)
    )
    before = await shown(admin)
    document = (await admin.handle(model.Export(backup=backup))).document
    assert isinstance(document, ExportDocument)
    text = emit_document(msgspec.to_builtins(document, str_keys=True))
    await admin.handle(model.NetDel(net="bond"))
    config = read_config(text)
    assert not config.errors
    bonds = [step for step in config.steps if isinstance(step.request, BondAdd)]
    assert not await admin.apply(bonds)
    after = await shown(admin)
    for one in (before, after):
        bond = one[0]["local NI(s)"][0]["bond"]
        for state in ("incarnation", "server_status", "lookups", "keepalives"):
            del bond[state]
    assert after == before


async def test_a_file_deletes_bonds_by_nid_or_net(admin: Admin) -> None:
    for nid in ("", "- nid: 10.0.0.1@bond\n          "):
        await admin.handle(add())
        slaves = "slaves: {0: '@tcp'}" if nid else "- slaves: {0: '@tcp'}"
        text = f"net:\n    - net type: bond0\n      local NI(s):\n        {nid}{slaves}\n"
        config = read_config(text, "del")
        assert not config.errors
        assert not await admin.apply(config.steps)
        assert "bond" not in {net["net type"] for net in await shown(admin, net=None)}


async def test_ip2nets_add_bonds_where_the_host_is_meant(admin: Admin) -> None:
    rules = read_ip2nets("bond0(@tcp, @tcp1) 10.0.*.*; bond1(@tcp1) 192.168.*.*")
    assert not (await admin.handle(model.NetMatch(rules, first_wins=True))).errors
    assert [net["net type"] for net in await shown(admin, net=None)] == ["lo", "tcp", "tcp1", "tcp2", "bond"]
    assert not (await admin.handle(model.NetMatch(rules, delete=True))).errors
    assert [net["net type"] for net in await shown(admin, net=None)] == ["lo", "tcp", "tcp1", "tcp2"]
