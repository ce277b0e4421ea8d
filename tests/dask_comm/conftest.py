"""Comms of Dask over LNet, on addresses and a port of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import dask.config
import pytest
from distributed.comm.core import connect

from support.dask_ends import Ends, Far
from support.ports import free_port
from ulnet.dask.endpoint import present_endpoint


@pytest.fixture(autouse=True)
def own_port() -> Iterator[None]:
    """Tests that run side by side do not meet."""
    with dask.config.set(
        {"distributed.comm.ulnet.accept-port": free_port(), "distributed.comm.ulnet.linger": "50ms"}
    ):
        yield


@pytest.fixture
async def far() -> AsyncIterator[Far]:
    """The other process."""
    far = Far()
    yield far
    endpoint = present_endpoint()
    if endpoint is not None:
        await endpoint.close()
    await far.close_node()
    far.close()


@pytest.fixture
def make_ends(far: Far) -> Callable[..., Awaitable[Ends]]:
    """Make comms, all between the same two."""

    async def make(**options: Any) -> Ends:
        if far.listener is None:
            await far.listen(**options)
        ours = await connect(far.listener.contact_address, **options)
        return Ends(ours, await far.accepted(), far)

    return make


@pytest.fixture
async def ends(make_ends: Callable[..., Awaitable[Ends]]) -> Ends:
    """One comm."""
    return await make_ends()
