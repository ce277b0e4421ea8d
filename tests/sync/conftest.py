"""Two nodes for programs without asyncio, with two rails each, on loopback addresses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.ports import free_port
from ulnet.lnd.tcp import TcpParams
from ulnet.sync import Node

SERVER = "127.4.8.2@tcp"
Nodes = tuple[Node, Node]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """A client and a server."""
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    with Node(tcp=params) as client, Node(tcp=params) as server:
        for rail in (8, 9):
            client.add_ni(f"127.4.{rail}.1@tcp{rail - 8 or ''}")
            server.add_ni(f"127.4.{rail}.2@tcp{rail - 8 or ''}")
        yield client, server
