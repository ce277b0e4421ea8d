"""`ulnet ping` on a host where a node runs already."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.lnd.tcp import TcpParams

HERE, THERE = "127.4.6.1@tcp", "127.4.6.2@tcp"


class Pair(NamedTuple):
    """Two nodes that know each other; commands run on the host of the first one."""

    here: Node
    port: int

    async def ulnet(self, *words: str) -> tuple[int, str, str]:
        words = (*words, "--port", str(self.port))
        done = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ulnet", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await done.communicate()
        return done.returncode or 0, out.decode(), err.decode()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(Node(tcp=params)) for _ in range(2)]
        here.add_ni(HERE)
        there.add_ni(THERE)
        await here.discover(THERE, timeout=30)
        yield Pair(here, params.accept_port)


async def test_a_nid_that_is_free_asks(pair: Pair) -> None:
    status, out, err = await pair.ulnet("ping", "--timeout", "30", THERE)
    assert (status, err) == (0, "")
    assert f"- nid: {THERE}" in out


async def test_peers_are_not_made_to_take_it_for_the_node_of_this_host(pair: Pair) -> None:
    status, out, _ = await pair.ulnet("ping", "--timeout", "30", "--source", HERE, THERE)
    assert status == 1
    assert f"{HERE}: a node of this host listens there" in out
    assert "lnetctl ping" in out
    await pair.here.ping(THERE, timeout=30)


async def test_calls_do_not_come_from_the_nid_of_another_node(pair: Pair) -> None:
    status, out, err = await pair.ulnet("rpc", "methods", "--source", HERE, THERE, "sums")
    assert (status, out) == (1, "")
    assert f"{HERE}: a node of this host listens there" in err
