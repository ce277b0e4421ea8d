"""Peers, pings, counters, settings and export of a node, by requests, over real sockets on loopback."""

from __future__ import annotations

import errno
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
import yaml

from support.ports import free_port
from support.transcripts import Step
from ulnet.core.stats import GlobalStats
from ulnet.core.status import HealthStatus
from ulnet.dlc import model
from ulnet.dlc.caller import Caller, Role
from ulnet.dlc.config import read_config
from ulnet.dlc.documents import Statistics
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model_selftest import BatchQuery, Counters, Lst, NodesPing, SessionEnd, SessionNew, SessionShow
from ulnet.dlc.yaml_out import emit_document
from ulnet.lnd.tcp import TcpParams
from ulnet.node import Node
from ulnet.node.admin import Admin
from ulnet.node.admin.table import REQUESTS
from ulnet.selftest.addition import SelftestAddition
from ulnet.wire.ping import Feature


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
async def admin(port: int) -> AsyncIterator[Admin]:
    """A node that is two rails, 127.0.1.1 on tcp and 127.0.1.2 on tcp1."""
    async with Node(tcp=TcpParams(accept="all", accept_port=port)) as node:
        admin = Admin(node)
        await admin.handle(model.NetAdd(nids=["127.0.1.1@tcp", "127.0.1.2@tcp1"]))
        yield admin


@pytest.fixture
async def other(port: int) -> AsyncIterator[Node]:
    async with Node(tcp=TcpParams(accept="all", accept_port=port)) as node:
        node.add_ni("127.0.2.1@tcp")
        node.add_ni("127.0.2.2@tcp1")
        yield node


async def shown(admin: Admin, request: model.Request) -> dict[str, Any]:
    answer = await admin.handle(request)
    assert answer.errors == []
    document: dict[str, Any] = msgspec.to_builtins(answer.document, str_keys=True)
    return document


async def refusal(admin: Admin, request: model.Request) -> tuple[int, str]:
    before = await shown(admin, model.PeerShow(verbosity=3))
    with pytest.raises(DlcError) as caught:
        await admin.handle(request)
    assert await shown(admin, model.PeerShow(verbosity=3)) == before
    return caught.value.errno, caught.value.descr


def keys(value: Any) -> Any:
    """Nested keys in their order, whatever the values."""
    if isinstance(value, dict):
        return [(str(key), keys(item)) for key, item in value.items()]
    return [keys(item) for item in value] if isinstance(value, list) else None


def first(document: dict[str, Any], *path: str) -> dict[str, Any]:
    """The first item of nested lists."""
    for key in path:
        document = document[key][0]
    return document


# Peers -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("cfg-010", "cfg-070", "cfg-075")
async def test_peers_are_added_shown_and_deleted(admin: Admin) -> None:
    await admin.handle(model.PeerAdd(primary="10.0.0.2@tcp", nids=["10.0.[1-2].2@tcp1", "10.0.0.2@tcp"]))
    await admin.handle(model.PeerAdd(nids=["10.0.0.3@tcp", "10.0.1.3@tcp1"], multi_rail=False))
    assert await shown(admin, model.PeerShow()) == {
        "peer": [
            {
                "primary nid": "10.0.0.2@tcp",
                "Multi-Rail": True,
                "peer ni": [
                    {"nid": "10.0.0.2@tcp", "state": "NA"},
                    {"nid": "10.0.1.2@tcp1", "state": "NA"},
                    {"nid": "10.0.2.2@tcp1", "state": "NA"},
                ],
            },
            {
                "primary nid": "10.0.0.3@tcp",
                "Multi-Rail": False,
                "peer ni": [
                    {"nid": "10.0.0.3@tcp", "state": "NA"},
                    {"nid": "10.0.1.3@tcp1", "state": "NA"},
                ],
            },
        ]
    }
    assert await shown(admin, model.PeerList()) == {
        "peer list": [{"nid": "10.0.0.2@tcp"}, {"nid": "10.0.0.3@tcp"}]
    }
    await admin.handle(model.PeerDel(primary="10.0.0.2@tcp", nids=["10.0.[1-2].2@tcp1"]))
    assert len(first(await shown(admin, model.PeerShow(nids=["10.0.0.2@tcp"])), "peer")["peer ni"]) == 1
    await admin.handle(model.PeerDel(primary="10.0.0.2@tcp"))
    assert await shown(admin, model.PeerList()) == {"peer list": [{"nid": "10.0.0.3@tcp"}]}
    await admin.handle(model.PeerDel(nids=["10.0.1.3@tcp1"]))  # of whichever peer has it
    assert [ni["nid"] for ni in first(await shown(admin, model.PeerShow()), "peer")["peer ni"]] == [
        "10.0.0.3@tcp"
    ]
    await admin.handle(model.PeerDel(nids=["10.0.0.3@tcp"]))
    assert await shown(admin, model.PeerList()) == {"peer list": []}


