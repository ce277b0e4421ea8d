"""What a program tells others of its node: the control socket, and statistics of each rail."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.ports import free_port
from ulnet import LNetError, Node, TcpParams
from ulnet.dlc import calls
from ulnet.dlc.aclient import AsyncClient

PORTAL, BITS = 30, 1


def node(port: int) -> Node:
    return Node(tcp=TcpParams(accept="all", accept_port=port, reserved_ports=False))


@pytest.mark.requirement("dbg-005")
async def test_each_rail_tells_what_it_carried() -> None:
    port = free_port()
    async with node(port) as server, node(port) as client:
        server.add_ni("127.0.0.1@tcp")
        client.add_ni("127.0.0.2@tcp")
        server.attach(PORTAL, BITS, bytearray(4096))
        await client.put("127.0.0.1@tcp", PORTAL, BITS, b"x" * 1000)
        (rail,) = client.rails()
        assert (str(rail.nid), rail.up, rail.health, rail.interface) == ("127.0.0.2@tcp", True, 1000, None)
        assert rail.sent_bytes >= 1000
        assert rail.sent >= 1
        assert rail.received >= 1  # the ACK
        assert rail.latency > 0
        (there,) = server.rails()
        assert there.received_bytes >= 1000


@pytest.mark.requirement("cfg-005")
async def test_a_program_serves_lnetctl(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    async with node(free_port()) as one:
        async with one.serve_control(path):
            one.add_ni("127.0.0.1@tcp")
            async with AsyncClient(str(path)) as client:
                shown = await client.call(calls.show_nets())
            assert [net.net_type for net in shown] == ["lo", "tcp"]
        assert not path.exists()


async def test_a_socket_that_another_holds_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    async with node(free_port()) as one, one.serve_control(path):
        with pytest.raises(LNetError, match=r"node\.sock"):
            async with one.serve_control(path):
                pass
        async with AsyncClient(str(path)) as client:  # the first is still there
            assert await client.call(calls.show_nets())
