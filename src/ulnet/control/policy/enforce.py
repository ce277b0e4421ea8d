"""Rules applied to the node's nets, NIs and peers (spec udsp.md §4).

Rules are evaluated when they or the objects change, and leave their result in the objects, where path
selection reads it. That result is always the one of applying the whole list afresh; so a rule that is
deleted leaves nothing behind, and what it had overridden is in force again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from ulnet.control.policy.rule import HIGHEST, Effect, Rule
from ulnet.control.policy.table import RuleTable
from ulnet.core.ni import NO_PRIORITY, NO_WEIGHT
from ulnet.core.peer import PeerNi
from ulnet.core.selection.descriptor import Descriptor
from ulnet.core.state import NodeState
from ulnet.nid import Net, Nid

__all__ = ["Policies"]


class Policies:
    """The rules of one node, kept apart from what they match, and their application."""

    __slots__ = ("_by_effect", "_state", "rules")

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.rules: RuleTable = RuleTable()
        self._by_effect: dict[Effect, list[Rule]] = {effect: [] for effect in Effect}

    # Rules -----------------------------------------------------------------------------------------

    def add(
        self,
        *,
        src: Descriptor | None = None,
        dst: Descriptor | None = None,
        rte: Descriptor | None = None,
        priority: int | None = None,
        index: int | None = None,
        weight: int | None = None,
    ) -> None:
        """Add a rule at `index`, or at the end; one that matches the same gets the new priority and weight.

        Raises LNetError and changes nothing: EINVAL, EALREADY, ENOSPC.
        """
        self._changed([self.rules.add(src, dst, rte, priority, index, weight)])

    def delete(self, index: int) -> None:
        """Delete one rule and its effects. Raises LNetError(ENOENT)."""
        self._changed([self.rules.delete(index)])

    def remove(self, rules: Collection[Rule]) -> None:
        """Delete these rules."""
        self.rules.remove(rules)
        self._changed(rules)

    def clear(self) -> None:
        """Delete all rules."""
        self.rules.clear()
        self._sort()
        self._apply_to_locals()
        for pni in self._state.peers.nis():
            self._apply_to_peer_ni(pni)

    def matches(self, rule: Rule) -> int:
        """How many nets, NIs, peer nets, peer NIs or pairs of NIs the rule is about at this moment."""
        state, effect, src, dst = self._state, rule.effect, rule.src, rule.dst
        peer_nets = [net for peer in state.peers for net in peer.nets.values()]
        if effect is Effect.LOCAL_NET and src is not None:
            return sum(map(src.match_net, state.nets))
        if effect is Effect.PEER_NET and dst is not None:
            return sum(dst.match_net(one.net) for one in peer_nets)
        if effect is Effect.NOTHING:
            return 0
        here = 1 if src is None else sum(map(src.match_nid, state.nis))
        there = 1 if dst is None else sum(dst.match_nid(pni.nid) for one in peer_nets for pni in one.nis)
        return here * there

    def in_force(self) -> Counter[Rule]:
        """Of what each rule matches, for how many it decides: earlier rules override later ones."""
        state = self._state
        peer_nets = [net for peer in state.peers for net in peer.nets.values()]
        first: list[Rule | None] = [self._for_net(Effect.LOCAL_NET, net) for net in state.nets]
        first += [self._for_nid(Effect.LOCAL_NI, nid) for nid in state.nis]
        first += [self._for_net(Effect.PEER_NET, net.net) for net in peer_nets]
        first += [self._for_nid(Effect.PEER_NI, pni.nid) for net in peer_nets for pni in net.nis]
        pairs = [rule for net in peer_nets for pni in net.nis for rule in self._pathways(pni).values()]
        return Counter([rule for rule in (*first, *pairs) if rule is not None])

    # Application -----------------------------------------------------------------------------------

    def nis_changed(self) -> None:
        """Local nets or NIs came or went; the caller invalidates the generation."""
        if not self.rules:
            return
        self._apply_to_locals()
        if self._by_effect[Effect.PATHWAY]:
            for pni in self._state.peers.nis():
                self._set_pathways(pni)

    def _changed(self, rules: Collection[Rule]) -> None:
        """Rules came, went or got another priority: only what they match can have another result now."""
        self._sort()
        for rule in rules:
            if rule.dst is None:
                self._apply_to_locals()
            else:
                for pni in self._matched_by(rule.dst):
                    self._apply_to_peer_ni(pni)

    def _sort(self) -> None:
        for kept in self._by_effect.values():
            kept.clear()
        for rule in self.rules:
            self._by_effect[rule.effect].append(rule)
        self._state.generation.invalidate("policies")

    def _matched_by(self, dst: Descriptor) -> Iterator[PeerNi]:
        nets: dict[Net, bool] = {}  # there are few: ask each once
        for pni in self._state.peers.nis():
            net = pni.net.net
            if net not in nets:
                nets[net] = dst.nets.match(net)
            if nets[net] and (dst.is_net or dst.match_nid(pni.nid)):
                yield pni

    def _apply_to_locals(self) -> None:
        for local in self._state.nets.values():
            local.priority, local.weight = _actions(self._for_net(Effect.LOCAL_NET, local.net))
            for ni in local.nis:
                ni.priority, ni.weight = _actions(self._for_nid(Effect.LOCAL_NI, ni.nid))

    def peer_ni_added(self, pni: PeerNi) -> None:
        """A peer got that NID."""
        if self.rules:
            self._apply_to_peer_ni(pni)

    def _apply_to_peer_ni(self, pni: PeerNi) -> None:
        pni.net.priority, pni.net.weight = _actions(self._for_net(Effect.PEER_NET, pni.net.net))
        pni.priority, pni.weight = _actions(self._for_nid(Effect.PEER_NI, pni.nid))
        self._set_pathways(pni)
        gateways = self._by_effect[Effect.GATEWAY]
        pni.preferred_gateways = tuple(
            rule.rte
            for rule in gateways
            if rule.rte is not None and rule.dst is not None and rule.dst.match_nid(pni.nid)
        )

    def _set_pathways(self, pni: PeerNi) -> None:
        rules = self._pathways(pni)
        pni.preferred_nids = frozenset(rules)
        pni.pathways = {nid: rule.priority or HIGHEST for nid, rule in rules.items()}
        pni.turn_lengths = {nid: rule.weight for nid, rule in rules.items() if rule.weight is not None}

    def _pathways(self, pni: PeerNi) -> dict[Nid, Rule]:
        """The rule of each local NID that one prefers for sending to `pni`.

        Of the rules with neither priority nor weight the first is in force, as today; others add to it.
        """
        found: dict[Nid, Rule] = {}
        plain = False
        for rule in self._by_effect[Effect.PATHWAY]:
            if rule.src is None or rule.dst is None or not rule.dst.match_nid(pni.nid):
                continue
            if rule.priority is None and rule.weight is None:
                if plain:
                    continue
                plain = True
            for nid in self._state.nis:
                if rule.src.match_nid(nid):
                    found.setdefault(nid, rule)
        return found

    def _for_net(self, effect: Effect, net: Net) -> Rule | None:
        """The first rule that matches, which decides."""
        for rule in self._by_effect[effect]:
            one = rule.src or rule.dst
            if one is not None and one.match_net(net):
                return rule
        return None

    def _for_nid(self, effect: Effect, nid: Nid) -> Rule | None:
        """The first rule that matches, which decides."""
        for rule in self._by_effect[effect]:
            one = rule.src or rule.dst
            if one is not None and one.match_nid(nid):
                return rule
        return None


def _actions(rule: Rule | None) -> tuple[int, int]:
    """Priority and weight."""
    if rule is None:
        return NO_PRIORITY, NO_WEIGHT
    return (
        NO_PRIORITY if rule.priority is None else rule.priority,
        NO_WEIGHT if rule.weight is None else rule.weight,
    )
