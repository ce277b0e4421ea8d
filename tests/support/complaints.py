"""What fails in a callback of the loop is written to a log and forgotten: here it fails the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_callback_fails(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unless the test has a handler of its own for that, as one that causes it has."""
    complaints: list[dict[str, Any]] = []
    usual = asyncio.BaseEventLoop.default_exception_handler

    def note(loop: asyncio.BaseEventLoop, context: dict[str, Any]) -> None:
        complaints.append(context)
        usual(loop, context)

    monkeypatch.setattr(asyncio.BaseEventLoop, "default_exception_handler", note)
    yield
    assert not complaints
