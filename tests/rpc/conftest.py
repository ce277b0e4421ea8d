"""Two nodes with two rails each, on loopback addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.lnd.tcp import TcpParams
from ulnet.wire.rpc import HEAD_SIZE


def assert_conserved(node: Node) -> None:
    """Nothing of what went through the node is left."""
    core = node.core
    assert core.stats.msgs_alloc == 0
    for ni in core.nis.values():
        assert (ni.tx_credits, ni.refs) == (ni.max_tx_credits, 0)
    attached = [md for md in core.memory.mds.values() if md.me is not None and md.length > HEAD_SIZE]
    assert all(md.refs == 0 for md in core.memory.mds.values())
    assert [md for md in core.memory.mds.values() if md.me is None] == []
    assert [md for md in attached if md.me and md.me.portal.index == 42] == []


@pytest.fixture
async def nodes() -> AsyncIterator[tuple[Node, Node]]:
    """A client and a server."""
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    client, server = Node(tcp=params), Node(tcp=params)
    async with client, server:
        for rail in (0, 1):
            client.add_ni(f"127.4.{rail}.1@tcp{rail or ''}")
            server.add_ni(f"127.4.{rail}.2@tcp{rail or ''}")
        yield client, server
        await client.close()
        await server.close()


SERVER = "127.4.0.2@tcp"