async def test_a_locked_peer_goes_only_by_force(admin: Admin) -> None:
    await admin.handle(model.PeerAdd(primary="10.0.0.2@tcp", nids=["10.0.1.2@tcp1"], lock_primary=True))
    await admin.handle(model.PeerDel(primary="10.0.0.2@tcp"))
    assert first(await shown(admin, model.PeerShow()), "peer")["peer ni"] == [
        {"nid": "10.0.0.2@tcp", "state": "NA"}
    ]
    await admin.handle(model.PeerDel(primary="10.0.0.2@tcp", force=True))
    assert await shown(admin, model.PeerList()) == {"peer list": []}


@pytest.mark.requirement("cfg-080", "snd-065")
async def test_bad_peers_are_refused_with_the_documented_errno(admin: Admin) -> None:
    await admin.handle(model.PeerAdd(primary="10.0.0.2@tcp", nids=["10.0.1.2@tcp1"]))
    await admin.handle(model.PeerAdd(primary="10.0.0.3@tcp", multi_rail=False))
    add, delete = model.PeerAdd, model.PeerDel
    cases: list[tuple[model.Request, int, str]] = [
        (
            add(primary="10.0.1.2@tcp1"),
            errno.EEXIST,
            "10.0.1.2@tcp1 belongs to the configured peer 10.0.0.2@tcp",
        ),
        (
            add(primary="10.0.0.3@tcp", nids=["10.0.1.2@tcp1"], multi_rail=False),
            errno.EEXIST,
            "10.0.1.2@tcp1",
        ),
        (add(primary="10.0.0.2@tcp", multi_rail=False), errno.EPERM, "is configured as Multi-Rail"),
        (
            add(primary="10.0.0.3@tcp", nids=["10.0.0.4@tcp"], multi_rail=False),
            errno.ENOTUNIQ,
            "10.0.0.4@tcp would be its second",
        ),
        (add(), errno.EINVAL, "no peer is named"),
        (add(primary="banana"), errno.EINVAL, "'banana'"),
        (add(primary="<?>"), errno.EINVAL, "cannot name a peer"),
        (add(primary="10.0.0.[5-6]@tcp"), errno.EINVAL, "names several NIDs"),
        (add(primary="10.0.0.5@tcp", nids=["10.0.0.[5-"]), errno.EINVAL, "10.0.0.[5-"),
        (add(primary="10.0.0.5@tcp", nids=["0@lo"]), errno.EINVAL, "cannot name a peer"),
        (delete(), errno.EINVAL, "no peer is named"),
        (delete(primary="10.9.9.9@tcp"), errno.ENOENT, "no peer has the NID 10.9.9.9@tcp"),
        (delete(primary="10.0.1.2@tcp1"), errno.ENODEV, "is not the primary NID of its peer"),
        (delete(primary="10.0.0.2@tcp", nids=["10.9.9.9@tcp"]), errno.ENOENT, "has no NID 10.9.9.9@tcp"),
        (delete(primary="10.0.0.2@tcp", nids=["10.0.0.3@tcp"]), errno.ECHILD, "belongs to peer 10.0.0.3@tcp"),
        (model.PeerShow(nids=["10.9.9.9@tcp"]), errno.ENOENT, "no peer has the NID 10.9.9.9@tcp"),
        (model.PeerShow(nids=["banana"]), errno.EINVAL, "'banana'"),
    ]
    for request, number, words in cases:
        got, text = await refusal(admin, request)
        assert (errno.errorcode[got], words in text) == (errno.errorcode[number], True), (request, text)


