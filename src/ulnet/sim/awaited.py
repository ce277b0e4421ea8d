"""Operations as programs ask for them: awaited calls of `ulnet.Node`, each in a task of its node's loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ulnet.core.status import LNetError

if TYPE_CHECKING:
    from ulnet.nid import Nid
    from ulnet.sim.node import SimNode
    from ulnet.sim.traffic import Operation

__all__ = ["await_call", "count_nids", "spawn"]


def spawn(node: SimNode, make: Callable[[], Awaitable[None]]) -> None:
    """Begin what nobody waits for, in a task of the node's loop: what it raises is a failed run."""
    node.spawn(_checked(node, make))


async def _checked(node: SimNode, make: Callable[[], Awaitable[None]]) -> None:
    try:
        await make()
    except Exception as error:
        node.sim.broken(node, f"a task failed: {type(error).__name__}: {error}")


def await_call(node: SimNode, operation: Operation, call: Callable[[], Awaitable[int]]) -> Operation:
    """Begin a call that answers how many bytes were moved; the operation ends with it."""
    node.operations[operation] = None
    spawn(node, lambda: _until_done(node, operation, call))
    return operation


async def _until_done(node: SimNode, operation: Operation, call: Callable[[], Awaitable[int]]) -> None:
    try:
        operation.end(0, taken=await call())
    except LNetError as failed:
        operation.end(-failed.errno, str(failed))
    if operation.broken:
        node.sim.broken(node, operation.broken)
    node.operations.pop(operation, None)


async def count_nids(node: SimNode, target: Nid, timeout: float) -> int:
    """Ping a node; how many NIDs it has."""
    return len((await node.node.ping(target, timeout=timeout)).nids)
