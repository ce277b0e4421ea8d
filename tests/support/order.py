"""Slow files first: where each worker takes whole files, one that is begun last would be waited for alone.

With `--dist loadfile --no-loadscope-reorder`; xdist's own order begins with the files of most tests.
"""

from __future__ import annotations

import pytest

# From `pytest --durations=0`; those that wait for real time beside long simulations, which need a CPU.
SLOW = (
    "e2e/test_bond_hosts",
    "sim/test_sim_random",
    "e2e/test_demo",
    "sim/test_degraded_rates",
    "cli_lnetctl/test_lnetctl_and_lnetd",
    "node/test_detection",
    "bench/test_bond_benchmark",
    "sim/test_discovery_random",
    "bench/test_routed",
    "sim/test_discovery_names",
    "cli_lnetctl/test_lnetctl_replay",
    "e2e/test_selftest_hosts",
    "cli/test_lst",
    "e2e/test_routed_hosts",
    "cli_lnetctl/test_lnetctl_policy",
    "harness/test_harness",
    "sim/test_duplicate_guard",
    "cli_lnetctl/test_lnetctl_health",
    "node/test_one_ni_over_devices",
    "core/test_singles",
    "harness/test_soak",
    "bench/test_benchmarks",
    "cli_lnetctl/test_lnetctl_on_rails",
    "cli_lnetctl/test_lnetctl_bad_values",
    "sim/test_sim_health",
    "sim/test_sim_scenarios",
    "e2e/test_two_hosts",
    "core/test_lane_storms",
    "bench/test_failover",
    "e2e/test_generation_hosts",
)


def rank(item: pytest.Item) -> int:
    """Its place among the slow ones; behind them if it is none."""
    name = f"{item.path.parent.name}/{item.path.stem}"
    return SLOW.index(name) if name in SLOW else len(SLOW)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=rank)