async def test_a_configured_peer_has_at_most_128_nids(admin: Admin) -> None:
    await admin.handle(model.PeerAdd(primary="10.0.0.1@tcp", nids=["10.0.0.[1-128]@tcp"]))
    told = "peer 10.0.0.1@tcp would have 129 NIDs: a configured peer has at most 128; leave some out"
    more = model.PeerAdd(primary="10.0.0.1@tcp", nids=["10.0.0.129@tcp"])
    assert await refusal(admin, more) == (errno.ERANGE, told)
    listed = model.PeerRefresh(["10.0.0.[1-129]@tcp"], "10.0.0.1@tcp")
    assert await refusal(admin, listed) == (errno.ERANGE, told)


@pytest.mark.parametrize("kind", [model.PeerRefresh, model.PeerRemove])
@pytest.mark.parametrize(
    "nids",
    [["none at all"] * 1025, ["10.0.0.[1-200]@tcp"] * 6, ["10.0.[0-3].[1-250]@tcp", "10.1.0.[1-25]@tcp"]],
    ids=["names", "again", "ranges"],
)
async def test_too_many_nids_of_a_peer_are_refused_before_the_rest_is_read(
    admin: Admin, kind: type[model.PeerRefresh | model.PeerRemove], nids: list[str]
) -> None:
    before = list(admin.node.core.peers)
    number, text = await refusal(admin, kind(nids, "10.0.0.1@tcp"))
    assert number == errno.ERANGE
    assert "NIDs are more than the 1024 of one request" in text
    assert list(admin.node.core.peers) == before


@pytest.mark.requirement("HLD-dyn")
async def test_what_a_route_needs_stays_until_the_route_is_gone(admin: Admin) -> None:
    await admin.handle(model.RouteAdd("tcp7", "127.0.1.9@tcp"))
    delete, add = model.PeerDel(primary="127.0.1.9@tcp"), model.NetAdd(nids=["127.0.7.1@tcp7"])
    number, text = await refusal(admin, delete)
    assert number == errno.EBUSY
    assert text.startswith("peer 127.0.1.9@tcp cannot be deleted: it is a gateway to net tcp7")
    number, text = await refusal(admin, add)
    assert number == errno.EUSERS
    assert text.startswith("net tcp7 is known as remote, over gateway 127.0.1.9@tcp: delete the routes")
    await admin.handle(model.RouteDel("tcp7", "127.0.1.9@tcp"))
    for request in (delete, add):
        await admin.handle(request)


async def test_a_learned_peer_that_routes_lead_over_is_not_configured(admin: Admin) -> None:
    await admin.handle(model.RouteAdd("tcp7", "127.0.1.9@tcp"))
    for request in (
        model.PeerAdd(primary="127.0.1.9@tcp"),
        model.PeerAdd(primary="127.0.1.8@tcp", nids=["127.0.1.9@tcp"]),
    ):
        number, text = await refusal(admin, request)
        assert number == errno.EBUSY
        assert "127.0.1.9@tcp cannot be configured as a peer's: it is a gateway to net tcp7" in text
    await admin.handle(
        model.PeerRefresh(["127.0.1.9@tcp"], "127.0.1.9@tcp")
    )  # as a backup has it, after routes


async def test_deleting_what_was_discovered_tells_that_it_comes_back(admin: Admin, other: Node) -> None:
    await admin.handle(model.PeerAdd(primary="10.0.0.2@tcp"))
    assert (await admin.handle(model.PeerDel(primary="10.0.0.2@tcp"))).notes == []
    await admin.handle(model.Discover(["127.0.2.1@tcp"]))
    (note,) = (await admin.handle(model.PeerDel(nids=["127.0.2.2@tcp1"]))).notes
    assert note.startswith("peer 127.0.2.1@tcp was discovered, not configured: what it tells of itself")
    (note,) = (await admin.handle(model.PeerDel(primary="127.0.2.1@tcp"))).notes
    assert note.endswith("it comes back with the next message")


