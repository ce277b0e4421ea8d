"""Deleting NIs while messages flow: what is under way ends first, for a bounded time (Multi-Rail design)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

from ulnet.control.instance import LNet
from ulnet.core.ni import NI
from ulnet.core.status import LNetError
from ulnet.dlc.model import NetDel, NetSet
from ulnet.node.admin.health import set_nis
from ulnet.node.admin.nets import delete_nis, nis_to_delete, without_labels
from ulnet.node.admin.state import AdminState

__all__ = ["delete_nets", "drain_and_delete", "set_nets"]

_PAUSE = 0.01
_QUIET = 0.1  # seconds without a message that comes in
_TELLING = 1.0  # seconds for peers to acknowledge that they know; dead ones never do


async def delete_nets(state: AdminState, request: NetDel) -> None:
    """`net del`. Raises LNetError."""
    request = without_labels(state.core, request, state.links())
    await drain_and_delete(state.core, request, state.drain)


async def set_nets(state: AdminState, request: NetSet) -> None:
    """`net set`. Raises LNetError."""
    nis = set_nis(state.core, request)
    if request.drain is not None:
        await _set_drained(state.core, nis, bool(request.drain), state.drain)


async def drain_and_delete(core: LNet, request: NetDel, seconds: float) -> None:
    """Delete all NIs of a request or none; `force` waits for nothing. Raises LNetError."""
    nis = nis_to_delete(core, request)
    if request.force:
        delete_nis(core, request)
        return
    core.leaving.begin(nis)
    try:
        await _drain(core, nis, seconds)
        delete_nis(core, request)
    except BaseException:
        core.leaving.stay(nis)
        raise


async def _set_drained(core: LNet, nis: Sequence[NI], drained: bool, seconds: float) -> None:
    """Let NIs take nothing new, as if they were to be deleted, or be used again. Raises LNetError(EBUSY)."""
    if drained:
        core.leaving.begin(nis)
        try:
            await _drain(core, nis, seconds)
        except BaseException:
            core.leaving.stay(nis)
            raise
    core.leaving.keep(nis, drained)


async def _drain(core: LNet, nis: Sequence[NI], seconds: float) -> None:
    """Wait until nothing is held by NIs that take nothing new.

    An NI whose device has failed is not waited for. Raises LNetError(EBUSY) when what is under way takes
    longer than `seconds`. Peers that know of no other NID may send until the very end.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while held := _held(core, nis):
        if loop.time() >= begun + seconds:
            raise LNetError(errno.EBUSY, f"{held} after {seconds:g} s; try again, or delete it with --force")
        await asyncio.sleep(_PAUSE)
    core.leaving.unlist(nis)
    telling = min(loop.time() + _TELLING, begun + seconds)
    while not core.leaving.announced() and loop.time() < telling:  # noqa: ASYNC110 - bounded
        await asyncio.sleep(_PAUSE)
    await _quiet(core, nis, begun + seconds)


async def _quiet(core: LNet, nis: Sequence[NI], give_up: float) -> None:
    """Until nothing more comes in: peers that were told have sent what they had begun."""
    loop = asyncio.get_running_loop()
    seen, since = _received(nis), loop.time()
    if not seen:
        return
    while loop.time() < min(since + _QUIET, give_up):
        await asyncio.sleep(_PAUSE)
        now = _received(nis)
        if now != seen or _held(core, nis):
            seen, since = now, loop.time()


def _received(nis: Sequence[NI]) -> int:
    return sum(sum(ni.stats.received) for ni in nis if not ni.fatal)


def _held(core: LNet, nis: Sequence[NI]) -> str:
    for ni in nis:
        facts = core.leaving.held(ni) if ni.active and not ni.fatal else ""
        if facts:
            return f"{ni.nid} is in use: {facts}"
    return ""
