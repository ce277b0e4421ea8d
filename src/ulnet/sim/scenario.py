"""Scenario files: a plan as YAML."""

from __future__ import annotations

from pathlib import Path

import yaml

from ulnet.host import read_bounded
from ulnet.sim.errors import PlanError
from ulnet.sim.plan import Plan, plan_of, words_of

__all__ = ["read_scenario", "scenario_text"]

_LONGEST = 1 << 22


def read_scenario(path: str | Path) -> Plan:
    """The plan in a file. Raises PlanError."""
    try:
        text = read_bounded(path, _LONGEST)
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PlanError(f"{path} is not UTF-8 text") from None
    if len(text) > _LONGEST:
        raise PlanError(f"{path} is longer than the {_LONGEST} characters of a scenario")
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as bad:
        raise PlanError(f"{path} is no YAML: {' '.join(str(bad).split())}") from None
    try:
        return plan_of(data)
    except PlanError as bad:
        raise PlanError(f"{path}: {bad}") from None


def scenario_text(plan: Plan) -> str:
    """The file that `read_scenario` reads back."""
    text: str = yaml.safe_dump(words_of(plan), sort_keys=False, allow_unicode=True)
    return text
