"""Bonding in a program, over real sockets on loopback addresses."""

from __future__ import annotations

import asyncio

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.lnd import NiEvent
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from ulnet.wire.lnet import MsgType

PORTAL, BITS = 30, 7


def new_node(port: int) -> Node:
    return Node(tcp=TcpParams(accept="all", accept_port=port, reserved_ports=False), report=lambda line: None)


def with_slaves(node: Node, number: int, mode: str) -> str:
    """Two loopback addresses on two nets, bonded; the bonding NID."""
    for rail, net in enumerate(("tcp", "tcp1")):
        node.add_ni(f"127.0.{rail + 8}.{number}@{net}")
    return str(node.add_bond("bond0", ["*@tcp0", "*@tcp1"], mode=mode).nid)


@pytest.mark.requirement("BOND-ni", "LND-bond")
@pytest.mark.parametrize("mode", ["standby", "loadbalance"])
async def test_puts_gets_and_pings_between_bonding_nids(mode: str) -> None:
    port = free_port()
    async with new_node(port) as server, new_node(port) as client:
        there = with_slaves(server, 1, mode)
        here = with_slaves(client, 2, mode)
        memory = bytearray(1 << 20)
        inbox = server.attach(PORTAL, BITS, memory, options=OP_PUT | MANAGE_REMOTE)
        data = bytes(range(256)) * 4096
        assert await client.put(there, PORTAL, BITS, data) == len(data)
        event = await inbox.next_event()
        assert str(event.initiator) == str(event.source) == here
        assert bytes(memory) == data
        assert (await client.ping(there)).nids  # a GET to the bonding NI
        bond = client.core.nis[Nid.parse(here)]
        await asyncio.gather(*(client.put(there, PORTAL, BITS, b"x", ack=True) for _ in range(50)))
        # A push may have left as well, since the ping told of a peer that was not up to date, and answers.
        assert bond.stats.sent[MsgType.PUT] in (51, 52) and bond.stats.sent[MsgType.GET] == 1
        slaves = [
            sum(client.core.nis[Nid.parse(f"127.0.{rail}.2@{net}")].stats.sent)
            for rail, net in (
                (8, "tcp"),
                (9, "tcp1"),
            )
        ]
        assert min(slaves) < 10 if mode == "standby" else min(slaves) >= 20


@pytest.mark.requirement("BOND-modes")
async def test_the_backup_takes_over_when_the_device_of_the_default_slave_fails() -> None:
    port = free_port()
    async with new_node(port) as server, new_node(port) as client:
        there = with_slaves(server, 1, "standby")
        with_slaves(client, 2, "standby")
        server.attach(PORTAL, BITS, bytearray(16))
        await client.put(there, PORTAL, BITS, b"1")
        default = client.core.nis[Nid.parse("127.0.8.2@tcp")]
        sent = default.stats.sent[1]
        client.core.ni_event(default, NiEvent.FATAL)
        for _ in range(5):
            await client.put(there, PORTAL, BITS, b"2")
        assert default.stats.sent[1] == sent
        client.core.ni_event(default, NiEvent.RECOVERED)
        async with asyncio.timeout(60):
            while default.stats.sent[1] == sent:
                await client.put(there, PORTAL, BITS, b"3")
                await asyncio.sleep(0.05)


async def test_what_cannot_be_bonded_is_refused() -> None:
    async with new_node(free_port()) as node:
        node.add_ni("127.0.8.1@tcp")
        for net, slaves, words in (
            ("bond", ["*@tcp9"], "no NI of this node is meant"),
            ("tcp", ["*@tcp"], "net tcp is no bonding net"),
            ("bondage", ["*@tcp"], "after bond comes a number"),
        ):
            with pytest.raises(LNetError, match=words):
                node.add_bond(net, slaves)
        node.add_bond("bond0", ["*@tcp"])
        with pytest.raises(LNetError, match="is a slave of"):
            node.del_ni("127.0.8.1@tcp")
        node.del_ni("127.0.8.1@bond")
        node.del_ni("127.0.8.1@tcp")
