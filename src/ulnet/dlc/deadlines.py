"""How long a client waits for the answer to a request."""

from __future__ import annotations

from collections.abc import Sequence

from ulnet.dlc.client import DEADLINE
from ulnet.dlc.model import PINGS_AT_ONCE, Discover, Ping, Request

__all__ = ["deadline_of"]

_MANY = 4096


def deadline_of(request: Request) -> float:
    """In seconds: nodes that are asked for may each take their time, so many at once."""
    if not isinstance(request, Discover | Ping):
        return DEADLINE
    return DEADLINE + (_count(request.nids) // PINGS_AT_ONCE + 1) * request.timeout


def _count(nids: Sequence[str]) -> int:
    from ulnet.nid import NidError, NidList  # late: lnetctl must start fast

    try:
        return sum(len(NidList.parse(text).expand(_MANY)) for text in nids)
    except NidError:
        return len(nids)  # the node says what is wrong
