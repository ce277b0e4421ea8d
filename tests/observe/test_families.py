"""Metrics of a node: bounded in number, sums that never fall, names as promtool wants them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.observe.busiest import OTHERS, Busiest
from ulnet.observe.families import Families
from ulnet.observe.snapshot import Snapshot


def peer(index: int, sent: int, health: int = 1000) -> dict[str, Any]:
    nid = f"10.0.{index >> 8}.{index & 255}@tcp"
    return {
        "primary nid": nid,
        "Multi-Rail": True,
        "peer ni": [
            {
                "nid": nid,
                "state": "up",
                "max_ni_tx_credits": 8,
                "available_tx_credits": 8,
                "min_tx_credits": -3,
                "statistics": {"send_count": sent, "recv_count": sent, "drop_count": 0},
                "sent_stats": {"put": sent, "get": 0, "reply": 0, "ack": 0, "hello": 0},
                "health stats": {"health value": health, "timeout": 0},
            }
        ],
    }


def snapshot(peers: list[dict[str, Any]]) -> Snapshot:
    return Snapshot("node", {"net": {"net": []}, "peer": {"peer": peers}})


def sent_by_peer(families: Families, peers: list[dict[str, Any]], now: float) -> dict[str, float]:
    return {
        sample.labels["peer"]: sample.value
        for family in families.of(snapshot(peers), now)
        for sample in family.samples
        if sample.name == "lnet_peer_ni_send_total"
    }


def test_busy_peers_have_series_and_all_others_one() -> None:
    families = Families(peers=3)
    found = sent_by_peer(families, [peer(index, index) for index in range(10)], 0.0)
    assert {"10.0.0.9@tcp": 9, "10.0.0.8@tcp": 8, "10.0.0.7@tcp": 7, OTHERS: sum(range(7))} == found


def test_few_peers_have_no_others() -> None:
    assert OTHERS not in sent_by_peer(Families(peers=3), [peer(index, 5) for index in range(3)], 0.0)


def test_an_idle_peer_gives_its_place_to_a_busy_one() -> None:
    families = Families(peers=1)
    assert sent_by_peer(families, [peer(0, 50), peer(1, 0)], 0.0) == {"10.0.0.0@tcp": 50, OTHERS: 0}
    assert sent_by_peer(families, [peer(0, 50), peer(1, 7)], 300.0) == {"10.0.0.0@tcp": 50, OTHERS: 7}
    assert sent_by_peer(families, [peer(0, 50), peer(1, 9)], 601.0) == {"10.0.0.1@tcp": 9, OTHERS: 7}
    assert sent_by_peer(families, [peer(0, 52), peer(1, 9)], 602.0) == {"10.0.0.1@tcp": 9, OTHERS: 9}


@given(
    st.lists(st.dictionaries(st.integers(0, 6), st.integers(0, 100)), min_size=1, max_size=12),
    st.integers(0, 4),
)
def test_the_sum_of_the_others_never_falls(rounds: list[dict[int, int]], places: int) -> None:
    """Whatever peers come, go, count on or begin anew."""
    busiest = Busiest(places)
    before = 0.0
    for number, peers in enumerate(rounds):
        members = [
            (one["primary nid"], one["peer ni"][0])
            for one in (peer(index, sent) for index, sent in peers.items())
        ]
        own, others = busiest.share(members, number * 400.0)
        assert len({name for name, _ in own}) <= places
        now = others.get(("statistics", "send_count"), 0.0)
        assert now >= before
        before = now


def test_counts_of_peers_without_a_place_are_all_counted() -> None:
    busiest = Busiest(0)
    for total in (3, 10, 4, 4, 9):  # begins anew at 4
        one = peer(1, total)
        _, others = busiest.share([(one["primary nid"], one["peer ni"][0])], 0.0)
    assert others["statistics", "send_count"] == 10 + 4 + 5


def test_a_thousand_peers_make_a_bounded_number_of_samples() -> None:
    peers = [peer(index, index) for index in range(1000)]
    families = list(Families(peers=100).of(snapshot(peers), 0.0))
    assert sum(len(family.samples) for family in families) < 2500
    total = {
        s.labels.get("peer"): s.value
        for f in families
        for s in f.samples
        if s.name == "lnet_peer_ni_send_total"
    }
    assert sum(total.values()) == sum(range(1000))


def test_unhealthy_peers_are_counted_though_they_have_no_place() -> None:
    peers = [peer(index, 0, health=900 if index % 2 else 1000) for index in range(10)]
    samples = {s.name: s.value for f in Families(peers=0).of(snapshot(peers), 0.0) for s in f.samples}
    assert samples["lnet_peer_nis_unhealthy"] == 5
    assert samples["lnet_peers"] == samples["lnet_peer_nis"] == samples["lnet_peers_multi_rail"] == 10


def test_nets_policy_discovery_and_what_only_our_nodes_tell() -> None:
    local = {
        "nid": "10.0.0.1@tcp",
        "status": "up",
        "udsp info": {"net priority": -1, "nid priority": 2},
        "load": {"send_length": 7000, "recv_length": 9000, "resends": {"local_timeout": 3}},
    }
    far = {
        "nid": "10.0.0.2@tcp",
        "udsp info": {"net priority": 0, "nid priority": -1},
        "load": {
            "send_length": 11,
            "recv_length": 12,
            "waiting": 4,
            "resends": {"remote_error": 5},
            "connects": {"connect_rej": 6},
        },
    }
    nis = [local, {"nid": "10.1.0.1@tcp", "status": "down"}]
    parts = {
        "net": {"net": [{"net type": "tcp", "local NI(s)": nis}]},
        "peer": {"peer": [{"primary nid": "10.0.0.2@tcp", "peer state": 0x111, "peer ni": [far]}]},
    }
    found = {
        (s.name, *sorted(s.labels.values())): s.value
        for f in Families().of(Snapshot("node", parts), 0.0)
        for s in f.samples
    }
    assert (found["lnet_net_nis", "tcp"], found["lnet_net_nis_up", "tcp"]) == (2, 1)
    place = ("", "10.0.0.1@tcp", "tcp")
    assert found["lnet_ni_send_bytes_total", *place] == 7000
    assert found["lnet_ni_recv_bytes_total", *place] == 9000
    assert found["lnet_ni_udsp_priority", *place] == 2
    assert ("lnet_ni_udsp_net_priority", *place) not in found
    assert found["lnet_ni_resends_total", "", "10.0.0.1@tcp", "local_timeout", "tcp"] == 3
    peer = ("10.0.0.2@tcp", "10.0.0.2@tcp")
    assert found["lnet_peer_ni_send_bytes_total", *peer] == 11
    assert found["lnet_peer_ni_tx_waiting", *peer] == 4
    assert found["lnet_peer_ni_udsp_net_priority", *peer] == 0
    assert found["lnet_peer_ni_resends_total", *peer, "remote_error"] == 5
    assert found["lnet_peer_ni_connect_failures_total", *peer, "connect_rej"] == 6
    states = {
        state: found["lnet_peers_in_state", state]
        for _, state in [k for k in found if k[0] == "lnet_peers_in_state"]
    }
    assert {state for state, count in states.items() if count} == {"discovered", "up to date"}


@pytest.mark.parametrize(("enable", "on"), [(0, 0), (1, 1), (2, 0), (3, 1), ("x", 0)])
def test_routing_is_on_by_the_lowest_bit(enable: object, on: int) -> None:
    parts = {"net": {"net": []}, "routing": {"routing": [{"cpt[0]": {}}, {"enable": enable}]}}
    found = {s.name: s.value for f in Families().of(Snapshot("node", parts), 0.0) for s in f.samples}
    assert found["lnet_routing_enabled"] == on


def test_routes_and_router_buffers() -> None:
    route = {"net": "o2ib", "gateway": "10.0.0.9@tcp", "hop": -1, "priority": 0, "state": "down", "type": "x"}
    pool = {"npages": 256, "nbuffers": 512, "credits": -2, "mincredits": -7}
    parts = {
        "net": {"net": []},
        "route": {"route": [route, {"net": "tcp9", "gateway": "10.0.0.8@tcp"}]},
        "routing": {"routing": [{"cpt[1]": 0, "large": pool}, {"enable": 1}]},
    }
    found = {
        (s.name, *sorted(s.labels.items())): s.value
        for f in Families().of(Snapshot("node", parts), 0.0)
        for s in f.samples
    }
    place = (("gateway", "10.0.0.9@tcp"), ("hop", "-1"), ("net", "o2ib"), ("priority", "0"))
    assert found["lnet_route_up", *place] == 0
    assert sum(key[0] == "lnet_route_up" for key in found) == 1
    assert found["lnet_router_buffer_credits", ("cpt", "1"), ("size", "large")] == -2
    assert found["lnet_router_buffer_credits_low", ("cpt", "1"), ("size", "large")] == -7
    assert found["lnet_router_buffers", ("cpt", "1"), ("size", "large")] == 512
    assert found["lnet_routing_enabled",] == 1
