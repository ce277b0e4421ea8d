"""Rules applied to the node's nets, NIs and peers (spec udsp.md §4).

Rules are evaluated when they or the objects change, and leave their result in the objects, where path
selection reads it. That result is always the one of applying the whole list afresh; so a rule that is
deleted leaves nothing behind, and what it had overridden is in force again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ulnet.control.policy.census import Census
from ulnet.control.policy.peer_rules import Outcome, PeerRules, actions
from ulnet.control.policy.rule import Effect, Rule
from ulnet.control.policy.table import RuleTable
from ulnet.core.peer import PeerNi
from ulnet.core.selection.descriptor import Descriptor
from ulnet.core.state import NodeState
from ulnet.nid import Net, Nid

__all__ = ["Policies"]

_MOST_KNOWN: Final = 4096  # outcomes that are kept


class Policies:
    """The rules of one node, kept apart from what they match, and their application."""

    __slots__ = ("_here", "_outcomes", "_sorted", "_state", "rules")

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.rules: RuleTable = RuleTable()
        self._sorted: PeerRules | None = None  # made when they are asked for: many rules may come at once
        self._outcomes: dict[int, Outcome] = {}
        self._here: dict[Rule, list[Nid]] = {}

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

    def census(self) -> Census:
        """What counts how much each rule is about."""
        return Census(self._state, list(self.rules))

    # Application -----------------------------------------------------------------------------------

    def nis_changed(self) -> None:
        """Local nets or NIs came or went; the caller invalidates the generation."""
        self._forget()
        if not self.rules:
            return
        self._apply_to_locals()
        pairs = self._peer_rules.having(Effect.PATHWAY)
        if pairs:
            for pni in self._state.peers.nis():
                found = self._peer_rules.match(pni.nid)
                if found & pairs:
                    _set_pathways(pni, self._outcome(found))

    def _changed(self, rules: Collection[Rule]) -> None:
        """Rules came, went or got another priority: only what they match can have another result now."""
        self._sort()
        if any(rule.dst is None for rule in rules):
            self._apply_to_locals()
        about = PeerRules(rules)
        if about.rules:
            for pni in self._state.peers.nis():
                if about.match(pni.nid):
                    self._apply_to_peer_ni(pni)

    def _sort(self) -> None:
        self._sorted = None
        self._forget()
        self._state.generation.invalidate("policies")

    @property
    def _peer_rules(self) -> PeerRules:
        """The rules, such that those about a NID are found."""
        if self._sorted is None:
            self._sorted = PeerRules(self.rules)
        return self._sorted

    def _forget(self) -> None:
        self._here.clear()
        self._outcomes.clear()

    def _apply_to_locals(self) -> None:
        for local in self._state.nets.values():
            local.priority, local.weight = actions(self._for_net(local.net))
            for ni in local.nis:
                ni.priority, ni.weight = actions(self._for_ni(ni.nid))

    def peer_ni_added(self, pni: PeerNi) -> None:
        """A peer got that NID."""
        if self.rules:
            self._apply_to_peer_ni(pni)

    def _apply_to_peer_ni(self, pni: PeerNi) -> None:
        outcome = self._outcome(self._peer_rules.match(pni.nid))
        pni.net.priority, pni.net.weight = outcome.net
        pni.priority, pni.weight = outcome.ni
        _set_pathways(pni, outcome)
        pni.preferred_gateways = outcome.gateways

    def _outcome(self, found: int) -> Outcome:
        """What the rules of that set make of a peer NI: peers share it."""
        known = self._outcomes.get(found)
        if known is None:
            if len(self._outcomes) >= _MOST_KNOWN:  # NIDs of peers decide how many there are
                self._outcomes.clear()
            known = self._outcomes[found] = self._peer_rules.outcome(found, self._local_nids)
        return known

    def _local_nids(self, rule: Rule) -> list[Nid]:
        """Those that a pathway may begin at."""
        found = self._here.get(rule)
        if found is None:
            src = rule.src
            found = self._here[rule] = [] if src is None else [*filter(src.match_nid, self._state.nis)]
        return found

    def _for_net(self, net: Net) -> Rule | None:
        """The first rule that matches a local net, which decides."""
        rules = (rule for rule in self.rules if rule.effect is Effect.LOCAL_NET)
        return next((rule for rule in rules if rule.src is not None and rule.src.match_net(net)), None)

    def _for_ni(self, nid: Nid) -> Rule | None:
        """The first rule that matches a local NI, which decides."""
        rules = (rule for rule in self.rules if rule.effect is Effect.LOCAL_NI)
        return next((rule for rule in rules if rule.src is not None and rule.src.match_nid(nid)), None)


def _set_pathways(pni: PeerNi, outcome: Outcome) -> None:
    pni.preferred_nids = outcome.preferred_nids
    pni.pathways = outcome.pathways
    pni.turn_lengths = outcome.turn_lengths
