"""What a node was started with, as its clients read it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ulnet.dlc.model import Request
from ulnet.dlc.request import Tunables

__all__ = ["OptionsDocument"]


class OptionsDocument(Struct):
    """Its CPTs, whether it prefers IPv6, and its module parameters: requests, and tunables by net type.

    Of several sources of module parameters the last one counts.
    """

    cpts: int
    large: bool
    requests: list[Request]
    drivers: list[Mapping[int, Tunables]]
