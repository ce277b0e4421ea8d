"""Large frames are fetched in their order, so many bytes ahead."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from ulnet.dask.fetch_queue import AHEAD, FetchQueue
from ulnet.rpc import RpcError

pytestmark = pytest.mark.requirement("ULP")

HALF = AHEAD // 2


class Lender:
    """A call whose bulk comes when the test says so."""

    def __init__(self) -> None:
        self.came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tell: Callable[[int, int], None] | None = None  # there once it is being fetched

    async def pull(self, into: Any, *, progress: Callable[[int, int], None]) -> None:
        self.tell = progress
        await self.came

    @property
    def is_fetched(self) -> bool:
        return self.tell is not None


def begin(queue: FetchQueue, size: int, count: int) -> tuple[list[Lender], list[asyncio.Task[None]]]:
    calls: list[Any] = [Lender() for _ in range(count)]
    memory = memoryview(bytearray(size))
    return calls, [asyncio.create_task(queue.fetch(call, memory, lambda _: None)) for call in calls]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_frames_are_fetched_in_their_order_so_far_ahead() -> None:
    queue = FetchQueue()
    calls, tasks = begin(queue, HALF, 4)
    await settle()
    assert [call.is_fetched for call in calls] == [True, True, False, False]
    assert calls[0].tell is not None
    calls[0].tell(1, HALF)  # a byte less than AHEAD is to come
    await settle()
    assert [call.is_fetched for call in calls] == [True, True, True, False]
    for call, task in zip(calls, tasks, strict=True):
        await settle()
        call.came.set_result(None)
        await task
    assert queue.idle


async def test_what_is_larger_is_fetched_by_itself() -> None:
    queue = FetchQueue()
    calls, tasks = begin(queue, 3 * AHEAD, 2)
    await settle()
    assert [call.is_fetched for call in calls] == [True, False]
    for call in calls:
        await settle()
        call.came.set_result(None)
    await asyncio.gather(*tasks)
    assert queue.idle


async def test_one_that_fails_or_is_given_up_makes_room() -> None:
    queue = FetchQueue()
    calls, tasks = begin(queue, AHEAD, 5)
    await settle()
    tasks[1].cancel()  # it waits
    calls[0].came.set_exception(RpcError(errno.EIO, "it failed"))
    await settle()
    assert [call.is_fetched for call in calls] == [True, False, True, False, False]
    tasks[2].cancel()  # it is being fetched
    await settle()
    assert calls[3].is_fetched
    calls[3].came.set_result(None)
    while not tasks[3].done():  # in this turn of the loop the next one is called, and has not begun
        await asyncio.sleep(0)
    tasks[4].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    kinds = [type(result) for result in results]
    cancelled = asyncio.CancelledError
    assert kinds == [RpcError, cancelled, cancelled, type(None), cancelled]
    assert not calls[4].is_fetched
    assert queue.idle
