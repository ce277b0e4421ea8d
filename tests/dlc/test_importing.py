"""`import` of files on a node: adds, deletes, shows, refreshes; item by item, and nothing half done."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.configurations import LINKS, Driver, configurations, content, do, done, exported, new_node, still
from support.examples import examples
from ulnet.dlc import model
from ulnet.dlc.config import Verb, read_config
from ulnet.dlc.model import Request
from ulnet.dlc.settings import SETTINGS
from ulnet.dlc.yaml_out import emit_document
from ulnet.node.admin import Admin
from ulnet.node.admin.addition import KeptSettings


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
async def admin(driver: Driver) -> AsyncIterator[Admin]:
    async with new_node(driver) as node:
        yield Admin(node, host=lambda: LINKS, additions=[KeptSettings()])


async def refused(admin: Admin, text: str, verb: Verb = "add") -> list[tuple[str, int, str]]:
    _, errors = await do(admin, text, verb)
    assert all(item.verb == verb for item in errors)
    return [(item.entity, item.errno, item.descr) for item in errors]


async def document(admin: Admin, request: Request) -> Any:
    answer = await admin.handle(request)
    return yaml.safe_load(emit_document(msgspec.to_builtins(answer.document, str_keys=False)))


async def nids(admin: Admin) -> list[str]:
    return [str(nid) for nid in admin.node.core.nis if str(nid) != "0@lo"]


async def peers(admin: Admin) -> dict[str, list[str]]:
    shown = await document(admin, model.PeerShow())
    return {
        peer["primary nid"]: [ni["nid"] for ni in peer["peer ni"]] for peer in (shown or {}).get("peer", [])
    }


# Nets --------------------------------------------------------------------------------------------------

NET = """\
net:
    - net type: tcp1
      local NI(s):
        - interfaces:
              0: eth1
          tunables:
              peer_timeout: 100
              peer_credits: 16
              credits: 512
          CPT: "[1]"
"""


@pytest.mark.requirement("cfg-065", "HLD-import", "bck-015")
async def test_a_file_adds_shows_and_deletes(admin: Admin) -> None:
    assert await done(admin, NET) == {}
    ni = admin.node.core.nis[next(nid for nid in admin.node.core.nis if str(nid) == "10.1.0.1@tcp1")]
    assert (ni.tunables.peer_timeout, ni.tunables.peer_credits, ni.tunables.credits) == (100, 16, 512)
    assert ni.cpts == (1,)
    shown = await done(admin, NET, "show")
    assert [net["net type"] for net in shown["net"]] == ["tcp1"]
    assert shown["net"][0]["local NI(s)"][0]["udsp info"] == {"net priority": -1, "nid priority": -1}
    again = await refused(admin, NET)
    assert [(entity, number) for entity, number, _ in again] == [("net", -errno.EEXIST)]
    assert await done(admin, NET, "del") == {}
    assert await nids(admin) == []


@pytest.mark.requirement("bck-015")
async def test_an_older_release_wrote_one_ni_an_item(admin: Admin) -> None:
    older = """\
net:
    - net: lo
      nid: 0@lo
      status: up
    - net: tcp
      nid: 10.0.0.1@tcp
      status: up
      interfaces:
          0: eth0
      lnd tunables:
          peercredits_hiw: 64
          map_on_demand: 0
      tunables:
          peer_credits: 4
          CPT: [0, 1]
      CPT: [0, 1]
max_intf: 200
"""
    await done(admin, older)
    assert await nids(admin) == ["10.0.0.1@tcp"]
    assert admin.node.core.settings.max_interfaces == 200
    await done(admin, older, "del")
    assert await nids(admin) == []
    assert admin.node.core.settings.max_interfaces == 4096


@pytest.mark.requirement("HLD-ip2nets", "HLD-import")
async def test_the_design_document_names_interfaces_or_patterns(admin: Admin) -> None:
    text = "net:\n  - net: tcp\n    pattern: 10.[0-1].*.*\n  - net: tcp1\n    intf: eth0,ib0\n"
    await done(admin, text)
    assert await nids(admin) == ["10.0.0.1@tcp", "10.1.0.1@tcp", "10.0.0.1@tcp1", "10.3.0.1@tcp1"]
    await done(admin, text, "del")
    assert await nids(admin) == []


@pytest.mark.requirement("HLD-import")
async def test_errors_are_told_in_the_order_of_the_file_and_the_rest_is_done(admin: Admin) -> None:
    text = """\
