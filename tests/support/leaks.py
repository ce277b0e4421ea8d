"""After every test, file descriptors, threads and asyncio tasks are those from before it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

_PATIENCE = 20.0  # seconds for what ends on its own: a closing thread, a transport's last callback


def open_files() -> dict[int, str]:
    """Descriptors of this process and what they stand for."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the listing's own descriptor
            continue
    return found


def _left_over(files: dict[int, str], threads: set[threading.Thread]) -> list[str]:
    new_files = [f"descriptor {fd} ({what})" for fd, what in open_files().items() if files.get(fd) != what]
    new_threads = [f"thread {thread.name}" for thread in threading.enumerate() if thread not in threads]
    return new_files + new_threads


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """File descriptors and threads return to where they began."""
    files = open_files()
    threads = set(threading.enumerate())
    yield
    if request.node.get_closest_marker("leaks") or not _left_over(files, threads):
        return
    gc.collect()
    patience = time.monotonic() + _PATIENCE
    while (left := _left_over(files, threads)) and time.monotonic() < patience:
        time.sleep(0.02)
    if left:
        pytest.fail(f"left behind: {', '.join(left)}", pytrace=False)


@pytest.fixture
async def no_task_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Asyncio tasks are those from before; every async test has this first, so that it looks last."""
    before = asyncio.all_tasks()
    yield
    if request.node.get_closest_marker("leaks"):
        return
    loop = asyncio.get_running_loop()
    patience = loop.time() + _PATIENCE
    while (left := asyncio.all_tasks() - before - {asyncio.current_task()}) and loop.time() < patience:
        await asyncio.sleep(0.01)
    if left:
        names = ", ".join(str(task.get_coro()) for task in left)
        pytest.fail(f"tasks left running: {names}", pytrace=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(inspect.unwrap(item.function)):
            item.fixturenames.insert(0, "no_task_left")
