"""User-defined selection policies: rules that steer the path selection (spec udsp.md)."""

from ulnet.control.policy.census import Census
from ulnet.control.policy.enforce import Policies
from ulnet.control.policy.rule import MAX_PRIORITY, MAX_WEIGHT, Effect, Key, Rule
from ulnet.control.policy.table import MAX_RULES
from ulnet.core.selection.descriptor import Descriptor

__all__ = [
    "MAX_PRIORITY",
    "MAX_RULES",
    "MAX_WEIGHT",
    "Census",
    "Descriptor",
    "Effect",
    "Key",
    "Policies",
    "Rule",
]
