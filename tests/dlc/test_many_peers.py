"""Lists that others can make very long: a node goes on while it makes and sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ulnet.core.peer import Peer
from ulnet.dlc.aclient import AsyncClient
from ulnet.dlc.caller import Caller, Role
from ulnet.dlc.client import as_mapping
from ulnet.dlc.documents import NidItem, PeerListDocument
from ulnet.dlc.documents_stats import UseDocument, UseView
from ulnet.dlc.endpoint import Endpoint
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import (
    CptOfNids,
    Distances,
    Export,
    NetAdd,
    PeerAdd,
    PeerDebug,
    PeerList,
    PeerShow,
    Request,
    RouteAdd,
    RouteShow,
    StatsReset,
    StatsShow,
    SumsShow,
    UdspAdd,
    UdspDel,
    UdspShow,
    UseShow,
)
from ulnet.dlc.protocol import HEADER_SIZE, Answer, decode_reply, encode_reply, reply_in_pieces
from ulnet.dlc.server import ControlServer
from ulnet.host import Address, Link
from ulnet.nid import Net, Nid
from ulnet.node.admin import Admin
from ulnet.node.dry_run import dry_run
from ulnet.observe.snapshot import PARTS

HOST = [Link("eth0", 2, addresses=(Address("10.99.0.1", 24),))]
MANY = 1000
ELSEWHERE = Net.parse("tcp777")
FRIEND = Nid.parse("10.99.0.9@tcp")


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with dry_run(HOST) as admin:
        await admin.handle(NetAdd("tcp", ["eth0"]))
        yield admin


def invented(at: int) -> Nid:
    return Nid.of(ELSEWHERE, 0x0B000001 + at)


def crowd(admin: Admin, count: int = MANY) -> None:
    """Peers as messages make them that name invented sources."""
    for at in range(count):
        assert admin.node.core.peers.learn(invented(at)) is not None


async def turns_of(admin: Admin, request: Request) -> tuple[int, dict[str, Any]]:
    """How many turns of the loop a request takes, in which other requests are answered; its document."""
    task = asyncio.create_task(admin.handle(request))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        assert (await admin.handle(StatsShow())).document is not None
        turns += 1
    return turns, msgspec.to_builtins((await task).document) or {}


@pytest.mark.parametrize(
    "request_",
    [
        PeerShow(verbosity=4, load=True),
        PeerShow(strangers=False),
        PeerList(),
        SumsShow("peers"),
        UseShow("peers"),
        Export(),
        StatsReset(all=True),
    ],
    ids=str,
)
async def test_a_node_goes_on_while_it_looks_at_peers(admin: Admin, request_: Request) -> None:
    crowd(admin)
    turns, _ = await turns_of(admin, request_)
    assert turns > MANY // 16


@pytest.mark.parametrize("kind", [Distances, CptOfNids])
async def test_a_node_goes_on_while_it_reads_nids(
    admin: Admin, kind: type[Distances] | type[CptOfNids]
) -> None:
    """30 ms in one turn of the loop, for whoever may look."""
    turns, document = await turns_of(admin, kind([f"10.99.{at // 250}.{at % 250}@tcp" for at in range(MANY)]))
    assert turns > MANY // 16
    (shown,) = document.values()
    assert len(shown) == MANY


async def test_who_may_only_look_keeps_no_administrator_waiting_for_lists(admin: Admin) -> None:
    crowd(admin)
    looker = Caller(65534, 1, Role.LOOK)
    lookers = [asyncio.create_task(admin.handle(PeerShow(), looker)) for _ in range(3)]
    await asyncio.sleep(0)
    asked = asyncio.create_task(admin.handle(PeerShow()))
    while not asked.done():
        await asyncio.sleep(0)
    assert not lookers[1].done()
    await asyncio.gather(*lookers)


async def test_a_node_goes_on_while_it_counts_what_rules_match(admin: Admin) -> None:
    """Whoever may look can ask for that; rules and peers change meanwhile."""
    crowd(admin)
    for dst, priority in (("11.0.0.*@tcp777", 1), ("*.*.*.*@tcp777", 2), ("tcp777", 3)):
        await admin.handle(UdspAdd(dst=dst, priority=priority))
    turns, document = await turns_of(admin, UdspShow(verbosity=1))
    assert turns > MANY // 16
    matches = [(rule["matches"], rule.get("overridden", 0)) for rule in document["udsp"]]
    assert matches == [(255, 0), (MANY, 255), (MANY, 0)]
    task = asyncio.create_task(admin.handle(UdspShow(idx=1, verbosity=1)))
    await asyncio.sleep(0)
    for at in range(400, 500):
        admin.node.core.peers.delete(invented(at))
    await admin.handle(UdspDel(idx=1))
    (shown,) = msgspec.to_builtins((await task).document)["udsp"]
    assert (shown["dst"], shown["matches"]) == ("[0-255].[0-255].[0-255].[0-255]@tcp777", MANY - 100)


async def test_a_node_goes_on_within_one_peer(admin: Admin) -> None:
    """It may have listed thousands of NIDs."""
    await admin.handle(PeerAdd(str(FRIEND), ["10.77.0.[1-127]@tcp"]))
    for request in (PeerShow(verbosity=4), PeerDebug(str(FRIEND))):
        turns, _ = await turns_of(admin, request)
        assert turns > 127 // 16


async def test_a_node_goes_on_while_it_looks_at_routes(admin: Admin) -> None:
    for at in range(4):
        await admin.handle(RouteAdd(f"tcp{at + 1}", "10.99.0.[2-250]@tcp"))
    turns, document = await turns_of(admin, RouteShow(gateway="10.99.0.[2-3]@tcp", verbosity=3))
    assert turns > 4 * 249 // 16
    assert len(document["route"]) == 8
    task = asyncio.create_task(admin.handle(RouteShow()))
    await asyncio.sleep(0)
    table = admin.node.core.gateways.table
    admin.node.core.gateways.remove(list(table.to(Net.parse("tcp4"))))
    shown = msgspec.to_builtins((await task).document)["route"]
    assert len(shown) == len(table) == 3 * 249  # without those that went meanwhile


async def test_peers_come_and_go_while_they_are_shown(admin: Admin) -> None:
    crowd(admin)
    peers = admin.node.core.peers
    task = asyncio.create_task(admin.handle(PeerShow(verbosity=2)))
    await asyncio.sleep(0)
    for at in range(400, 500):
        peers.delete(invented(at))
    peers.add(invented(0), [invented(at) for at in range(500, 600)])  # it is shown already, in part
    peers.add(invented(600), [invented(at) for at in range(1, 10)])
    peers.learn(invented(MANY))
    shown = msgspec.to_builtins((await task).document)["peer"]
    primaries = [peer["primary nid"] for peer in shown]
    nids = [ni["nid"] for peer in shown for ni in peer["peer ni"]]
    assert len(set(primaries)) == len(primaries)
    assert len(set(nids)) == len(nids)
    assert {str(invented(at)) for at in range(10, 400)} <= set(nids)
    assert not {str(invented(at)) for at in range(400, 500)} & set(primaries)


async def test_long_lists_are_made_one_after_the_other(admin: Admin) -> None:
    """Each is large while it is made; a short one is not held up."""
    crowd(admin)
    one, two = (asyncio.create_task(admin.handle(PeerShow())) for _ in range(2))
    while not one.done():
        await asyncio.sleep(0)
    assert not two.done()
    turns, _ = await turns_of(admin, PeerShow([str(invented(1))]))
    assert turns < 3
    two.cancel()
    await asyncio.gather(two, return_exceptions=True)
    assert (await turns_of(admin, PeerShow()))[1]["peer"]  # who gave up holds up nobody


@pytest.mark.parametrize("count", [0, 3, 256, 257, 1000])
def test_an_answer_in_pieces_is_the_same_answer(count: int) -> None:
    errors = [ErrorItem("show", "peer", -5, "x")]
    lists: list[msgspec.Struct] = [
        PeerListDocument([NidItem(f"10.0.0.{at}@tcp") for at in range(count)]),
        UseDocument([UseView(str(at), 0.5, 0.5, at) for at in range(count)]),
    ]
    for document in lists:
        answer = Answer(document, errors, ["a note"])
        whole, pieces = encode_reply(answer)[HEADER_SIZE:], list(reply_in_pieces(answer))
        one, other = decode_reply(whole), decode_reply(b"".join(pieces))
        assert as_mapping(one) == as_mapping(other)
        assert (one.errors, one.notes) == (other.errors, other.notes)
        assert len(pieces) == max(1, -(-count // 256) + (count > 256))


async def test_over_the_socket_it_is_the_same(admin: Admin, tmp_path: Path) -> None:
    crowd(admin)
    here = msgspec.to_builtins((await admin.handle(PeerShow(verbosity=4, load=True))).document, str_keys=True)
    server = ControlServer(Endpoint(str(tmp_path / "s")), admin.handle)
    await server.start()
    try:
        async with AsyncClient(str(tmp_path / "s")) as client:
            reply = as_mapping(await client.request(PeerShow(verbosity=4, load=True)))
            assert reply == here
            exported = as_mapping(await client.request(Export()))
            assert list(exported) == list(
                msgspec.to_builtins((await admin.handle(Export())).document, str_keys=True)
            )
    finally:
        await server.close(0.2)


async def test_monitors_read_no_peers_that_others_invented(admin: Admin) -> None:
    """60,000 of them made each look 68 MB."""
    crowd(admin, 6)
    peers = admin.node.core.peers

    def peer(at: int) -> Peer:
        found = peers.find(invented(at))
        assert found is not None
        return found

    peers.add(invented(0))  # configured
    next(peer(1).nis()).heard_at = 1.0  # a connection of its own
    next(peer(2).nis()).stats.sent[1] = 1  # sent to
    next(peer(3).nis()).health_stats.unconnected(111)  # called in vain
    peers.lock(peer(4))  # named by a program
    await admin.handle(RouteAdd("tcp5", str(FRIEND)))
    request = PARTS["peer"].request
    shown = msgspec.to_builtins((await admin.handle(request)).document)["peer"]
    assert {one["primary nid"] for one in shown} == {str(invented(at)) for at in range(5)} | {str(FRIEND)}
