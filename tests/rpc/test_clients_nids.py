"""A client of several NIDs at a server that does not discover its peers: each NID is a peer there."""

from __future__ import annotations

import pytest

from rpc.conftest import SERVER
from ulnet import Node
from ulnet.rpc import Call, Client, Server, Service

pytestmark = pytest.mark.requirement("ULP")

Nodes = tuple[Node, Node]


async def test_one_session_serves_all_nids_of_a_client(nodes: Nodes) -> None:
    node, home = nodes
    home.core.set_discovery(0)
    node.add_peer(SERVER, ["127.4.1.2@tcp1"])
    service = Service("plain")
    came: set[str] = set()
    clients: set[str] = set()

    @service.method("echo")
    async def echo(call: Call) -> bytes:
        came.add(str(call.lane.target))
        clients.add(str(call.client))
        return bytes(call.data)

    async with Server(service, home) as server, Client(node, SERVER, "plain") as client:
        for number in range(20):
            assert (await client.call("echo", b"%d" % number, timeout=60)).data == b"%d" % number
        assert (client.counters.sessions, server.sessions) == (1, 1)
    assert came == {"127.4.0.1@tcp", "127.4.1.1@tcp1"}
    assert len(clients) == 1
