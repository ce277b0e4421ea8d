"""What is counted of peers, and logged of NIs, on nodes over real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import msgspec
import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.lnd import NiEvent
from ulnet.core.md import MdOption
from ulnet.core.status import LNetError
from ulnet.dlc import model
from ulnet.lnd.tcp import TcpParams
from ulnet.lnd.tcp.nistate import NiState
from ulnet.nid import Nid
from ulnet.node.admin import Admin

ONE, OTHER = "127.0.1.1@tcp", "127.0.1.2@tcp"


async def peer_ni(node: Node, nid: str) -> dict[str, Any]:
    answer = await Admin(node).handle(model.PeerShow([nid], verbosity=2, load=True))
    shown: dict[str, Any] = msgspec.to_builtins(answer.document)["peer"][0]["peer ni"][0]
    return shown


async def local_ni(node: Node, nid: str) -> dict[str, Any]:
    answer = await Admin(node).handle(model.NetShow(verbosity=2, load=True))
    nets = msgspec.to_builtins(answer.document)["net"]
    (found,) = (ni for net in nets for ni in net["local NI(s)"] if ni["nid"] == nid)
    return dict(found)


@pytest.mark.requirement("dbg-010", "dbg-015", "dbg-050", "dbg-055", "dbg-060")
async def test_messages_from_and_to_each_peer_ni_are_counted() -> None:
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=tcp) as one, Node(tcp=tcp) as other:
        one.add_ni(ONE)
        other.add_ni(OTHER)
        options = MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE
        other.attach(20, 7, bytearray(100), options=options, handler=lambda event: None)
        for _ in range(3):
            await one.put(OTHER, 20, 7, bytes(100))
        for _ in range(2):
            await one.get(OTHER, 20, 7, bytearray(100))
        await asyncio.gather(*(one.put(OTHER, 20, 7, b"") for _ in range(40)))  # some come together
        here, there = (await peer_ni(one, OTHER), await peer_ni(other, ONE))
        local = [(await local_ni(one, ONE), here), (await local_ni(other, OTHER), there)]
        totals = [node.core.stats for node in (one, other)]
    # Discovery has sent some, too, in both directions; what one side received is what the other sent.
    for got, sent in (
        (here["received_stats"], there["sent_stats"]),
        (there["received_stats"], here["sent_stats"]),
    ):
        assert got == sent
    for ni, peer in local:  # they have one peer each
        assert all(ni[name] == peer[name] for name in ("sent_stats", "received_stats"))
    assert there["received_stats"]["put"] >= 43
    assert there["received_stats"]["get"] >= 2
    assert here["received_stats"]["ack"] >= 43
    assert here["received_stats"]["reply"] >= 2
    for shown in (here, there):
        assert shown["statistics"]["recv_count"] == sum(shown["received_stats"].values())
        assert shown["statistics"]["send_count"] == sum(shown["sent_stats"].values())
    for total, (ni, peer) in zip(totals, local, strict=True):  # bytes of payload
        for shown in (ni["load"], peer["load"]):
            assert (shown["send_length"], shown["recv_length"]) == (total.send_length, total.recv_length)
    assert here["load"]["send_length"] == there["load"]["recv_length"] >= 300
    assert there["load"]["send_length"] == here["load"]["recv_length"] >= 200


@pytest.mark.requirement("dbg-110", "dbg-115")
async def test_changes_of_nis_and_switches_of_messages_are_errors_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=tcp) as node:
        for nid in (ONE, "127.0.2.1@tcp1"):
            node.add_ni(nid)
        node.core.settings.discovery = 0
        node.add_peer("127.0.1.9@tcp", ["127.0.2.9@tcp1"])
        with pytest.raises(LNetError, match="over 2 paths"):  # nobody listens there
            await node.put("127.0.1.9@tcp", 30, 1, b"x")
        ni = node.core.nis[Nid.parse(ONE)]
        with caplog.at_level(logging.INFO):
            for event in (NiEvent.FATAL, NiEvent.RECOVERED):
                node.core.ni_event(ni, event)
            for health in (0, 1000):
                node.core.health.values.set_ni(ni, health)
    notices = [one.message for one in caplog.records if one.levelname == "INFO"]
    assert f"local NI {ONE}: device recovered, ACTIVE now" in notices
    assert f"local NI {ONE}: health is 1000: it is reported as up" in notices
    errors = [one.message for one in caplog.records if one.levelname == "ERROR"]
    assert any(line.startswith(f"local NI {ONE}: device failed") for line in errors)
    assert f"local NI {ONE}: health is 0: it is reported as down" in errors
    assert not any(", ACTIVE now" in line or "reported as up" in line for line in errors)
    pairs = ("127.0.1.1@tcp -> 127.0.1.9@tcp", "127.0.2.1@tcp1 -> 127.0.2.9@tcp1")
    switches = {f"resending over {one}: {other} failed" for one in pairs for other in pairs if one != other}
    assert switches & set(errors)


@pytest.mark.requirement("dbg-030", "dbg-110")
async def test_states_of_nis_are_shown_and_their_changes_are_logged() -> None:
    log: list[str] = []
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=tcp, report=log.append) as node:
        node.add_ni(ONE)
        ni = node.core.nis[Nid.parse(ONE)]
        admin = Admin(node)

        async def status() -> str:
            answer = await admin.handle(model.NetShow("tcp"))
            shown: str = msgspec.to_builtins(answer.document)["net"][0]["local NI(s)"][0]["status"]
            return shown

        assert (await status(), log) == ("up", [])
        node.core.ni_event(ni, NiEvent.FATAL)
        assert await status() == "down"
        assert [line for line in log if line.startswith(f"local NI {ONE}: ") and "FAILED" in line]
        log.clear()
        node.core.ni_event(ni, NiEvent.RECOVERED)
        assert await status() == "up"
        assert [line for line in log if line.startswith(f"local NI {ONE}: ") and "ACTIVE" in line]


@pytest.mark.requirement("dbg-030", "dbg-035")
async def test_a_degraded_ni_is_shown_with_the_reason() -> None:
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=tcp, report=lambda line: None) as node:
        node.add_ni(ONE)
        ni = node.core.nis[Nid.parse(ONE)]
        admin = Admin(node)

        async def load() -> tuple[str, object]:
            answer = await admin.handle(model.NetShow("tcp", load=True))
            shown = msgspec.to_builtins(answer.document)["net"][0]["local NI(s)"][0]["load"]
            return shown["state"], shown.get("degraded")

        assert await load() == ("ACTIVE", None)
        node.core.ni_event(ni, NiEvent.DEGRADED)
        assert await load() == ("DEGRADED", {"device": "its device is slower than it was"})
        node.core.ni_event(ni, NiEvent.FATAL)
        assert await load() == ("FAILED", None)


@pytest.mark.requirement("dbg-060")
async def test_one_query_shows_credits_queued_bytes_counters_and_local_nis_of_a_peer_ni() -> None:
    port = free_port()
    tcp = TcpParams(accept="all", accept_port=port, reserved_ports=False)
    async with Node(tcp=tcp) as node:
        node.core.discovery.stop()
        for nid in (ONE, "127.0.1.3@tcp"):
            node.add_ni(nid)
        node.add_peer(OTHER, ["127.0.2.9@tcp1"])
        admin = Admin(node)

        async def shown() -> dict[str, Any]:
            answer = await admin.handle(model.PeerShow([OTHER], verbosity=2, load=True))
            return dict(msgspec.to_builtins(answer.document)["peer"][0]["peer ni"][0])

        with socket.create_server((OTHER.partition("@")[0], port)):  # it takes connections, and says nothing
            puts = [asyncio.ensure_future(node.put(OTHER, 30, 1, bytes(5000), source=ONE)) for _ in range(12)]
            await asyncio.sleep(0)
            one = await shown()
            assert (one["max_ni_tx_credits"], one["available_tx_credits"], one["min_tx_credits"]) == (
                8,
                -4,
                -4,
            )
            assert one["tx_q_num_of_buf"] == 12 * (5000 + 72)
            assert one["load"]["waiting"] == 4
            assert one["statistics"]["send_count"] == 0
            assert list(one["load"]["paths"]) == [ONE]
        node.del_ni(ONE)
        assert all(isinstance(end, LNetError) for end in await asyncio.gather(*puts, return_exceptions=True))
        one = await shown()
        assert (one["max_ni_tx_credits"], one["available_tx_credits"], one["min_tx_credits"]) == (8, 8, -4)
        assert one["tx_q_num_of_buf"] == 0


@pytest.mark.requirement("HEALTH-timeouts")
async def test_drivers_are_told_what_follows_from_the_settings() -> None:
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=tcp) as node:
        admin = Admin(node)
        await admin.handle(model.NetAdd(nids=[ONE]))
        driver = node.core.nis[Nid.parse(ONE)].lnd_data
        assert isinstance(driver, NiState)
        await admin.handle(model.NetSet(net="tcp", lnd_timeout=0))  # it follows from the settings
        await admin.handle(model.GlobalSet({"transaction_timeout": 100, "retry_count": 8}))
        assert driver.timeout == 99 // 9
        await admin.handle(model.GlobalSet({"retry_count": 2}))
        assert driver.timeout == 99 // 3
        await admin.handle(model.NetSet(net="tcp", lnd_timeout=5))
        await admin.handle(model.GlobalSet({"retry_count": 1}))
        assert driver.timeout == 5
