"""Fault rules as `fault drop|delay show` prints them (spec net-fault.md §5)."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

__all__ = ["FaultDocument", "FaultView"]


class FaultView(Struct):
    """One rule; what only drop or only delay rules have is left out of the others.

    The last four are ours, shown where they are set.
    """

    rule_type: str
    fa_src: str
    fa_dst: str
    fa_ptl_mask: int
    fa_msg_mask: int
    da_rate: int | UnsetType = UNSET
    da_interval: int | UnsetType = UNSET
    ds_dropped: int | UnsetType = UNSET
    la_rate: int | UnsetType = UNSET
    la_interval: int | UnsetType = UNSET
    la_latency: int | float | UnsetType = UNSET
    ls_delayed: int | UnsetType = UNSET
    fs_count: int = 0
    fs_put: int = 0
    fs_ack: int = 0
    fs_get: int = 0
    fs_reply: int = 0
    fa_local_nid: str | UnsetType = UNSET
    da_health_error_mask: int | UnsetType = UNSET
    da_random: bool | UnsetType = UNSET
    da_drop_all: bool | UnsetType = UNSET


class FaultDocument(Struct):
    """`fault drop show`, `fault delay show`."""

    fault: list[FaultView]