async def test_the_nearest_nid_is_one_of_ours_then_direct_then_over_fewer_hops(admin: Admin) -> None:
    node = admin.node
    assert isinstance(node, Node)
    await admin.handle(model.RouteAdd("tcp7", "127.0.1.9@tcp1", hop=2))
    await admin.handle(model.RouteAdd("tcp8", "127.0.1.9@tcp"))
    nids = [
        "10.0.0.9@tcp7",
        "10.0.0.9@tcp8",
        "10.9.9.9@tcp9",
        "127.0.2.2@tcp1",
        "127.0.2.1@tcp",
        "127.0.1.2@tcp1",
    ]
    expected = [
        ("127.0.1.2@tcp1", 0, "127.0.1.2@tcp1"),
        ("127.0.2.1@tcp", 1, "127.0.1.1@tcp"),
        ("127.0.2.2@tcp1", 1, "127.0.1.2@tcp1"),
        ("10.0.0.9@tcp8", 2, "127.0.1.1@tcp"),
        ("10.0.0.9@tcp7", 3, "127.0.1.2@tcp1"),
    ]
    found = (await shown(admin, model.Distances(nids)))["which-nid"]
    assert [(one["nid"], one["hops"], one["source"]) for one in found] == expected
    assert str(node.nearest(nids)) == "127.0.1.2@tcp1"
    assert str(node.nearest(nids[:2])) == "10.0.0.9@tcp8"
    assert node.distance("0@lo").hops == 0
    number, text = await refusal(admin, model.Distances(["10.9.9.9@tcp9"]))
    assert (number, text) == (
        errno.EHOSTUNREACH,
        "10.9.9.9@tcp9 is out of reach: net tcp9 is none of this node's and has no route that is up; "
        "add an NI there, or a route with 'lnetctl route add'",
    )
    assert (await refusal(admin, model.Distances([])))[0] == errno.EINVAL


# Pings -------------------------------------------------------------------------------------------------


async def test_pings_answer_in_the_order_asked_and_failures_follow(admin: Admin, other: Node) -> None:
    wanted = ["127.0.2.1@tcp", "127.0.9.9@tcp", "127.0.2.2@tcp1", "0@lo", "127.0.2.1@tcp7"]
    answer = await admin.handle(model.Ping(wanted))
    nids = [{"nid": "127.0.2.1@tcp"}, {"nid": "127.0.2.2@tcp1"}]
    own = [{"nid": "127.0.1.1@tcp"}, {"nid": "127.0.1.2@tcp1"}]
    assert msgspec.to_builtins(answer.document) == {
        "ping": [
            {"primary nid": "127.0.2.1@tcp", "Multi-Rail": False, "peer_ni": nids},
            {"primary nid": "127.0.2.2@tcp1", "Multi-Rail": False, "peer_ni": nids},  # nobody discovered it
            {"primary nid": "0@lo", "Multi-Rail": False, "peer_ni": own},
        ]
    }
    refused, no_route = answer.errors
    assert (refused.verb, refused.entity, refused.errno) == ("manage", "ping", -errno.ECONNREFUSED)
    assert refused.descr.startswith("failed to ping 127.0.9.9@tcp: Connection refused: nothing listens on")
    assert no_route.errno == -errno.EHOSTUNREACH
    assert no_route.descr == (
        "failed to ping 127.0.2.1@tcp7: No route to host (no route to 127.0.2.1@tcp7: "
        "this node is on lo, tcp, tcp1, and knows no gateway to tcp7; add a net on tcp7 or a route to it: "
        "'lnetctl route add --net tcp7 --gateway NID')"
    )


