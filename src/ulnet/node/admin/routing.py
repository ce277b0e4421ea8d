"""`set routing`, `set …_buffers`, `routing show` (spec lnetctl.md §2, routing.md §4, §5)."""

from __future__ import annotations

from math import ceil

from ulnet.control.instance import LNet
from ulnet.control.view import View
from ulnet.core.routing import BufferPool, RoutingState
from ulnet.dlc.documents_routing import BufferView, RoutingDocument
from ulnet.dlc.model import BuffersSet, RouterSet, RoutingSet
from ulnet.dlc.protocol import Answer
from ulnet.dlc.settings import BUFFERS

__all__ = ["backup_routing", "set_buffers", "set_router", "set_routing", "show_routing"]

_OFF = "routing is off on this node"
_ON = "'lnetctl set routing 1'"
_ROUTES = (RoutingState.ENABLED, RoutingState.STARTING)


def set_routing(core: LNet, request: RoutingSet) -> None:
    """Forward messages from now on, or no more. Raises LNetError."""
    core.router.enable(request.enable)


def set_buffers(core: LNet, request: BuffersSet) -> Answer:
    """Have so many buffers. Raises LNetError(EINVAL).

    The answer notes where they are forgotten, since routing is off.
    """
    given = (getattr(request, size) for size in BUFFERS)
    core.router.set_buffers(*(None if count == -1 else count for count in given))
    if core.router.state is not RoutingState.DISABLED:
        return Answer()
    return Answer(notes=[f"{_OFF}, so nothing was set: {_ON} comes first, and begins with the defaults"])


def set_router(core: LNet, request: RouterSet) -> None:
    """Set what gateways are judged by: all values or none. Raises LNetError(EINVAL)."""
    core.gateways.set(request.values)


def show_routing(core: View) -> Answer:
    """Nothing but a note where routing is off, as today; while it starts or stops, how long that takes."""
    router = core.router
    if not router.opened:
        return Answer(RoutingDocument(), notes=[f"{_OFF}: {_ON} turns it on"])
    items: list[dict[str, int | dict[str, BufferView]]] = [
        {f"cpt[{cpt}]": {name: _pool(pool) for name, pool in zip(BUFFERS, pools, strict=True)}}
        for cpt, pools in enumerate(router.gate.pools.by_cpt)
    ]
    document = RoutingDocument([*items, {"enable": int(router.state)}], _counts(core))
    if router.until:
        document.seconds_left = max(ceil(router.until - core.clock()), 0)
    return Answer(document)


def backup_routing(core: View) -> tuple[dict[str, int], dict[str, int]]:
    """What a restore needs: whether the node routes, its settings and numbers of buffers."""
    settings = core.gateways.settings.changed()
    if core.router.state not in _ROUTES:
        return settings, {}
    return {"enable": 1, **settings}, _counts(core)


def _counts(core: View) -> dict[str, int]:
    return dict(zip(BUFFERS, core.router.gate.pools.counts, strict=True))


def _pool(pool: BufferPool) -> BufferView:
    return BufferView(pool.pages, pool.count, pool.credits, pool.min_credits)
