"""What a simulation raises."""

from __future__ import annotations

__all__ = ["Broken", "NotQuiet", "PlanError", "SimError"]


class PlanError(ValueError):
    """What was asked of the simulation cannot be: one sentence with the thing, the rule and the way out."""


class SimError(AssertionError):
    """Something that a simulation found; it tells the seed, the time and the number of events."""


class Broken(SimError):
    """An invariant does not hold."""


class NotQuiet(SimError):
    """Something is still under way after all that time."""