async def test_failures_of_nids_without_a_net_say_which_one_was_asked(admin: Admin, other: Node) -> None:
    assert (await admin.handle(model.Ping(["127.0.2.1"]))).notes == []
    for request in (model.Ping(["127.0.9.9"]), model.Discover(["127.0.9.9"])):
        answer = await admin.handle(request)
        assert answer.notes == ["127.0.9.9 is read as 127.0.9.9@tcp: where it is on another net, write @NET"]
    assert (await admin.handle(model.Ping(["127.0.9.9@tcp"]))).notes == []


async def test_a_ping_may_name_its_source(admin: Admin, other: Node) -> None:
    assert first(await shown(admin, model.Ping(["127.0.2.2@tcp1"], source="127.0.1.2@tcp1")), "ping")
    (error,) = (await admin.handle(model.Ping(["127.0.2.1@tcp"], source="1.2.3.4@tcp"))).errors
    assert error.errno == -errno.EINVAL
    assert "source NID 1.2.3.4@tcp is not one of this node's" in error.descr


@pytest.mark.parametrize(
    "request_",
    [
        model.Ping(["banana"]),
        model.Ping([""]),
        model.Ping(["127.0.2.1@tcp", "300.1.1.1@tcp"]),
        model.Ping(["127.0.2.1@banana"]),
        model.Ping(["127.0.2.1@tcp"], source="banana"),
        model.Ping(["10.*.*.*@tcp"]),
    ],
)
async def test_a_ping_of_what_is_no_nid_is_refused_before_the_first_is_sent(
    admin: Admin, request_: model.Ping
) -> None:
    number, _ = await refusal(admin, request_)
    assert number == errno.EINVAL


# Counters and settings -----------------------------------------------------------------------------------


@pytest.mark.requirement("dbg-005", "dbg-045", "dbg-080", "dbg-120")
async def test_counters_count_and_are_reset(admin: Admin, other: Node) -> None:
    await shown(admin, model.Ping(["127.0.2.1@tcp"]))
    counters = (await shown(admin, model.StatsShow()))["statistics"]
    assert (counters["send_count"], counters["recv_count"], counters["msgs_alloc"]) == (1, 1, 0)
    assert (counters["send_length"], counters["recv_length"]) == (0, 64)
    await admin.handle(model.StatsReset())
    counters = (await shown(admin, model.StatsShow()))["statistics"]
    assert set(counters.values()) == {0}
    await shown(admin, model.Ping(["127.0.2.1@tcp"]))
    assert (await shown(admin, model.StatsShow()))["statistics"]["send_count"] == 1


@pytest.mark.requirement("dbg-005", "dbg-045")
async def test_each_counter_of_the_node_is_shown_by_its_name(admin: Admin) -> None:
    state, stats = admin.node.core.state, GlobalStats()
    names = [name for name in Statistics.__struct_fields__ if hasattr(stats, name) and name != "drops"]
    assert len(names) == 15
    for number, name in enumerate(names, 100):
        setattr(stats, name, number)
    stats.by_status = list(range(200, 211))
    before, state.stats = state.stats, stats
    counters = (await shown(admin, model.StatsShow()))["statistics"]
    state.stats = before
    assert [counters[name] for name in names] == list(range(100, 115))
    for status in list(HealthStatus)[1:]:
        assert counters[f"{status.name.lower()}_count"] == 200 + status


