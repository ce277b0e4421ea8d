"""Slow files first: where each worker takes whole files, one that is begun last would be waited for alone.

With `--dist loadfile --no-loadscope-reorder`; xdist's own order begins with the files of most tests.
"""

from __future__ import annotations

import pytest

# From `pytest --durations=0`; those that wait for real time, and those with long simulations.
SLOW = (
    "e2e/test_bond_hosts",
    "e2e/test_demo",
    "sim/test_sim_random",
    "cli_lnetctl/test_lnetctl_and_lnetd",
    "node/test_detection",
    "bench/test_bond_benchmark",
    "cli_lnetctl/test_lnetctl_policy",
    "sim/test_degraded_rates",
    "cli_lnetctl/test_lnetctl_health",
    "bench/test_routed",
    "sim/test_sim_scenarios",
    "sim/test_discovery_random",
    "e2e/test_routed_hosts",
    "sim/test_duplicate_guard",
    "harness/test_harness",
    "node/test_one_ni_over_devices",
    "cli_lnetctl/test_lnetctl_replay",
)


def rank(item: pytest.Item) -> int:
    """Its place among the slow ones; behind them if it is none."""
    name = f"{item.path.parent.name}/{item.path.stem}"
    return SLOW.index(name) if name in SLOW else len(SLOW)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=rank)
