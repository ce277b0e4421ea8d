"""Requests for sums, heat and rates (Multi-Rail requirements dbg-040 to dbg-120)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ulnet.dlc.request import BaseRequest

__all__ = ["SumsShow", "UseShow"]


class SumsShow(BaseRequest, tag="sums.show"):
    """Counters added up over the NIs of each local net, or over the NIDs of each peer; or of one, by name."""

    verb = "show"
    entity = "statistics"
    of: Literal["nets", "peers"] = "nets"
    name: str | None = None


class UseShow(BaseRequest, tag="use.show"):
    """Heat and rates of local NIs or of peer NIs, the hottest first; `top` is how many at most (0: all)."""

    verb = "show"
    entity = "statistics"
    of: Literal["nets", "peers"] = "nets"
    top: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 0
