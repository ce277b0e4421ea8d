"""Slow files first, and which they are: `--part quick` leaves them out, `--part slow` runs them alone.

Where each worker takes whole files, one that is begun last would be waited for alone. With `--dist loadfile
--no-loadscope-reorder`; xdist's own order begins with the files of most tests.
"""

from __future__ import annotations

import pytest

# By `PYTEST_ADDOPTS=--durations=700 make test-all`: more than three quarters of the time of all tests.
# Half of them run simulations, the others wait for time-outs and for whole programs.
SLOW = (
    "sim/test_sim_random",
    "sim/test_core_is_played",
    "lnd/test_tcp_deaths",
    "cli_lnetctl/test_lnetctl_and_lnetd",
    "e2e/test_demo",
    "sim/test_discovery_random",
    "bench/test_bond_benchmark",
    "cli_lnetctl/test_lnetctl_busy_daemon",
    "sim/test_degraded_rates",
    "e2e/test_bond_hosts",
    "observe/test_top",
    "observe/test_history",
    "discovery/test_discovery_hostile",
    "dlc/test_importing",
    "bench/test_sessions",
    "rpc/test_greedy",
    "packages/test_wheel",
    "sim/test_sim_on_cluster",
    "sim/test_sim_deleting",
    "harness/test_harness",
    "harness/test_mutants",
    "sim/test_bond_guard",
    "sim/test_duplicate_guard",
    "cli/test_lst",
    "cli_lnetctl/test_lnetctl_replay",
    "e2e/test_selftest_hosts",
    "cli_lnetctl/test_lnetctl_bad_values",
    "bench/test_profile_scripts",
    "rpc/test_calls_random",
    "sim/test_routed_rows",
    "selftest/test_sim_sessions",
    "cli_lnetctl/test_lnetctl_import",
    "lnd/test_tcp_startup",
    "sim/test_sim_health",
    "cli/test_rpc_client",
    "sim/test_discovery_names",
    "cli_lnetctl/test_lnetctl_discover",
    "e2e/test_routed_hosts",
    "dask_comm/test_cluster",
    "sim/test_sim_scenarios",
    "cli_lnetctl/test_lnetctl_streams",
    "bench/test_routed",
    "sim/test_sim_determinism",
    "cli_lnetctl/test_lnetctl_policy",
    "e2e/test_two_hosts",
    "cli/test_rpc_command",
    "cli_lnetctl/test_lnetctl_on_rails",
    "sim/test_routed_random",
    "bench/test_sections",
    "observe/test_dash_page",
    "cli/test_ulnet_command",
    "e2e/test_rpc_hosts",
    "sim/test_sim_garbage",
    "selftest/test_places",
    "sim/test_bond_random",
    "rpc/test_unread",
    "e2e/test_power_loss",
    "observe/test_fleet",
    "core/test_guard_parts",
    "e2e/test_secured_hosts",
    "observe/test_dash",
    "node/test_detection",
    "harness/test_setup_env",
    "rpc/test_hostile",
    "observe/test_paper",
    "e2e/test_cross_addresses",
    "e2e/test_access_hosts",
    "e2e/test_apply_hosts",
    "sim/test_routed_hazards",
    "cli_offline/test_differences",
    "cli_offline/test_check",
    "docs/test_tutorial",
    "docs/test_site",
    "cli_lnetctl/test_lnetctl_health",
    "e2e/test_dask_hosts",
    "cli_offline/test_check_routes",
    "observe/test_tool",
    "cli/test_output",
    "sim/test_bond_hostile",
    "sim/test_sim_command",
    "cli_offline/test_check_values",
    "node/test_one_ni_over_devices",
    "bench/test_failover",
    "docs/test_rpc_page",
    "observe/test_probe",
    "sim/test_sim_invariants",
    "e2e/test_discovery_hosts",
    "harness/test_soak",
    "e2e/test_generation_hosts",
    "sim/test_bond_crowd",
    "bench/test_benchmarks",
    "bench/test_no_slower",
)
PARTS = ("all", "quick", "slow")


def name_of(item: pytest.Item) -> str:
    """The file of a test, as the list has it."""
    return f"{item.path.parent.name}/{item.path.stem}"


def rank(item: pytest.Item) -> int:
    """Its place among the slow ones; behind them if it is none."""
    name = name_of(item)
    return SLOW.index(name) if name in SLOW else len(SLOW)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", choices=PARTS, default="all", help="quick: all but the slow files; slow: those"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--part")
    if part != "all":
        left_out = [item for item in items if (name_of(item) in SLOW) is (part == "quick")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    items.sort(key=rank)
