"""How much each rule is about, and for how much of that it decides (spec udsp.md §6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ulnet.control.policy.peer_rules import PeerRules
from ulnet.control.policy.rule import Effect, Rule
from ulnet.core.state import NodeState
from ulnet.nid import Nid, places_of

__all__ = ["Census"]


class Census:
    """Counts of nets, NIs, peer nets, peer NIs and pairs of NIs, with the rules and NIs as they are now.

    `count` makes them, in as many steps as there are peer NIs and more. Who came or left meanwhile may be in
    them or not.
    """

    __slots__ = ("_about", "_here", "_peers", "decides", "matches")

    def __init__(self, state: NodeState, rules: Iterable[Rule]) -> None:
        self.matches: Counter[Rule] = Counter()
        self.decides: Counter[Rule] = Counter()  # earlier rules override later ones
        self._about = PeerRules(rules)
        self._peers = list(state.peers)
        self._here: dict[Rule, list[Nid]] = {}
        nets: list[Rule | None] = [None] * len(state.nets)
        nis: list[Rule | None] = [None] * len(state.nis)
        for rule in rules:
            if rule.src is None:
                continue
            here = self._here[rule] = list(filter(rule.src.match_nid, state.nis))
            if rule.effect is Effect.LOCAL_NET:
                self._see(rule, nets, map(rule.src.match_net, state.nets))
            elif rule.effect is Effect.LOCAL_NI:
                self._see(rule, nis, [nid in here for nid in state.nis])

    def _see(self, rule: Rule, deciding: list[Rule | None], found: Iterable[bool]) -> None:
        for at, matches in enumerate(found):
            if matches:
                self.matches[rule] += 1
                if deciding[at] is None:
                    deciding[at] = rule
                    self.decides[rule] += 1

    def count(self) -> Iterator[None]:
        """Count what peers have, step by step."""
        about = self._about
        of_nets = about.having(Effect.PEER_NET)
        sets: Counter[int] = Counter()  # of rules that match the same
        for peer in self._peers:
            yield None
            if peer.gone:
                continue
            for net in list(peer.nets.values()):
                without = 0  # the rules about the net count it once
                for pni in list(net.nis):
                    sets[about.match(pni.nid) & ~without] += 1
                    without = of_nets
                    yield None
        for found, count in sets.items():
            self._add(found, count)
            yield None

    def _add(self, found: int, count: int) -> None:
        rules = self._about.rules
        for at in places_of(found):
            rule = rules[at]
            self.matches[rule] += count * (1 if rule.src is None else len(self._here[rule]))
        for effect in (Effect.PEER_NET, Effect.PEER_NI):
            first = self._about.first(found, effect)
            if first is not None:
                self.decides[first] += count
        for rule in self._about.pathways(found, self._here.__getitem__).values():
            self.decides[rule] += count