net:
    - net type: tcp
      local NI(s):
        - interfaces: {0: eth9}
        - interfaces: {0: eth0, 1: eth2}
        - interfaces: {0: eth1}
          tunables: {credit: 3}
        - interfaces: {0: ib0}
    - net type: banana
      local NI(s):
        - interfaces: {0: eth0}
---
foo: 1
discovery: 0
"""
    assert await refused(admin, text) == [
        ("import", -42, "line 4: no interface is named 'eth9': this host has lo, eth0, eth1, eth2, ib0"),
        ("net", -100, "line 5: interface eth2 is down: switch it on with `ip link set eth2 up`"),
        ("import", -22, "line 7: invalid key 'credit' in tunables: did you mean 'credits'?"),
        (
            "import",
            -22,
            "line 9: net 'banana' has no known type; write one of lo, tcp, o2ib, gni, gip, ptlf, kfi, efa, "
            "bxi3f, bond, with a number if it is not 0, such as tcp1",
        ),
        (
            "import",
            -22,
            "line 13: invalid key 'foo' in a file: known are net, ip2nets, route, routing, buffers, peer, "
            "peers, global, numa, udsp, selection, access, statistics, ping, discover, "
            f"{', '.join(SETTINGS)}",
        ),
    ]
    assert await nids(admin) == ["10.3.0.1@tcp"]
    assert admin.node.core.settings.discovery == 0


async def test_one_item_is_all_or_nothing(admin: Admin, driver: Driver) -> None:
    driver.broken.add("10.3.0.1@tcp")
    text = "net:\n  - net type: tcp\n    local NI(s):\n      - interfaces: {0: eth0, 1: eth1, 2: ib0}\n"
    assert [number for _, number, _ in await refused(admin, text)] == [-100]
    assert await nids(admin) == []
    rules = "ip2nets:\n  - net-spec: tcp\n    ip-range: {0: '*.*.*.*'}\n"
    assert [number for _, number, _ in await refused(admin, rules)] == [-100]
    assert await nids(admin) == []


async def test_text_that_is_not_yaml_does_nothing(admin: Admin) -> None:
    assert await refused(admin, NET + " bad: [\n", "add") != []
    assert await nids(admin) == []


@pytest.mark.parametrize("section", ["route", "routing", "buffers"])
async def test_sections_that_are_known_and_not_built(admin: Admin, section: str) -> None:
    text = {
        "route": "route:\n  - {net: tcp9, gateway: 10.0.0.9@tcp, hop: 1, type: multi-hop, state: up}\n",
        "routing": "routing:\n  - cpt[0]: {tiny: {npages: 0}}\n  - enable: 1\n",
        "buffers": "buffers: {tiny: 2048, small: -1}\n",
    }[section]
    steps = read_config(text)
    assert steps.errors == [] and len(steps.steps) == 1


# Peers -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("HLD-import", "cfg-070")
async def test_a_peer_given_again_has_the_nids_of_the_new_list(admin: Admin) -> None:
    peer = "peer:\n  - primary nid: 10.9.0.2@tcp\n    peer ni:\n      - nid: 10.9.0.2@tcp\n      - nid: {}\n"
    await done(admin, peer.format("10.9.1.[2-3]@tcp1"))
    assert await peers(admin) == {"10.9.0.2@tcp": ["10.9.0.2@tcp", "10.9.1.2@tcp1", "10.9.1.3@tcp1"]}
    await done(admin, peer.format("10.9.1.[3-4]@tcp1"))
    assert await peers(admin) == {"10.9.0.2@tcp": ["10.9.0.2@tcp", "10.9.1.3@tcp1", "10.9.1.4@tcp1"]}
    await done(admin, "peer:\n  - primary nid: 10.9.0.2@tcp\n")  # says nothing of the others
    assert len((await peers(admin))["10.9.0.2@tcp"]) == 3
    await done(admin, "peer: [{primary nid: 10.9.0.7@tcp}]")
    shown = await done(admin, peer.format("10.9.1.3@tcp1"), "show")
    assert [one["primary nid"] for one in shown["peer"]] == ["10.9.0.2@tcp"]
    assert shown["peer"][0]["peer ni"][1]["udsp info"] == {"net priority": -1, "nid priority": -1}
    await done(admin, peer.format("10.9.1.3@tcp1"), "del")
    assert await peers(admin) == {"10.9.0.7@tcp": ["10.9.0.7@tcp"]}


@pytest.mark.requirement("HLD-import", "cfg-080", "snd-065")
async def test_a_bad_nid_is_told_by_its_index_and_the_others_are_taken(admin: Admin) -> None:
    await done(admin, "peer: [{primary nid: 10.9.0.9@tcp}]")
    await done(admin, "net: [{net type: tcp9, local NI(s): [{interfaces: {0: eth0}}]}]")
    text = """\
