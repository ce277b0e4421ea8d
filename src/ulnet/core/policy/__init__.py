"""User-defined selection policies: rules that steer the path selection (spec udsp.md)."""

from ulnet.core.policy.descriptor import Descriptor
from ulnet.core.policy.enforce import Policies
from ulnet.core.policy.rule import MAX_PRIORITY, MAX_WEIGHT, Effect, Key, Rule
from ulnet.core.policy.table import MAX_RULES

__all__ = ["MAX_PRIORITY", "MAX_RULES", "MAX_WEIGHT", "Descriptor", "Effect", "Key", "Policies", "Rule"]
