"""Rules about peers: which of them are about a NID, and what they make of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from ulnet.control.policy.rule import HIGHEST, Effect, Rule
from ulnet.core.ni import NO_PRIORITY, NO_WEIGHT
from ulnet.core.selection.descriptor import Descriptor
from ulnet.nid import AddressPattern, NetPattern, Nid, NidIndex, places_of

__all__ = ["Outcome", "PeerRules", "actions"]


class Outcome(NamedTuple):
    """What rules make of a peer NI: priority and weight of it and of its net, and the ways to it."""

    net: tuple[int, int]
    ni: tuple[int, int]
    preferred_nids: frozenset[Nid]
    pathways: Mapping[Nid, int]
    turn_lengths: Mapping[Nid, int]
    gateways: tuple[Descriptor, ...]


class PeerRules:
    """Some rules in their order; those that are about no peer are left out.

    Sets of them are integers, as those of `NidIndex`. NIDs that the same rules match have one outcome.
    """

    __slots__ = ("_index", "_of", "rules")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: list[Rule] = []
        self._of: dict[Effect, int] = dict.fromkeys(Effect, 0)
        patterns: list[tuple[NetPattern, AddressPattern | None]] = []
        for rule in rules:
            effect = rule.effect
            if rule.dst is not None and effect is not Effect.NOTHING:
                self._of[effect] |= 1 << len(patterns)
                self.rules.append(rule)
                patterns.append((rule.dst.nets, rule.dst.addresses))
        self._index = NidIndex(patterns)

    def match(self, nid: Nid) -> int:
        """The rules about a peer's NID, and about its net."""
        return self._index.match(nid)

    def having(self, effect: Effect) -> int:
        """The rules that do that."""
        return self._of[effect]

    def first(self, found: int, effect: Effect) -> Rule | None:
        """The first rule that matches, which decides."""
        return next((self.rules[at] for at in places_of(found & self._of[effect])), None)

    def pathways(self, found: int, here: Callable[[Rule], Collection[Nid]]) -> dict[Nid, Rule]:
        """The rule of each local NID that one prefers; `here` has the local NIDs that a rule matches.

        Of the rules with neither priority nor weight the first is in force, as today; others add to it.
        """
        ways: dict[Nid, Rule] = {}
        plain = False
        for at in places_of(found & self._of[Effect.PATHWAY]):
            rule = self.rules[at]
            if rule.priority is None and rule.weight is None:
                if plain:
                    continue
                plain = True
            for nid in here(rule):
                ways.setdefault(nid, rule)
        return ways

    def outcome(self, found: int, here: Callable[[Rule], Collection[Nid]]) -> Outcome:
        """What these rules make of a peer NI."""
        ways = self.pathways(found, here)
        gateways = [self.rules[at].rte for at in places_of(found & self._of[Effect.GATEWAY])]
        return Outcome(
            net=actions(self.first(found, Effect.PEER_NET)),
            ni=actions(self.first(found, Effect.PEER_NI)),
            preferred_nids=frozenset(ways),
            pathways={nid: rule.priority or HIGHEST for nid, rule in ways.items()},
            turn_lengths={nid: rule.weight for nid, rule in ways.items() if rule.weight is not None},
            gateways=tuple([one for one in gateways if one is not None]),
        )


def actions(rule: Rule | None) -> tuple[int, int]:
    """Priority and weight."""
    if rule is None:
        return NO_PRIORITY, NO_WEIGHT
    return (
        NO_PRIORITY if rule.priority is None else rule.priority,
        NO_WEIGHT if rule.weight is None else rule.weight,
    )
