"""The ordered list of rules: a lower index overrides a higher one (spec udsp.md §3)."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator

from ulnet.core.policy.descriptor import Descriptor
from ulnet.core.policy.rule import MAX_PRIORITY, Rule
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

    def __getitem__(self, index: int) -> Rule:
        return self._rules[index]

    def add(
        self,
        src: Descriptor | None,
        dst: Descriptor | None,
        rte: Descriptor | None,
        priority: int | None,
        index: int | None,
    ) -> Rule:
        """Append or insert a rule, or give the rule that matches the same another priority; the rule.

        Raises LNetError: EINVAL (combination, numbers), EALREADY (it is there), ENOSPC.
        """
        _check_combination(src, dst, rte)
        if priority is None and rte is None and (src is None or dst is None):
            priority = 0  # the highest: what was named shall be preferred
        if priority is not None and not 0 <= priority <= MAX_PRIORITY:
            raise LNetError(
                errno.EINVAL, f"priority {priority} is out of range: use 0 (the highest) to {MAX_PRIORITY}"
            )
        if index is not None and index < 0:
            raise LNetError(errno.EINVAL, f"idx {index} is out of range: 0 is the first place")
        new = Rule(self._next_number, src, dst, rte, priority)
        old = next((rule for rule in self._rules if rule.key == new.key), None)
        if old is not None:
            if priority is None or old.priority is None or priority == old.priority:
                raise LNetError(
                    errno.EALREADY,
                    f"the rule for {old} is there as idx {self._rules.index(old)}; "
                    "only its priority can be changed, else delete it first",
                )
            old.priority = priority
            return old
        self.check_room(1)
        self._join_twin(new)
        self._rules.insert(len(self._rules) if index is None else index, new)
        return new

    def check_room(self, count: int) -> None:
        """Whether so many more may be added. Raises LNetError(ENOSPC)."""
        if len(self._rules) + count > MAX_RULES:
            raise LNetError(
                errno.ENOSPC, f"there are {len(self._rules)} rules of {MAX_RULES} allowed: use patterns"
            )

    def _join_twin(self, new: Rule) -> None:
        """Number a new rule: as the one for the other side, if there is such a one."""
        twin = next((rule for rule in self._rules if rule.key == (new.dst, new.src, None)), None)
        if twin is not None and (new.src is None) != (new.dst is None):
            new.number = twin.number
        else:
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
