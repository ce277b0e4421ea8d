"""What a program tells others of its node: the control socket, and statistics of each rail."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from support.ports import free_port
from ulnet import LNetError, Node, TcpParams
from ulnet.dlc import calls
from ulnet.dlc.aclient import AsyncClient
from ulnet.dlc.endpoint import Endpoint

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


def _listens_in_child(path: Path) -> bool:
    """Whether a child that is forked now has a descriptor that listens there."""
    child = os.fork()
    if not child:
        found = False
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                one = socket.socket(fileno=number)
                found |= one.getsockname() == str(path) and bool(
                    one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                )
                one.detach()
            except OSError:
                pass
        os._exit(found)
    return os.waitpid(child, 0)[1] != 0


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
async def test_the_control_socket_is_of_the_process_that_made_it(tmp_path: Path) -> None:
    """A worker that outlived its parent kept it busy, and one that left the block removed it."""
    path = tmp_path / "node.sock"
    _leave_to_child(path)
    async with node(free_port()) as one, one.serve_control(path):
        assert not _listens_in_child(path)
        async with AsyncClient(str(path)) as client:
            assert await client.call(calls.show_nets())


def _leave_to_child(path: Path) -> None:
    endpoint = Endpoint(str(path))
    assert _listens_in_child(path)
    child = os.fork()
    if not child:
        endpoint.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert path.exists()
    endpoint.close()
    assert not path.exists()
