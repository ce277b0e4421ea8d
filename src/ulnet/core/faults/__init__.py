"""Fault injection: rules that drop or delay messages (spec net-fault.md)."""

from ulnet.core.faults.injector import Fate, FaultInjector
from ulnet.core.faults.rule import Fault, FaultKind, FaultRule

__all__ = ["Fate", "Fault", "FaultInjector", "FaultKind", "FaultRule"]
