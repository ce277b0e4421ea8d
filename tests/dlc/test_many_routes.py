"""Routes over many gateways: a node goes on meanwhile, and all or none are there at the end."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from ulnet.core.peer import PeerFlag
from ulnet.core.routing.table import Route, RouteTable
from ulnet.dlc.caller import Caller, Role
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model import NetAdd, RouteAdd, RouteDel
from ulnet.host import Address, Link
from ulnet.nid import Net, Nid
from ulnet.node.admin import Admin
from ulnet.node.dry_run import dry_run

HOST = [Link("eth0", 2, addresses=(Address("10.99.0.1", 24),))]
MANY = "10.99.0.[10-250]@tcp"
COUNT = 241
NET = Net.parse("tcp7")
LAST = Nid.parse("10.99.0.250@tcp")


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with dry_run(HOST) as admin:
        await admin.handle(NetAdd("tcp", ["eth0"]))
        yield admin


def gateways(admin: Admin) -> set[str]:
    return {str(route.gateway) for route in admin.node.core.gateways.table}


async def begun(admin: Admin) -> asyncio.Task[object]:
    """Some of the routes are there, the others are still to come."""
    task: asyncio.Task[object] = asyncio.create_task(admin.handle(RouteAdd("tcp7", MANY)))
    while len(admin.node.core.gateways.table) < 100:
        await asyncio.sleep(0)
        assert not task.done()
    return task


async def watched(admin: Admin, request: RouteAdd | RouteDel) -> tuple[int, set[int]]:
    """How many turns of the loop a request takes, and how many routes there are meanwhile."""
    task = asyncio.create_task(admin.handle(request))
    turns, seen = 0, set()
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
        seen.add(len(gateways(admin)))
    await task
    return turns, seen


async def test_a_node_goes_on_between_gateways(admin: Admin) -> None:
    turns, seen = await watched(admin, RouteAdd("tcp7", MANY))
    assert len(seen) > COUNT // 16
    assert {0, COUNT} <= seen
    assert turns > 2 * (COUNT // 16)  # they are checked first, before there is any


async def test_a_node_goes_on_while_routes_that_are_to_be_deleted_are_looked_for(admin: Admin) -> None:
    await admin.handle(RouteAdd("tcp7", MANY))
    turns, seen = await watched(admin, RouteDel("tcp7", MANY))
    assert seen == {COUNT, 0}
    assert turns > COUNT // 16


async def test_what_is_refused_half_way_leaves_no_route(admin: Admin) -> None:
    """A program adds the last of them meanwhile, and takes away one that was there."""
    task = await begun(admin)
    admin.node.core.gateways.add(NET, LAST, 1, 0)
    admin.node.core.gateways.remove(admin.node.core.gateways.table.find(NET, Nid.parse("10.99.0.10@tcp")))
    with pytest.raises(DlcError) as refused:
        await task
    assert refused.value.errno == errno.EEXIST
    assert gateways(admin) == {str(LAST)}


async def test_what_is_given_up_half_way_leaves_no_route(admin: Admin) -> None:
    task = await begun(admin)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gateways(admin) == set()


@pytest.mark.pure
async def test_one_route_of_many_costs_no_look_at_all(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither for the line of the log nor for what nobody needs of a gateway any more."""
    caplog.set_level(logging.INFO, "ulnet.audit")
    caller = Caller(0, 4711, Role.CHANGE)
    looks = 0

    def look(self: RouteTable) -> Iterator[Route]:
        nonlocal looks
        looks += 1
        return iter([])

    await admin.handle(RouteAdd("tcp8", MANY))
    monkeypatch.setattr(RouteTable, "__iter__", look)
    await admin.handle(RouteAdd("tcp7", "10.99.0.9@tcp", hop=2), caller)
    await admin.handle(RouteDel("tcp7", "10.99.0.9@tcp"), caller)
    assert looks == 0
    lines = [json.loads(record.getMessage().removeprefix("audit: "))["changed"] for record in caplog.records]
    assert lines == [
        {
            "[tcp7 10.99.0.9@tcp].net": [None, "tcp7"],
            "[tcp7 10.99.0.9@tcp].gateway": [None, "10.99.0.9@tcp"],
            "[tcp7 10.99.0.9@tcp].hop": [None, 2],
            "[tcp7 10.99.0.9@tcp].priority": [None, 0],
        },
        {
            "[tcp7 10.99.0.9@tcp].net": ["tcp7", None],
            "[tcp7 10.99.0.9@tcp].gateway": ["10.99.0.9@tcp", None],
            "[tcp7 10.99.0.9@tcp].hop": [2, None],
            "[tcp7 10.99.0.9@tcp].priority": [0, None],
        },
    ]


async def test_a_route_that_is_deleted_by_another_nid_of_its_gateway_is_told(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ulnet.audit")
    core = admin.node.core
    core.peers.add(Nid.parse("10.99.0.9@tcp"), [Nid.parse("10.99.0.8@tcp")], True)
    await admin.handle(RouteAdd("tcp7", "10.99.0.9@tcp"))
    await admin.handle(RouteDel("tcp7", "10.99.0.8@tcp"), Caller(0, 4711, Role.CHANGE))
    assert gateways(admin) == set()
    (record,) = caplog.records
    line = json.loads(record.getMessage().removeprefix("audit: "))
    assert line["changed"]["[tcp7 10.99.0.9@tcp].net"] == ["tcp7", None]


@pytest.mark.pure
async def test_news_of_a_gateway_are_of_its_own_routes_alone(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 65,000 routes over 241 gateways all were looked at for each, and all pairs of those to one net."""
    await admin.handle(RouteAdd("tcp7", MANY))
    core, looked = admin.node.core, []
    peer = core.peers.find(LAST)
    assert peer is not None
    peer.mark(PeerFlag.ROUTER_ENABLED)
    routes = core.gateways.table.over(LAST)
    with monkeypatch.context() as patched:
        patched.setattr(RouteTable, "__iter__", lambda _: looked.append("all"))
        patched.setattr(RouteTable, "same_gateway", lambda *both: looked.append(both))
        core.gateways.check_ended(LAST, LAST.net, failed=True)
        assert [route.alive for route in routes] == [False]
        core.gateways.discovered(peer, failed=False)
        assert [route.alive for route in routes] == [True]
    assert not looked
