"""Answers to small messages, for which no writer waits: they leave together."""

from __future__ import annotations

import asyncio

import pytest

from support.dask_ends import Ends
from ulnet.dask import partner

pytestmark = [
    pytest.mark.requirement("ULP"),
    pytest.mark.leaks("the thread in which Dask serializes large messages is kept"),
]

TOGETHER = 16


async def confirmed(ends: Ends) -> None:
    """All that was written is."""
    async with asyncio.timeout(60):
        while ends.ours._calls:
            await asyncio.sleep(0.001)


async def test_answers_to_small_messages_wait_for_each_other(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    await confirmed(ends)
    monkeypatch.setattr(partner, "_LONGEST", 3600.0)
    for number in range(TOGETHER - 1):
        await ends.ours.write(number)
        assert await ends.read() == number, "who reads waits for nothing"
    assert len(ends.ours._calls) == TOGETHER - 1
    before = ends.ours.endpoint.node.core.stats.recv_count
    await ends.ours.write("the last")
    await confirmed(ends)
    assert await ends.read() == "the last"
    assert ends.ours.endpoint.node.core.stats.recv_count - before < TOGETHER / 2


async def test_one_answer_waits_a_moment(ends: Ends) -> None:
    await ends.ours.write("alone")
    assert await ends.read() == "alone"
    await confirmed(ends)


async def test_a_message_that_its_writer_waits_for_is_answered_at_once(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    await confirmed(ends)
    monkeypatch.setattr(partner, "_LONGEST", 3600.0)
    async with asyncio.timeout(60):
        await asyncio.gather(ends.ours.write(bytes(1 << 20)), ends.read())