async def test_settings_are_changed_together_or_not_at_all(admin: Admin) -> None:
    await admin.handle(model.GlobalSet({"retry_count": 5, "transaction_timeout": 100, "lnd_timeout": 7}))
    settings = (await shown(admin, model.GlobalShow()))["global"]
    assert (settings["retry_count"], settings["transaction_timeout"], settings["lnd_timeout"]) == (5, 100, 16)
    bad: list[tuple[dict[str, int], str]] = [
        ({"discovery": 0, "nonsense": 1}, "'nonsense' is no setting"),
        ({"discovery": 0, "response_tracking": 4}, "use 0 to 3"),
        ({"discovery": 0, "transaction_timeout": 5}, "must exceed retry_count"),
        ({"discovery": 0, "health_sensitivity": 0, "retry_count": 1}, "health_sensitivity is 0"),
        ({"discovery": 3}, "use 0 to 2"),
    ]
    for values, words in bad:
        with pytest.raises(DlcError, match=words):
            await admin.handle(model.GlobalSet(values))
        assert (await shown(admin, model.GlobalShow()))["global"] == settings
    await admin.handle(
        model.GlobalSet({"health_sensitivity": 0, "max_interfaces": 5, "recovery_interval": 9})
    )
    settings = (await shown(admin, model.GlobalShow()))["global"]
    assert settings["retry_count"] == 0
    assert settings["max_interfaces"] == 4096
    assert settings["recovery_interval"] == 1


async def test_switching_discovery_off_tells_peers(admin: Admin, other: Node) -> None:
    await admin.handle(model.GlobalSet({"discovery": 0}))
    result = await other.ping("127.0.1.1@tcp")
    assert Feature.DISCOVERY not in result.features
    await admin.handle(model.GlobalSet({"discovery": 1}))
    result = await other.ping("127.0.1.1@tcp")
    assert Feature.DISCOVERY in result.features


# Shapes --------------------------------------------------------------------------------------------------


def example(transcript: list[Step], command: str) -> dict[str, Any]:
    """What a real node printed (the one with a tcp net and a peer)."""
    step = next(s for s in transcript if s.command == command and s.file in ("12_show", "21_after_traffic"))
    document: dict[str, Any] = yaml.safe_load(step.out)
    return document


@pytest.mark.requirement("dbg-010", "dbg-050")
@pytest.mark.parametrize("level", range(5))
async def test_shows_have_the_keys_of_real_nodes_in_their_order(
    admin: Admin, other: Node, transcript: list[Step], level: int
) -> None:
    await shown(admin, model.Ping(["127.0.2.1@tcp"]))
    suffix = f" -v {level}" if level else ""
    real = example(transcript, f"lnetctl net show{suffix}")["net"]
    ours = (await shown(admin, model.NetShow(verbosity=level)))["net"]
    assert keys(ours[0]) == keys(real[0])  # lo
    tcp = real[1]["local NI(s)"][0]
    del tcp["interfaces"]  # an address of loopback has none
    assert keys(ours[1]["local NI(s)"][0]) == keys(tcp)
    real = example(transcript, f"lnetctl peer show{suffix}")["peer"]
    ours = (await shown(admin, model.PeerShow(verbosity=level)))["peer"]
    del real[0]["peer ni"][1:], ours[0]["peer ni"][1:]
    assert keys(ours[0]) == keys(real[0])


@pytest.mark.parametrize(
    ("command", "request_"),
    [("lnetctl stats show", model.StatsShow()), ("lnetctl global show", model.GlobalShow())],
)
async def test_node_wide_shows_have_the_keys_of_real_nodes_in_their_order(
    admin: Admin, transcript: list[Step], command: str, request_: model.Request
) -> None:
    assert keys(await shown(admin, request_)) == keys(example(transcript, command))


async def test_counters_of_one_ping_are_those_of_the_transcript(admin: Admin, other: Node) -> None:
    await shown(admin, model.Ping(["127.0.2.1@tcp"]))
    (net,) = (await shown(admin, model.NetShow(net="tcp", verbosity=2)))["net"]
    ni = net["local NI(s)"][0]
    assert (ni["statistics"]["send_count"], ni["statistics"]["recv_count"]) == (1, 1)
    assert ni["statistics"]["get_rtt_samples"] == 1
    assert ni["sent_stats"] == {"put": 0, "get": 1, "reply": 0, "ack": 0, "hello": 0}
    assert ni["received_stats"] == {"put": 0, "get": 0, "reply": 1, "ack": 0, "hello": 0}
    assert ni["health stats"]["health value"] == 1000


