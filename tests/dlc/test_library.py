"""The DLC library: typed calls over the control socket, sync and async; cursors, sums, heat, resets."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from ulnet.core.stats import MsgStats
from ulnet.dlc import calls
from ulnet.dlc.aclient import AsyncClient
from ulnet.dlc.client import Client, as_mapping
from ulnet.dlc.config import read_config
from ulnet.dlc.deadlines import deadline_of
from ulnet.dlc.documents import LocalNiView
from ulnet.dlc.documents_stats import UseView
from ulnet.dlc.endpoint import Endpoint
from ulnet.dlc.errors import DlcError
from ulnet.dlc.importing import import_config_async
from ulnet.dlc.model import NetShow, Tunables, UseShow
from ulnet.dlc.protocol import HEADER_SIZE, VERSION, ProtocolError, decode_request
from ulnet.dlc.server import ControlServer
from ulnet.lnd.tcp import TcpParams
from ulnet.node import Node
from ulnet.node.admin import Admin
from ulnet.node.admin.sums import HALF_LIFE, UseMeter


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    params = TcpParams(accept="all", accept_port=free_port())
    async with Node(tcp=params) as node:
        server = ControlServer(Endpoint(str(tmp_path / "lnetd.sock")), Admin(node).handle)
        await server.start()
        yield node
        await server.close()


@pytest.fixture
async def client(node: Node, tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(str(tmp_path / "lnetd.sock")) as client:
        yield client


@pytest.mark.requirement("cfg-005", "cfg-015", "dbg-080")
async def test_a_node_is_configured_and_queried(client: AsyncClient) -> None:
    ask = client.call
    await ask(calls.add_nids(["127.0.1.[1-3]@tcp"], tunables=Tunables(peer_credits=4)))
    await ask(calls.add_peer("127.0.9.2@tcp", ["127.0.9.3@tcp1"]))
    nets = await ask(calls.show_nets("tcp", verbosity=1))
    assert [ni.nid for ni in nets[0].local_nis] == ["127.0.1.1@tcp", "127.0.1.2@tcp", "127.0.1.3@tcp"]
    tunables = nets[0].local_nis[0].tunables
    assert isinstance(tunables, dict)
    assert tunables["peer_credits"] == 4
    await ask(calls.set_values(retry_count=3))
    await ask(calls.set_discovery(False))
    values = await ask(calls.show_values())
    assert (values["retry_count"], values["discovery"]) == (3, 0)
    await ask(calls.add_policy(src="tcp", priority=1))
    assert [rule.src for rule in await ask(calls.show_policies())] == ["tcp"]
    await ask(calls.delete_policy(src="tcp"))
    assert await ask(calls.show_policies()) == []
    refused = await ask(calls.refresh_peer("127.0.9.2@tcp", ["127.0.9.4@tcp1", "banana@x"]))
    assert [(item.errno, item.descr[:6]) for item in refused] == [(-errno.EINVAL, "NID 1:")]
    assert [peer.nid for peer in await ask(calls.list_peers())] == ["127.0.9.2@tcp"]
    text = await ask(calls.export(backup=True))
    await ask(calls.delete_peer("127.0.9.2@tcp"))
    await ask(calls.delete_nids(["127.0.1.[2-3]@tcp"]))
    await ask(calls.delete_net("tcp"))
    document, errors = await import_config_async(client, read_config(text))
    assert (document, errors) == ({}, [])
    assert await ask(calls.export(backup=True)) == text
    pinged = await ask(calls.ping(["127.0.1.1@tcp"], timeout=5))
    assert (pinged.errors, pinged.answers[0].primary_nid) == ([], "127.0.1.1@tcp")
    assert (await ask(calls.explain("127.0.9.2@tcp"))).target == "127.0.9.2@tcp"
    assert (await ask(calls.show_statistics())).send_count >= 1
    await ask(calls.unconfigure())
    await ask(calls.configure())


async def test_refusals_are_raised_with_errno_and_sentence(client: AsyncClient) -> None:
    with pytest.raises(DlcError) as refused:
        await client.call(calls.add_net("tcp", ["nix0"]))
    assert refused.value.errno == errno.ENETDOWN
    assert refused.value.descr.startswith("no interface is named 'nix0'")
    with pytest.raises(DlcError, match="no interface of this host matches"):
        await client.call(calls.add_nis_by_address("tcp 203.0.113.7"))
    with pytest.raises(DlcError, match="banana"):
        await client.call(calls.ping(["banana"]))


async def test_the_same_calls_without_asyncio(client: AsyncClient) -> None:
    def work() -> list[str]:
        with Client(client.path) as plain:
            plain.call(calls.add_nids(["127.0.1.9@tcp7"]))
            return [net.net_type for net in plain.call(calls.show_nets())]

    assert await asyncio.to_thread(work) == ["lo", "tcp7"]
    await asyncio.get_running_loop().shutdown_default_executor()


@pytest.mark.requirement("dbg-040", "dbg-065", "dbg-095", "dbg-100")
async def test_nis_by_index_and_peers_by_cursor(client: AsyncClient) -> None:
    ask = client.call
    await ask(calls.add_nids(["127.0.1.[1-3]@tcp"]))
    walked: list[Any] = []
    while isinstance(ni := await ask(calls.show_ni("tcp", len(walked))), LocalNiView):
        walked.append(ni.nid)
    assert walked == ["127.0.1.1@tcp", "127.0.1.2@tcp", "127.0.1.3@tcp"]
    (net,) = as_mapping(await client.request(NetShow("tcp")))["net"]
    assert [ni["nid"] for ni in net["local NI(s)"]] == walked
    (net,) = as_mapping(await client.request(NetShow("tcp", index=1)))["net"]
    assert [ni["nid"] for ni in net["local NI(s)"]] == ["127.0.1.2@tcp"]
    for number in range(1, 8):
        await ask(calls.add_peer(f"127.0.9.{number}@tcp"))
    pages: list[list[str]] = []
    after = None
    while page := await ask(calls.show_peers(count=3, after=after)):
        pages.append([peer.primary_nid for peer in page])
        after = page[-1].primary_nid
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [nid for page in pages for nid in page] == [peer.nid for peer in await ask(calls.list_peers())]
    behind = await ask(calls.show_peers(after="10.9.9.9@tcp"))  # one that never was
    assert len(behind) == 7
    assert await ask(calls.show_peers(["127.0.9.1@tcp"], after="127.0.9.3@tcp")) == []
    with pytest.raises(DlcError, match="banana"):
        await ask(calls.show_peers(after="banana"))


@pytest.mark.requirement("dbg-065", "dbg-100")
async def test_pages_of_peers_while_peers_come_and_go(client: AsyncClient) -> None:
    """Also when the one that the last page ended with is gone: who is there all the time is seen once."""
    ask = client.call
    steady = {f"127.0.9.{number}@tcp" for number in range(2, 40, 2)}
    fleeting = [f"127.0.9.{number}@tcp" for number in range(1, 40, 2)]
    for nid in (*fleeting, *sorted(steady)):
        await ask(calls.add_peer(nid))
    seen: list[str] = []
    after = None
    while page := await ask(calls.show_peers(count=3, after=after)):
        seen += [peer.primary_nid for peer in page]
        after = seen[-1]
        for nid in [nid for nid in seen if nid in fleeting]:
            await ask(calls.delete_peer(nid))
            fleeting.remove(nid)
        if len(seen) < 30:
            await ask(calls.add_peer(f"127.0.8.{len(seen)}@tcp"))
            await ask(calls.add_peer(f"127.0.10.{len(seen)}@tcp1"))
    assert len(seen) == len(set(seen))
    assert steady <= set(seen)


@pytest.mark.requirement("dbg-085", "dbg-090", "dbg-120")
async def test_sums_over_nets_and_peers_and_zeroing(client: AsyncClient, node: Node) -> None:
    ask = client.call
    await ask(calls.add_nids(["127.0.1.[1-2]@tcp", "127.0.1.9@tcp1"]))
    await ask(calls.discover(["127.0.1.1@tcp"], timeout=5))
    for nid in ("127.0.1.1@tcp", "127.0.1.2@tcp", "127.0.1.2@tcp"):
        assert (await ask(calls.ping([nid], timeout=5))).errors == []
    nets = {one.net: one for one in await ask(calls.net_sums())}
    assert list(nets) == ["lo", "tcp", "tcp1"]
    tcp, own = nets["tcp"], [ni for ni in node.core.nis.values() if str(ni.nid.net) == "tcp"]
    assert (tcp.nis, tcp.send_count) == (2, sum(sum(ni.stats.sent) for ni in own)) and tcp.send_count > 0
    assert await ask(calls.net_sums("tcp")) == [tcp]
    (peer,) = await ask(calls.peer_sums("127.0.1.2@tcp"))
    assert (peer.primary_nid, peer.nis) == ("127.0.1.1@tcp", 3)
    assert await ask(calls.peer_sums()) == [peer]
    await ask(calls.reset_statistics(all=True))
    assert [one.send_count for one in await ask(calls.net_sums())] == [0, 0, 0]
    assert (await ask(calls.show_statistics())).send_count == 0
    with pytest.raises(DlcError) as refused:
        await ask(calls.net_sums("tcp9"))
    assert refused.value.errno == errno.ESRCH


class _Ni:
    def __init__(self) -> None:
        self.nid = "10.0.0.1@tcp"
        self.stats = MsgStats()


class _Core:
    peers: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.ni = _Ni()
        self.nis = {self.ni.nid: self.ni}


@pytest.mark.requirement("dbg-070", "dbg-075", "dbg-105")
def test_heat_decays_by_half_in_a_minute_and_rates_are_since_the_last_look() -> None:
    now = 1000.0
    core: Any = _Core()
    meter = UseMeter(lambda: now)

    def look() -> list[UseView]:
        return [view for view in meter.read(core, UseShow()) if view is not None]

    now += 1e-3
    core.ni.stats.sent[1] = 800  # at once
    (first,) = look()
    assert first.heat == pytest.approx(800, rel=1e-3)
    now += HALF_LIFE
    (second,) = look()
    assert second.heat == pytest.approx(400, rel=1e-3)
    assert second.rate == 0
    now += 10
    core.ni.stats.received[1] += 50
    assert look()[0].rate == pytest.approx(5)
    for _ in range(100):  # 5 messages a second for ever come to 5 times the mean life of one
        now += 10
        core.ni.stats.sent[1] += 50
        (last,) = look()
    assert last.heat == pytest.approx(5 * HALF_LIFE / 0.6931, rel=1e-2)
    core.ni = _Ni()  # the NI was deleted and added again
    core.nis = {core.ni.nid: core.ni}
    assert look()[0].heat == 0


@pytest.mark.requirement("dbg-070", "dbg-075")
async def test_the_hottest_come_first(client: AsyncClient) -> None:
    ask = client.call
    await ask(calls.add_nids(["127.0.1.1@tcp", "127.0.1.2@tcp1"]))
    for _ in range(3):
        await ask(calls.ping(["127.0.1.2@tcp1"], timeout=5))
    use = await ask(calls.show_use())
    assert [one.nid for one in use] == ["127.0.1.2@tcp1", "127.0.1.1@tcp"]
    assert use[0].heat > 0
    top = await ask(calls.show_use(top=1))
    assert len(top) == 1
    assert (await ask(calls.show_use(peers=True)))[0].nid == "127.0.1.2@tcp1"
    await ask(calls.reset_statistics(all=True))
    assert [one.heat for one in await ask(calls.show_use())] == [0, 0]


@pytest.mark.requirement("bck-005", "bck-010", "bck-020")
def test_versions_that_do_not_fit_fail_cleanly_and_older_requests_are_understood() -> None:
    with pytest.raises(ProtocolError) as refused:
        decode_request(b'{"version": 99, "request": {"op": "shape of later days"}}')
    assert refused.value.errno == errno.EPROTONOSUPPORT
    assert "use lnetctl and lnetd of one ulnet release" in refused.value.text
    # What a tool of the first release sends: fields that came later are missing.
    old = f'{{"version": {VERSION}, "request": {{"op": "peer.show", "nids": ["10.0.0.1@tcp"]}}}}'.encode()
    assert decode_request(old) == calls.show_peers(["10.0.0.1@tcp"]).request
    assert HEADER_SIZE == 8


def test_every_call_says_what_it_does() -> None:
    functions = [getattr(calls, name) for name in calls.__all__ if name[0].islower()]
    assert len(functions) > 25
    assert all(one.__doc__ and one.__annotations__["return"] for one in functions)


async def test_what_a_program_may_ask_wrong(client: AsyncClient) -> None:
    for wrong in (
        lambda: calls.add_net("tcp", "eth0"),
        lambda: calls.add_nids("127.0.1.1@tcp"),
        lambda: calls.show_peers("127.0.1.1@tcp"),
        lambda: calls.ping("127.0.1.1@tcp"),
    ):
        with pytest.raises(TypeError, match="a list is wanted"):
            wrong()
    for timeout in (0.0, -1.0, float("nan"), float("inf"), 1e9):
        for call in (calls.ping, calls.discover):
            with pytest.raises(DlcError, match=r"timeout .* is out of range"):
                call(["127.0.1.1@tcp"], timeout=timeout)


async def test_a_request_that_is_too_long_is_refused_by_both_clients(client: AsyncClient) -> None:
    nids = ["127.0.1.1@tcp"] * 100_000
    with pytest.raises(DlcError, match="longer than 1048576 bytes: split it") as refused:
        await client.call(calls.add_peer("127.0.1.1@tcp", nids))
    assert refused.value.errno == errno.EMSGSIZE
    with Client(client.path) as plain, pytest.raises(DlcError, match="longer than 1048576 bytes: split it"):
        plain.call(calls.add_peer("127.0.1.1@tcp", nids))
    assert await client.call(calls.list_peers()) == []


@pytest.mark.requirement("cfg-005", "cfg-015")
async def test_routes_routing_and_places_of_policies(client: AsyncClient) -> None:
    ask = client.call
    await ask(calls.add_nids(["127.0.1.1@tcp"]))
    await ask(calls.add_route("tcp5", "127.0.1.[2-3]@tcp", hop=2, priority=4))
    await ask(calls.add_route("tcp6", "127.0.1.2@tcp"))
    routes = await ask(calls.show_routes("tcp5"))
    assert [(route.net, route.hop, route.priority) for route in routes] == [("tcp5", 2, 4)] * 2
    assert {route.gateway for route in routes} == {"127.0.1.2@tcp", "127.0.1.3@tcp"}
    both = await ask(calls.show_routes(gateway="127.0.1.2@tcp", verbosity=0))
    assert [route.net for route in both] == ["tcp5", "tcp6"]
    await ask(calls.set_routing(True))
    assert "enable: 1" in await ask(calls.export(backup=True))
    await ask(calls.set_routing(False))
    await ask(calls.add_policy(src="tcp", priority=3))
    await ask(calls.add_policy(src="tcp1", weight=2, index=0))
    assert [rule.src for rule in await ask(calls.show_policies())] == ["tcp1", "tcp"]


async def test_discovery_can_be_asked_for(client: AsyncClient) -> None:
    await client.call(calls.add_nids(["127.0.1.[1-2]@tcp"]))
    found = await client.call(calls.discover(["127.0.1.2@tcp"], timeout=5))
    assert [node.primary_nid for node in found.answers] == ["127.0.1.1@tcp"]
    assert found.errors == []
    lost = await client.call(calls.discover(["127.0.1.2@tcp9"], timeout=5))
    assert (lost.answers, [error.errno for error in lost.errors]) == ([], [-errno.EHOSTUNREACH])


def test_a_range_of_nodes_has_the_time_that_its_rounds_take() -> None:
    """64 are asked at once; also by `import --exec`."""
    everybody = "10.0.0.[1-254]@tcp"
    assert calls.ping([everybody], timeout=20).deadline == 30 + 4 * 20
    assert calls.ping(["10.0.0.1@tcp", "10.0.0.2@tcp"], timeout=20).deadline == 30 + 20
    assert calls.discover([everybody], timeout=20).deadline == 30 + 4 * 20
    assert calls.ping(["banana"], timeout=20).deadline == 30 + 20
    text = f"ping:\n  - {{primary nid: '{everybody}', timeout: 20000}}\n"
    text += (
        "discover:\n  - {primary nid: 10.0.0.1@tcp, force: true}\n  - {primary nid: 10.0.0.1@tcp, force: 0}\n"
    )
    config = read_config(text, "exec")
    assert config.errors == []
    steps = [step.request for step in config.steps]
    assert [deadline_of(request) for request in steps] == [110, 210, 210]
    assert [getattr(request, "force", None) for request in steps] == [None, True, False]
    assert deadline_of(UseShow()) == 30
