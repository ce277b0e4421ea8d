"""Fixtures of the driver's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from lnd.kit import Side, bench


class Addresses:
    """Loopback addresses of this test worker."""

    def __init__(self, worker: int) -> None:
        self._base = f"127.{60 + worker}"

    def ip(self, host: int, net: int = 0) -> str:
        return f"{self._base}.{net}.{host}"

    def nid(self, host: int, net: int = 0) -> str:
        return f"{self.ip(host, net)}@tcp"


@pytest.fixture
def at(worker_number: int) -> Addresses:
    """Addresses to use."""
    return Addresses(worker_number)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Side]]:
    """Makes nodes that share a port and accept everybody; they close when the test ends."""
    async with bench() as maker:
        yield maker
