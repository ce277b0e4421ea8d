"""How many examples a test tries: `--brief`, for every day, takes a tenth of them."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["BRIEF", "examples"]

BRIEF = "brief"  # the profile
_LEAST = 5


def examples(count: int) -> int:
    """So many, or a tenth of them in the brief profile. Profiles do not reach what a decorator says."""
    return max(count // 10, _LEAST) if settings.get_current_profile_name() == BRIEF else count
