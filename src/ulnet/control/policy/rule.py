"""One rule: whom it is about, and what it does (spec udsp.md §1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ulnet.core.ni import NO_PRIORITY
from ulnet.core.selection.descriptor import Descriptor

__all__ = ["HIGHEST", "MAX_PRIORITY", "MAX_WEIGHT", "Effect", "Key", "Rule"]

Key: TypeAlias = tuple[Descriptor | None, Descriptor | None, Descriptor | None]

HIGHEST = 0  # of a rule for which no priority is given: what was named shall be preferred (cfg-155)
MAX_PRIORITY = NO_PRIORITY - 1
MAX_WEIGHT = 1000  # messages in a row: a longer turn would starve the others


class Effect(Enum):
    """What a rule changes; follows from which descriptors it has."""

    LOCAL_NET = "priority of local nets"
    LOCAL_NI = "priority of local NIs"
    PEER_NET = "priority of peer nets"
    PEER_NI = "priority of peer NIs"
    PATHWAY = "preferred local NIDs of peer NIs"
    GATEWAY = "preferred gateways of peer NIs"
    NOTHING = "nothing"


@dataclass(slots=True, eq=False)
class Rule:
    """`number` stays with a rule for life, whereas its index is its place in the list.

    Rules for local and for remote nets (or NIDs) of one pattern share a number: one rule of the documents.
    `weight` is how many messages go the way of what it matches before the next of equals has its turn.
    """

    number: int
    src: Descriptor | None = None
    dst: Descriptor | None = None
    rte: Descriptor | None = None
    priority: int | None = None
    weight: int | None = None

    @property
    def key(self) -> Key:
        """What it matches; no two rules have the same."""
        return self.src, self.dst, self.rte

    @property
    def is_single(self) -> bool:
        """Whether it is about nets or NIDs by themselves; only such rules need a priority."""
        return self.rte is None and (self.src is None or self.dst is None)

    @property
    def effect(self) -> Effect:
        """What it changes: NOTHING where a net stands in place of NIDs, or a gateway alone."""
        src, dst, rte = self.key
        if rte is not None:
            pair = dst is not None and not dst.is_net and not rte.is_net
            return Effect.GATEWAY if pair else Effect.NOTHING
        if src is not None and dst is not None:
            return Effect.NOTHING if src.is_net or dst.is_net else Effect.PATHWAY
        if src is not None:
            return Effect.LOCAL_NET if src.is_net else Effect.LOCAL_NI
        return Effect.PEER_NET if dst is not None and dst.is_net else Effect.PEER_NI

    def __str__(self) -> str:
        parts = zip(("src", "dst", "rte"), self.key, strict=True)
        return ", ".join(f"{name} {one}" for name, one in parts if one is not None)
