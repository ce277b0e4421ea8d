"""What may be a handler: told when it is made one, or when it is served, not when a client calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

__all__ = ["ASYNC_METHOD", "ASYNC_STREAM", "check_asynchronous", "check_kind", "check_parameters"]

ASYNC_METHOD: Final = "make it `async def`; plain functions are served by ulnet.sync.Server"
ASYNC_STREAM: Final = "make it `async def` with `yield`; plain generators are served by ulnet.sync.Server"


def _told(name: str, handler: object) -> str:
    """Which handler it is."""
    function = getattr(handler, "__qualname__", None) or type(handler).__qualname__
    return f"{name}: {function}"


def check_kind(name: str, handler: object, *, stream: bool) -> None:
    """Raises TypeError for what yields under `method`, or does not under `stream`. It may be asynchronous."""
    if not callable(handler):
        raise TypeError(f"{_told(name, handler)} cannot be called: a handler is a function")
    if stream and inspect.iscoroutinefunction(handler):
        words = "is no generator function, which a stream is: have it yield, or put it under @service.method"
        raise TypeError(f"{_told(name, handler)} {words}")
    yields = inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler)
    if not stream and yields and not inspect.iscoroutinefunction(handler):
        words = "has `yield`, as streams have: put it under @service.stream, or have it return"
        raise TypeError(f"{_told(name, handler)} {words}")


def check_parameters(name: str, handler: Callable[..., Any], count: int) -> None:
    """Raises TypeError for a handler that cannot be called with so many."""
    try:
        inspect.signature(handler).bind(*[None] * count)
    except TypeError as bad:
        words = "a handler takes the call, and the data if it has a second parameter"
        raise TypeError(f"{_told(name, handler)}: {words}: {bad}") from None


def check_asynchronous(name: str, handler: object) -> None:
    """Raises TypeError for a plain generator function, which nothing here can wait for."""
    if inspect.isgeneratorfunction(handler):
        raise TypeError(f"{_told(name, handler)} is a plain generator function: {ASYNC_STREAM}")
