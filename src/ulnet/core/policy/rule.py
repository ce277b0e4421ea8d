"""One rule: whom it is about, and what it does (spec udsp.md §1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ulnet.core.ni import NO_PRIORITY
from ulnet.core.policy.descriptor import Descriptor

__all__ = ["MAX_PRIORITY", "Effect", "Rule"]

MAX_PRIORITY = NO_PRIORITY - 1


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
    """

    number: int
    src: Descriptor | None = None
    dst: Descriptor | None = None
    rte: Descriptor | None = None
    priority: int | None = None

    @property
    def key(self) -> tuple[Descriptor | None, Descriptor | None, Descriptor | None]:
        """What it matches; no two rules have the same."""
        return self.src, self.dst, self.rte

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
