"""Failures are counted where administrators look: at the node, its NI, the peer's NI (health.md §7)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from support.ports import free_port
from ulnet.core.lnd import NiEvent
from ulnet.core.status import HealthStatus
from ulnet.dlc import model
from ulnet.dlc.model_faults import FaultAdd, FaultDel
from ulnet.dlc.request import Tunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.node.admin import Admin

OWN = ["127.0.1.1@tcp", "127.0.1.2@tcp1"]
THEIRS = ["127.0.2.1@tcp", "127.0.2.2@tcp1"]
# Of each status: what a local NI calls it, what a peer NI calls it, how often a message sets out again.
WHERE = {
    HealthStatus.LOCAL_INTERRUPT: ("interrupts", "", 2),
    HealthStatus.LOCAL_DROPPED: ("dropped", "", 2),
    HealthStatus.LOCAL_ABORTED: ("aborted", "", 2),
    HealthStatus.LOCAL_NO_ROUTE: ("no route", "", 2),
    HealthStatus.LOCAL_TIMEOUT: ("timeouts", "", 2),
    HealthStatus.LOCAL_ERROR: ("error", "", 0),
    HealthStatus.REMOTE_DROPPED: ("", "dropped", 2),
    HealthStatus.REMOTE_TIMEOUT: ("", "timeout", 0),
    HealthStatus.REMOTE_ERROR: ("", "error", 0),
    HealthStatus.NETWORK_TIMEOUT: ("timeouts", "network timeout", 0),  # of either end
}
NI_COUNTERS = list(dict.fromkeys(name for name, _, _ in WHERE.values() if name))
PEER_COUNTERS = [name for _, name, _ in WHERE.values() if name]


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    """A node with two rails to another, which knows the peer by configuration."""
    params = TcpParams(accept="all", accept_port=free_port())
    async with Node(tcp=params) as node, Node(tcp=params) as other:
        for nid in THEIRS:
            other.add_ni(nid)
        admin = Admin(node)
        await admin.handle(model.NetAdd(nids=OWN))
        await admin.handle(model.PeerAdd(primary=THEIRS[0], nids=THEIRS[1:]))
        yield admin


async def ask(admin: Admin, request: model.Request) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins((await admin.handle(request)).document, str_keys=True)
    return document


async def nis(admin: Admin) -> list[dict[str, Any]]:
    nets = (await ask(admin, model.NetShow(verbosity=3, load=True)))["net"]
    return [ni for net in nets for ni in net["local NI(s)"] if ni["nid"] in OWN]


async def peer_nis(admin: Admin) -> list[dict[str, Any]]:
    peers = (await ask(admin, model.PeerShow(nids=THEIRS[:1], verbosity=4, load=True)))["peer"]
    return list(peers[0]["peer ni"])


def summed(shown: list[dict[str, Any]], names: list[str]) -> dict[str, int]:
    sums = {name: sum(one["health stats"][name] for one in shown) for name in names}
    return {name: count for name, count in sums.items() if count}


@pytest.mark.requirement("HEALTH-stats", "dbg-020", "dbg-025")
@pytest.mark.parametrize("status", WHERE, ids=lambda status: status.name)
async def test_a_failure_is_counted_at_each_place(admin: Admin, status: HealthStatus) -> None:
    name = status.name.lower()
    ours, theirs, resends = WHERE[status]
    rule = FaultAdd("drop", "*", "*", rate=1, messages=["GET"], health_errors=[name])
    await admin.handle(rule)
    assert (await admin.handle(model.Ping(THEIRS[:1], timeout=60))).errors
    await admin.handle(FaultDel("drop"))
    counted = (await ask(admin, model.StatsShow()))["statistics"]
    tries = counted[f"{name}_count"]
    assert tries >= 1 + resends  # recovery may ask at once, and fail by the same rule
    assert counted["resend_count"] == resends
    assert counted["failed_resends"] == bool(resends)
    assert summed(await nis(admin), NI_COUNTERS) == ({ours: tries} if ours else {})
    assert summed(await peer_nis(admin), PEER_COUNTERS) == ({theirs: tries} if theirs else {})
    for shown in (await nis(admin), await peer_nis(admin)):
        assert sum(one["load"]["resends"].get(name, 0) for one in shown) == resends


@pytest.mark.requirement("HEALTH-stats")
async def test_devices_that_come_and_go_and_times_are_counted(admin: Admin) -> None:
    core = admin.node.core
    for event in (NiEvent.FATAL, NiEvent.RECOVERED, NiEvent.FATAL):
        core.ni_event(core.nis[Nid.parse(OWN[1])], event)
    counts = [(ni["load"]["down_events"], ni["load"]["up_events"]) for ni in await nis(admin)]
    assert counts == [(0, 0), (2, 1)]
    assert not (await admin.handle(model.Ping(THEIRS[:1]))).errors
    (told,) = [one["statistics"] for one in await peer_nis(admin) if one["statistics"]["send_count"]]
    assert told["get_rtt_samples"] >= 1
    assert 0 < told["get_rtt_min_nsec"] <= told["get_rtt_avg_nsec"] <= told["get_rtt_max_nsec"]
    await admin.node.discover(THEIRS[0])  # tells it who we are by an acknowledged PUT
    sums = [one["statistics"] for one in await peer_nis(admin)]
    assert sum(one["put_ack_samples"] for one in sums) == sum(one["put_egress_samples"] for one in sums) == 1
    here = [ni["statistics"] for ni in await nis(admin)]
    assert sum(one["put_ack_samples"] for one in here) == sum(one["put_egress_samples"] for one in here) == 1
    for told in sums:
        assert told["put_egress_min_nsec"] <= told["put_egress_avg_nsec"] <= told["put_egress_max_nsec"]
        assert told["put_ack_min_nsec"] <= told["put_ack_avg_nsec"] <= told["put_ack_max_nsec"]


@pytest.mark.requirement("HEALTH-stats", "dbg-020")
async def test_a_peer_that_does_not_answer_is_counted_and_logged() -> None:
    log: list[str] = []
    port = free_port()
    async with Node(tcp=TcpParams(accept="all", accept_port=port), report=log.append) as node:
        admin = Admin(node)
        await admin.handle(model.NetAdd(nids=OWN[:1], tunables=Tunables(timeout=1)))
        with socket.create_server((THEIRS[0].partition("@")[0], port)):  # takes the connection, says nothing
            assert (await admin.handle(model.Ping(THEIRS[:1], timeout=30.0))).errors
        (ni,) = await nis(admin)
        (pni,) = await peer_nis(admin)
        assert ni["health stats"]["timeouts"] == pni["health stats"]["network timeout"] == 1
        assert pni["load"]["connects"] == {"unreachable": 1}
        assert [line for line in log if line.startswith(f"message from {OWN[0]} to {THEIRS[0]} timed out")]


@pytest.mark.requirement("HEALTH-stats")
async def test_failed_connections_are_counted_by_cause() -> None:
    port = free_port()
    async with Node(tcp=TcpParams(accept="all", accept_port=port)) as node:
        admin = Admin(node)
        await admin.handle(model.NetAdd(nids=[*OWN, "127.0.1.1@tcp7"]))

        async def causes(nid: str) -> dict[str, int]:
            assert (await admin.handle(model.Ping([nid], timeout=30.0))).errors
            (peer,) = (await ask(admin, model.PeerShow(nids=[nid], verbosity=4, load=True)))["peer"]
            failed: dict[str, int] = peer["peer ni"][0]["load"]["connects"]
            return failed

        assert await causes(THEIRS[0]) == {"connect_rej": 1}  # nobody listens there
        assert await causes("127.0.1.2@tcp7") == {"connect_rej": 1}  # that host is not on that net
        assert await causes("fd00::2@tcp") == {"addr_err": 1}
        with socket.create_server(("127.0.2.3", port)) as other:
            greeted = asyncio.ensure_future(_say_something_else(other))
            assert await causes("127.0.2.3@tcp") == {"connect_err": 1}
            (await greeted).close()
        await admin.handle(model.StatsReset())
        peers = (await ask(admin, model.PeerShow(verbosity=4, load=True)))["peer"]
        assert not any("connects" in pni["load"] for peer in peers for pni in peer["peer ni"])


async def _say_something_else(listener: socket.socket) -> socket.socket:
    """As a server of another protocol does."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    sock, _ = await loop.sock_accept(listener)
    await loop.sock_sendall(sock, b"220 mail.example.org ESMTP\r\n")
    return sock