# Export --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("cfg-170")
async def test_a_backup_restores_to_the_same_configuration(admin: Admin) -> None:
    await admin.handle(
        model.NetAdd(
            nids=["127.0.1.[3-4]@tcp2"], tunables=model.Tunables(credits=100, conns_per_peer=3, tos=8)
        )
    )
    await admin.handle(model.PeerAdd(primary="10.0.0.2@tcp", nids=["10.0.1.2@tcp1"]))
    await admin.handle(model.PeerAdd(primary="10.0.0.3@tcp", multi_rail=False))
    await admin.handle(model.GlobalSet({"retry_count": 1, "numa_range": 20}))
    for backup in (True, False):
        text = emit_document(await shown(admin, model.Export(backup=backup)))
        config = read_config(text)
        assert config.errors == []
        before = await shown(admin, model.Export(backup=True))
        await admin.handle(model.LnetUnconfigure())
        await admin.handle(model.LnetConfigure())
        assert await admin.apply(config.steps) == []
        assert await shown(admin, model.Export(backup=True)) == before


@pytest.mark.requirement("cfg-170")
@pytest.mark.parametrize("backup", [True, False])
async def test_what_was_learned_of_peers_is_no_configuration(admin: Admin, other: Node, backup: bool) -> None:
    """A peer that was only heard of must not come back as one without Multi-Rail: it would lose a rail."""
    await admin.handle(model.PeerAdd(primary="10.0.0.2@tcp", nids=["10.0.1.2@tcp1"], lock_primary=True))
    for nid in ("127.0.2.1@tcp", "127.0.9.9@tcp", "127.0.1.1@tcp"):  # another node, a typo, this node
        await admin.handle(model.Ping([nid]))
    text = emit_document(await shown(admin, model.Export(backup=backup)))
    await admin.handle(model.LnetUnconfigure())
    await admin.handle(model.LnetConfigure())
    config = read_config(text)
    assert config.errors == []
    assert await admin.apply(config.steps) == []
    (peer,) = (await shown(admin, model.PeerShow(verbosity=3)))["peer"]
    assert (peer["primary nid"], peer["peer state"]) == ("10.0.0.2@tcp", 0x100009)
    await shown(admin, model.Discover(["127.0.2.1@tcp"]))
    (peer,) = (await shown(admin, model.PeerShow(nids=["127.0.2.1@tcp"])))["peer"]
    assert [ni["nid"] for ni in peer["peer ni"]] == ["127.0.2.1@tcp", "127.0.2.2@tcp1"]


def test_each_request_has_a_row() -> None:
    life = {model.LnetConfigure, model.LnetUnconfigure}  # they start and stop what others need
    added = {Lst}  # by a part above the node
    assert set(get_args(model.Request)) == REQUESTS.keys() | life | added
    shown = {kind for kind, row in REQUESTS.items() if kind.verb == "show" and row.changes}
    assert not shown


@pytest.mark.parametrize(
    "more", [{"health": 5}, {"tunables": {"conns_per_peer": 0}}, {"drain": 1}, {"all": True}]
)
async def test_an_lnd_time_out_is_set_with_nothing_else(admin: Admin, more: dict[str, Any]) -> None:
    with pytest.raises(DlcError, match="give --net alone with it"):
        await admin.handle(model.NetSet(net="tcp", lnd_timeout=20, **more))


async def test_a_request_to_a_part_that_the_node_has_not_is_refused(admin: Admin) -> None:
    with pytest.raises(DlcError, match="no part of this node takes it") as refused:
        await admin.handle(Lst(1, SessionEnd()))
    assert refused.value.errno == errno.EOPNOTSUPP


async def test_configure_all_does_what_the_startup_file_says(admin: Admin) -> None:
    config = read_config("net:\n- net type: tcp5\n  local NI(s):\n  - nid: 127.0.1.5@tcp5\n")
    admin = Admin(admin.node, startup=config.steps)
    await admin.handle(model.LnetUnconfigure())
    await admin.handle(model.LnetConfigure(all=True))
    assert [net["net type"] for net in (await shown(admin, model.NetShow()))["net"]] == ["lo", "tcp5"]


