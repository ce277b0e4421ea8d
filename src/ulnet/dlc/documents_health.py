"""What is under recovery, as `debug recovery` prints it (spec lnetctl.md §5)."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

__all__ = ["RecoveryDocument"]


class RecoveryDocument(Struct, rename={"local": "Local NI recovery", "peers": "Peer NI recovery"}):
    """Each queue by place (`nid-0`, …); an empty one is left out."""

    local: dict[str, str] | UnsetType = UNSET
    peers: dict[str, str] | UnsetType = UNSET
