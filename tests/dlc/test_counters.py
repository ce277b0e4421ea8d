"""Counters are declared once: documents, metrics and their meaning come from one line each."""

from __future__ import annotations

import re

import msgspec
import pytest

from ulnet.core.stats import GlobalStats, HealthStats
from ulnet.core.status import HealthStatus
from ulnet.dlc import documents_counters as counters
from ulnet.node.dry_run import dry_run

VIEWS = {
    counters.Statistics: "lnet",
    counters.TrafficStats: "lnet_ni",
    counters.NiHealth: "lnet_ni",
    counters.PeerNiHealth: "lnet_peer_ni",
    counters.MsgCounts: "lnet_messages",
}


@pytest.mark.parametrize("view", VIEWS)
def test_each_counter_has_a_metric_with_a_meaning(view: type[msgspec.Struct]) -> None:
    metrics = counters.metrics_of(view, VIEWS[view])
    of_their_own = {"differences", "drops"} & set(view.__struct_fields__)
    assert metrics.keys() | of_their_own == set(view.__struct_fields__)
    assert len({metric.name for metric in metrics.values()}) == len(metrics)
    for metric in metrics.values():
        assert re.fullmatch(r"lnet_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help


def test_names_of_metrics() -> None:
    metrics = counters.metrics_of(counters.Statistics, "lnet")
    assert metrics["send_count"] == ("lnet_send_total", "counter", "messages sent")
    assert metrics["msgs_alloc"] == ("lnet_msgs_alloc", "gauge", "messages there are now")


@pytest.mark.requirement("dbg-045")
async def test_each_counter_of_a_node_is_read_where_it_is_counted() -> None:
    async with dry_run([]) as admin:
        core = admin.node.core
        for name in vars(GlobalStats()):
            if name not in ("by_status", "drops"):
                before = counters.read_counters(counters.Statistics, core)
                setattr(core.stats, name, 77)
                after = counters.read_counters(counters.Statistics, core)
                changed = {
                    one for one in after.__struct_fields__ if getattr(before, one) != getattr(after, one)
                }
                assert (changed, getattr(after, name)) == ({name}, 77)
                setattr(core.stats, name, 0)
        for status in HealthStatus:
            core.stats.by_status[status] = 5
            shown = counters.read_counters(counters.Statistics, core)
            core.stats.by_status[status] = 0
            name = f"{status.name.lower()}_count"
            assert [one for one in shown.__struct_fields__ if getattr(shown, one) == 5] == [name] * bool(
                status
            )


def test_an_ni_tells_time_outs_of_both_ends_as_one() -> None:
    class Ni:
        fatal, health = True, 900
        health_stats = HealthStats()

    Ni.health_stats.by_status[HealthStatus.LOCAL_TIMEOUT] = 2
    Ni.health_stats.by_status[HealthStatus.NETWORK_TIMEOUT] = 3
    shown = counters.read_counters(counters.NiHealth, Ni())
    assert (shown.fatal_error, shown.health_value, shown.timeouts, shown.error) == (1, 900, 5, 0)
