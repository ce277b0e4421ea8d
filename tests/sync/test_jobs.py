"""Who of those that wait for a thread is next."""

from __future__ import annotations

import asyncio
from contextvars import copy_context

import pytest

from ulnet.sync.jobs import Job, Jobs

pytestmark = pytest.mark.requirement("ULP")


def added(jobs: Jobs, *clients: str | None) -> list[Job]:
    """One job each; None: of a call."""
    loop = asyncio.get_running_loop()
    made = [Job(loop.create_future(), copy_context(), lambda: None, client) for client in clients]
    for job in made:
        jobs.add(job)
    return made


def taken(jobs: Jobs) -> list[Job]:
    """All that may run now."""
    running = []
    while (job := jobs.next()) is not None:
        running.append(job)
    return running


async def test_a_client_has_as_many_threads_as_it_leaves_to_others() -> None:
    jobs = Jobs(16)
    a = added(jobs, *["a"] * 9)
    assert taken(jobs) == a[:4]
    b, c = added(jobs, *["b"] * 9), added(jobs, *["c"] * 9)
    assert taken(jobs) == [b[0], c[0], b[1]]
    jobs.ended(b[0])
    assert taken(jobs) == [c[1]], "clients are served in turn"
    (d,) = added(jobs, "d")
    assert taken(jobs) == [d]


async def test_streams_have_half_of_the_threads_and_calls_any() -> None:
    jobs = Jobs(8)
    steps = added(jobs, *"abcdef")
    calls = added(jobs, *[None] * 3)
    running = taken(jobs)
    assert running == [steps[0], calls[0], steps[1], calls[1], steps[2], calls[2], steps[3]]
    for call in calls:
        jobs.ended(call)
    assert taken(jobs) == []
    jobs.ended(steps[0])
    assert taken(jobs) == [steps[4]]


async def test_of_one_thread_streams_and_calls_have_every_other_turn() -> None:
    jobs = Jobs(1)
    steps, calls = added(jobs, *"ab"), added(jobs, None, None)
    order = []
    for _ in range(4):
        job = jobs.next()
        assert job is not None
        order.append(job)
        jobs.ended(job)
    assert order == [steps[0], calls[0], steps[1], calls[1]]
    assert not jobs.waiting


async def test_what_is_given_up_waits_no_more() -> None:
    jobs = Jobs(2)
    waits, step, call = added(jobs, "a", "a", None)
    assert jobs.remove(step) and jobs.remove(call)
    assert not jobs.remove(step) and not jobs.remove(call)
    assert jobs.next() is waits
    assert not jobs.waiting and not jobs.remove(waits)
