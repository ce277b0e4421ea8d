"""The ordered list of rules: a lower index overrides a higher one (spec udsp.md §3)."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator

from ulnet.control.policy.rule import HIGHEST, MAX_PRIORITY, MAX_WEIGHT, Key, Rule
from ulnet.core.selection.descriptor import Descriptor
from ulnet.core.status import LNetError

__all__ = ["MAX_RULES", "RuleTable"]

MAX_RULES = 1024


class RuleTable:
    """Rules and their order; what they do is not its business."""

    __slots__ = ("_next_number", "_rules")

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._next_number = 0

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def add(
        self,
        src: Descriptor | None,
        dst: Descriptor | None,
        rte: Descriptor | None,
        priority: int | None,
        index: int | None,
        weight: int | None = None,
    ) -> Rule:
        """Append or insert a rule, or change priority and weight of the one that matches the same; the rule.

        Raises LNetError: EINVAL (combination, numbers), EALREADY (it is there), ENOSPC.
        """
        _check_combination(src, dst, rte)
        _check_numbers(rte, priority, index, weight)
        old = self.find((src, dst, rte))
        if old is not None:
            if not self.would_change(old, priority, weight):
                raise LNetError(
                    errno.EALREADY,
                    f"the rule for {old} is there as idx {self._rules.index(old)}; "
                    "only its priority and weight can be changed, else delete it first",
                )
            self._change(old, priority, weight)
            self._number(old)
            return old
        self.check_room(1)
        new = Rule(-1, src, dst, rte, priority, weight)
        if priority is None and new.is_single:
            new.priority = HIGHEST
        self._number(new)
        end = len(self._rules)
        self._rules.insert(end if index is None else min(index, end), new)
        return new

    def find(self, key: Key) -> Rule | None:
        """The rule that matches these."""
        return next((rule for rule in self._rules if rule.key == key), None)

    @staticmethod
    def would_change(old: Rule, priority: int | None, weight: int | None) -> bool:
        """Whether adding the rule again with these makes another of it; a pair gets no priority later."""
        if priority is None and weight is None and old.is_single:
            priority = HIGHEST
        if priority is not None and old.priority is None:
            return False
        return priority not in (None, old.priority) or weight not in (None, old.weight)

    @staticmethod
    def _change(old: Rule, priority: int | None, weight: int | None) -> None:
        if weight is not None:
            old.weight = weight
        elif priority is None:
            priority = HIGHEST
        if priority is not None:
            old.priority = priority

    def check_room(self, count: int) -> None:
        """Whether so many more may be added. Raises LNetError(ENOSPC)."""
        if len(self._rules) + count > MAX_RULES:
            raise LNetError(
                errno.ENOSPC, f"there are {len(self._rules)} rules of {MAX_RULES} allowed: use patterns"
            )

    def _number(self, rule: Rule) -> None:
        """Number a rule that is new or was changed: as the one for the other side, if both say the same."""
        twin = self.find((rule.dst, rule.src, None)) if (rule.src is None) != (rule.dst is None) else None
        if twin is not None and (twin.priority, twin.weight) == (rule.priority, rule.weight):
            if rule.number < 0 or twin.number < rule.number:
                rule.number = twin.number
            twin.number = rule.number
        elif rule.number < 0 or (twin is not None and twin.number == rule.number):
            rule.number = self._next_number
            self._next_number += 1

    def delete(self, index: int) -> Rule:
        """Remove one rule, which is returned; later ones move up. Raises LNetError(ENOENT)."""
        if not 0 <= index < len(self._rules):
            held = f"0 to {len(self._rules) - 1}" if self._rules else "none"
            raise LNetError(errno.ENOENT, f"there is no rule with idx {index}: this node has {held}")
        return self._rules.pop(index)

    def remove(self, rules: Collection[Rule]) -> None:
        """Remove these."""
        self._rules = [rule for rule in self._rules if rule not in rules]

    def clear(self) -> None:
        """Remove all."""
        self._rules.clear()


def _check_combination(src: Descriptor | None, dst: Descriptor | None, rte: Descriptor | None) -> None:
    if src is not None and rte is not None:
        raise LNetError(
            errno.EINVAL,
            "The combination of src, dst and rte is not supported: "
            "give src, dst, src with dst, or dst with rte",
        )
    if src is None and dst is None and rte is None:
        raise LNetError(
            errno.EINVAL, "Missing required argument(s): give src, dst, src with dst, or dst with rte"
        )


def _check_numbers(
    rte: Descriptor | None, priority: int | None, index: int | None, weight: int | None
) -> None:
    if priority is not None and not 0 <= priority <= MAX_PRIORITY:
        raise LNetError(
            errno.EINVAL, f"priority {priority} is out of range: use 0 (the highest) to {MAX_PRIORITY}"
        )
    if index is not None and index < 0:
        raise LNetError(errno.EINVAL, f"idx {index} is out of range: 0 is the first place")
    if weight is None:
        return
    if rte is not None:
        raise LNetError(
            errno.EINVAL, "a rule for gateways has no weight: give weights to nets, NIDs or pairs of NIDs"
        )
    if not 1 <= weight <= MAX_WEIGHT:
        raise LNetError(errno.EINVAL, f"weight {weight} is out of range: use 1 to {MAX_WEIGHT} messages")