peer:
    - primary nid: 10.9.0.2@tcp
      peer ni:
        - nid: 10.9.0.2@tcp
        - nid: 10.9.0.9@tcp
        - nid: banana@nonet
        - nid: 10.9.1.2@tcp1
        - nid: 10.0.0.1@tcp9
"""
    assert [(number, descr[:21]) for _, number, descr in await refused(admin, text)] == [
        (-17, "line 2: NID 1: 10.9.0"),
        (-22, "line 2: NID 2: net 'n"),
        (-98, "line 2: NID 4: 10.0.0"),
    ]
    assert (await peers(admin))["10.9.0.2@tcp"] == ["10.9.0.2@tcp", "10.9.1.2@tcp1"]


@pytest.mark.requirement("HLD-import")
async def test_the_design_document_finds_a_peer_by_any_of_its_nids(admin: Admin) -> None:
    first = "peers:\n  - nids: {0: 10.2.2.3@tcp, 1: 10.4.4.4@tcp1}\n  - nids: {0: 10.7.7.7@tcp}\n"
    await done(admin, first)
    assert await peers(admin) == {
        "10.2.2.3@tcp": ["10.2.2.3@tcp", "10.4.4.4@tcp1"],
        "10.7.7.7@tcp": ["10.7.7.7@tcp"],
    }
    await done(admin, "peers:\n  - nids: {0: 10.2.2.3@tcp, 1: 10.5.5.5@tcp2}\n")
    assert (await peers(admin))["10.2.2.3@tcp"] == ["10.2.2.3@tcp", "10.5.5.5@tcp2"]
    await done(admin, "peers:\n  - nids: {0: 10.6.6.6@tcp, 1: 10.5.5.5@tcp2}\n")  # without its primary
    assert (await peers(admin))["10.6.6.6@tcp"] == ["10.6.6.6@tcp", "10.5.5.5@tcp2"]
    text = "peers:\n  - nids: {0: 10.6.6.6@tcp, 1: 10.1.1.1@tcp, 2: 10.7.7.7@tcp}\n"
    assert [(number, descr[:15]) for _, number, descr in await refused(admin, text, "del")] == [
        (-errno.ENOENT, "line 2: NID 1: "),
        (-errno.ECHILD, "line 2: NID 2: "),
    ]
    assert await peers(admin) == {"10.7.7.7@tcp": ["10.7.7.7@tcp"], "10.5.5.5@tcp2": ["10.5.5.5@tcp2"]}
    await done(admin, "peers:\n  - nids: [10.5.5.5@tcp2]\n", "del")
    assert list(await peers(admin)) == ["10.7.7.7@tcp"]
    some = ", ".join(f"10.8.{net}.8@tcp{net}" for net in range(1, 4))
    await done(admin, f"peers:\n  - nids: [10.7.7.7@tcp, {some}]\n")
    await done(admin, "peers:\n  - nids: [10.8.1.8@tcp1, 10.8.3.8@tcp3]\n", "del")
    assert await peers(admin) == {"10.7.7.7@tcp": ["10.7.7.7@tcp", "10.8.2.8@tcp2"]}


async def test_a_peer_that_is_not_multi_rail_can_be_refreshed_net_by_net(admin: Admin) -> None:
    peer = "peer:\n  - {{primary nid: 10.9.0.2@tcp, Multi-Rail: {}, peer ni: [{{nid: {}}}]}}\n"
    await done(admin, peer.format("False", "10.9.1.2@tcp1"))
    await done(admin, peer.format("False", "10.9.1.3@tcp1"))
    assert await peers(admin) == {"10.9.0.2@tcp": ["10.9.0.2@tcp", "10.9.1.3@tcp1"]}
    assert [number for _, number, _ in await refused(admin, peer.format("False", "10.9.0.3@tcp"))] == [-76]
    assert [number for _, number, _ in await refused(admin, peer.format("True", "10.9.1.3@tcp1"))] == [-1]
    again = "peer: [{primary nid: 10.9.0.2@tcp, Multi-Rail: False, peer ni: [{nid: 10.9.1.9@tcp1}]}]"
    await done(admin, again)
    assert await peers(admin) == {"10.9.0.2@tcp": ["10.9.0.2@tcp", "10.9.1.9@tcp1"]}


# Settings and policies -----------------------------------------------------------------------------------


async def test_settings_are_restored_by_del(admin: Admin) -> None:
    text = "global: {discovery: 0, retry_count: 3, max_interfaces: 100}\nnuma: {range: 7}\n"
    await done(admin, text)
    shown = await done(admin, text, "show")
    assert shown["global"]["retry_count"] == 3 and shown["numa"]["range"] == 7
    await done(admin, text, "del")
    core = admin.node.core.settings
    assert (core.discovery, core.retry_count, core.max_interfaces, core.numa_range) == (1, 3, 4096, 0)


@pytest.mark.requirement("cfg-165")
async def test_policies_are_deleted_by_what_they_match_or_by_their_place(admin: Admin) -> None:
    await done(admin, "udsp:\n" + "".join(f"  - src: tcp{at}\n    priority: {at}\n" for at in range(6)))
    await done(admin, "udsp:\n  - {idx: 0, src: tcp3, priority: 9}\n  - src: tcp1\n", "del")
    shown = await document(admin, model.UdspShow())
    assert [rule["src"] for rule in shown["udsp"]] == ["tcp", "tcp2", "tcp4", "tcp5"]
    await done(admin, "udsp: [{idx: 0}, {idx: 2}]", "del")
    shown = await document(admin, model.UdspShow())
    assert [rule["src"] for rule in shown["udsp"]] == ["tcp2", "tcp5"]
    _, errors = await do(admin, "udsp: [{src: tcp9}]", "del")
    assert [item.errno for item in errors] == [-errno.ENOENT]


# import(export(x)) = x -----------------------------------------------------------------------------------


@pytest.mark.requirement("cfg-170")
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(configuration=configurations(), backup=st.booleans())
async def test_what_export_writes_import_restores(configuration: dict[str, Any], backup: bool) -> None:
    async with new_node() as node, new_node() as other:
        admin, fresh = (
            Admin(node, host=lambda: LINKS, additions=[KeptSettings()]),
            Admin(other, host=lambda: LINKS, additions=[KeptSettings()]),
        )
        await done(admin, yaml.safe_dump(configuration, sort_keys=False))
        text = await exported(admin, backup)
        await done(fresh, text)
        assert content(await exported(fresh, backup)) == content(text)
        assert still(await exported(fresh, False)) == still(await exported(admin, False))


WORDS = (
    *("net:", "peer:", "peers:", "udsp:", "ip2nets:", "global:", "route:", "selection:", "interfaces:"),
    *("nid: ", "nids: ", "net type: tcp", "primary nid: ", "local NI(s):", "ip-range: ", "0: ", "net: tcp"),
    *(
        "eth0",
        "10.9.0.2@tcp",
        "true",
        "-1",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "- ",
        "\n",
        "\n    ",
        "\n      - ",
        "x",
    ),
)


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=st.lists(st.sampled_from(WORDS), max_size=25).map("".join),
    verb=st.sampled_from(["add", "del", "show"]),
)
async def test_whatever_a_file_holds_the_node_answers(text: str, verb: Verb) -> None:
    async with new_node() as node:
        admin = Admin(node, host=lambda: LINKS, additions=[KeptSettings()])
        before = await exported(admin, True)
        _, errors = await do(admin, text, verb)
        if not read_config(text, verb).steps:
            assert await exported(admin, True) == before
        assert all(item.errno and item.descr for item in errors)