async def test_a_busy_port_is_an_error_with_its_reason(admin: Admin, port: int) -> None:
    words = rf"127\.0\.1\.9.*{port}"
    with socket.create_server(("127.0.1.9", port)), pytest.raises(DlcError, match=words) as busy:
        await admin.handle(model.NetAdd(nids=["127.0.1.8@tcp", "127.0.1.9@tcp"]))
    assert busy.value.errno == errno.ENETDOWN
    (net,) = (await shown(admin, model.NetShow(net="tcp")))["net"]
    assert [ni["nid"] for ni in net["local NI(s)"]] == ["127.0.1.1@tcp"]


async def test_each_change_is_a_line_that_tells_who_and_what(caplog: pytest.LogCaptureFixture) -> None:
    """All kinds of requests that change something, each before and after, refused ones too."""
    caplog.set_level(logging.INFO, "ulnet.audit")
    caller = Caller(0, 4711, Role.CHANGE)
    async with Node(tcp=TcpParams(accept="all", accept_port=free_port())) as node:
        admin = Admin(node)

        async def does(request: model.Request) -> dict[str, Any]:
            caplog.clear()
            with suppress(DlcError):
                await admin.handle(request, caller)
            (record,) = caplog.records
            line: dict[str, Any] = json.loads(record.getMessage().removeprefix("audit: "))
            assert (line["user"], line["uid"], line["pid"]) == ("root", 0, 4711)
            assert line["request"] == msgspec.to_builtins(request)
            return line

        added = (await does(model.NetAdd(nids=["127.0.0.1@tcp"])))["changed"]
        assert added["127.0.0.1@tcp.tunables.credits"] == [None, 256]
        drained = await does(model.NetSet(nids=["127.0.0.1@tcp"], drain=1))
        assert drained["changed"] == {"127.0.0.1@tcp.drained": [False, True]}
        peer = await does(model.PeerAdd("10.0.0.1@tcp", ["10.0.0.2@tcp"]))
        assert peer["changed"]["10.0.0.1@tcp.nids.10.0.0.2@tcp.health"] == [None, 1000]
        refused = await does(model.PeerAdd("10.0.0.1@tcp", ["127.0.0.1@tcp"]))
        assert (refused["changed"], len(refused["refused"])) == ({}, 1)
        await does(model.RouteAdd("tcp7", "10.0.0.1@tcp"))
        assert (await does(model.RouteDel("tcp7", "10.0.0.1@tcp")))["changed"]
        assert (await does(model.UdspAdd(src="tcp")))["changed"]
        assert (await does(model.FaultAdd("drop", "*", "*", rate=1)))["changed"]
        assert (await does(model.RouterSet({"router_ping_timeout": 3})))["changed"]
        assert (await does(model.NetDel(nids=["127.0.0.1@tcp"], force=True)))["changed"]
        assert (await does(model.LnetUnconfigure()))["changed"] == {}
    caplog.clear()
    with suppress(DlcError):
        await admin.handle(model.NetShow(), caller)
    assert not caplog.records


async def test_looks_of_lst_are_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    """`lst stat` and a plan that runs look each second: lines that tell of no change bury those that do."""
    caplog.set_level(logging.INFO, "ulnet.audit")
    caller = Caller(0, 4711, Role.CHANGE)
    async with Node(tcp=TcpParams(accept="all", accept_port=free_port())) as node:
        admin = Admin(node, additions=[SelftestAddition(node, on=True)])
        await admin.handle(model.NetAdd(nids=["127.0.0.1@tcp"]))
        await admin.handle(Lst(key=5, command=SessionNew()), caller)
        assert [record.name for record in caplog.records] == ["ulnet.audit"]
        caplog.clear()
        for command in (SessionShow(), NodesPing(), Counters(), BatchQuery()):
            with suppress(DlcError):
                await admin.handle(Lst(key=5, command=command), caller)
        assert not caplog.records
        await admin.handle(Lst(key=5, command=SessionEnd()), caller)
        assert [record.name for record in caplog.records] == ["ulnet.audit"]
