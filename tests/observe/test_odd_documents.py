"""Documents with anything at any place: metrics, events and findings are of what can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.observe.equals import compare
from ulnet.observe.exposition import Exposition
from ulnet.observe.fabric import picture
from ulnet.observe.families import Families
from ulnet.observe.fleet import Member
from ulnet.observe.live import Live
from ulnet.observe.probe import line
from ulnet.observe.rows import TABLES
from ulnet.observe.snapshot import Snapshot

COUNTS = {"send_count": 3, "recv_count": 2, "drop_count": 0, "get_rtt_avg_nsec": 7, "get_rtt_samples": 200}
BY_TYPE = {"put": 3, "get": 1, "reply": 0, "ack": 0, "hello": 0}
LOAD = {
    "send_length": 11,
    "waiting": 4,
    "available_tx_credits": 3,
    "resends": {"remote_error": 5},
    "connects": {"connect_rej": 6},
    "degraded": {"since": 1},
    "paths": {"10.0.0.1@tcp": {"rate": 5000}},
}
NI = {
    "nid": "10.0.0.1@tcp",
    "status": "up",
    "interfaces": {0: "eth0"},
    "certificate expires": "2027-01-01T00:00:00+00:00",
    "statistics": COUNTS,
    "sent_stats": BY_TYPE,
    "health stats": {"health value": 900, "fatal_error": 1},
    "tunables": {"peer_credits": 8, "credits": 256},
    "udsp info": {"net priority": -1, "nid priority": 2},
    "load": LOAD,
}
PEER_NI = {**NI, "nid": "10.0.0.2@tcp", "state": "up", "max_ni_tx_credits": 8}
POOL = {"npages": 256, "nbuffers": 512, "credits": -2, "mincredits": -7}
PARTS: dict[str, Any] = {
    "net": {"net": [{"net type": "tcp", "local NI(s)": [NI]}]},
    "peer": {
        "peer": [
            {"primary nid": "10.0.0.2@tcp", "Multi-Rail": True, "peer state": 273, "peer ni": [PEER_NI]},
            {"primary nid": "10.0.0.3@tcp", "peer ni": [{**PEER_NI, "nid": "10.0.0.3@tcp"}]},
        ]
    },
    "route": {"route": [{"net": "o2ib", "gateway": "10.0.0.2@tcp", "hop": -1, "priority": 0, "state": "up"}]},
    "routing": {"routing": [{"cpt[0]": 0, "large": POOL}, {"enable": 1}]},
    "statistics": {"statistics": {"send_count": 7, "drops": {"no match": 2}}},
    "settings": {"global": {"discovery": 1, "numa_range": 0, 7: 1}},
    "local recovery": {"Local NI recovery": {"nid-0": "10.0.0.1@tcp"}},
    "peer recovery": {"Peer NI recovery": {"nid-0": "10.0.0.2@tcp", "nid-1": "10.0.0.3@tcp"}},
    "udsp": {"udsp": [{"idx": 0, "src": "tcp", "action": {"priority": 1}}]},
}

Way = tuple[Any, ...]


def ways(value: Any, way: Way = ()) -> Iterator[Way]:
    """To each place in documents."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*way, key)
        if isinstance(inner, dict | list):
            yield from ways(inner, (*way, key))


PLACES = [way for way in ways(PARTS) if len(way) > 1]
ODD: tuple[Any, ...] = (None, -1, float("nan"), "x", [], {}, [None], {3: 4})
mistakes = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD)), max_size=4)


def put(value: Any, way: Way, new: Any) -> Any:
    """A document with something else at one place; as it was where there is no such place now."""
    if not way:
        return new
    if isinstance(value, dict) and way[0] in value:
        return {**value, way[0]: put(value[way[0]], way[1:], new)}
    if isinstance(value, list) and isinstance(way[0], int) and way[0] < len(value):
        return [*value[: way[0]], put(value[way[0]], way[1:], new), *value[way[0] + 1 :]]
    return value


def spoilt(some: Sequence[tuple[Way, Any]]) -> Snapshot:
    parts: Any = PARTS
    for way, new in some:
        parts = put(parts, way, new)
    return Snapshot("node", parts)


def show(*snapshots: Snapshot) -> None:
    """All that is made of what a node shows, one after the other."""
    families, exposition, live = Families(1), Exposition(), Live("node")
    for at, snapshot in enumerate(snapshots):
        assert b"lnet_up 1.0\n" in exposition.text(list(families.of(snapshot, at * 10.0)), "")[0]
        live.take(snapshot, at * 10.0)
        assert line(snapshot)
        json.dumps(picture([live]))
        for table in TABLES:
            for row in table.chosen(live, "", table.sort, table.falling):
                assert table.words(row)
        rates = {rail: one.rates for rail, one in live.rails.items()}
        compare([Member("a", snapshot, rates), Member("b", spoilt([]))])


@pytest.mark.parametrize("part", PARTS)
def test_something_else_at_one_place_is_no_error(part: str) -> None:
    show(*(spoilt([(way, new)]) for way in PLACES if way[0] == part for new in ODD))


@given(mistakes, mistakes)
def test_several_mistakes_are_no_error(before: list[tuple[Way, Any]], after: list[tuple[Way, Any]]) -> None:
    show(spoilt(before), spoilt(after))


def test_queues_of_recovery_are_counted() -> None:
    found = {
        sample.labels["of"]: sample.value
        for family in Families().of(spoilt([]), 0.0)
        for sample in family.samples
        if sample.name == "lnet_recovery_nis"
    }
    assert found == {"local": 1, "peer": 2}
