"""Scenario files: ours do well under many seeds, and what is wrong in one is told in a sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ulnet.sim import PlanError
from ulnet.sim.plan import plan_of
from ulnet.sim.random_run import random_plan
from ulnet.sim.run import Outcome, play
from ulnet.sim.scenario import read_scenario, scenario_text

FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_projects_scenarios_do_well(path: Path) -> None:
    plan = read_scenario(path)
    seeds = range(plan.seed, plan.seed + (2 if path.stem in ("two-rails", "slow-rail") else 6))
    for seed in seeds:
        outcome = play(plan, seed=seed)
        assert outcome.ok, outcome.failure
    assert len(FILES) >= 15


def test_a_scenario_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    for plan in [*(random_plan(seed) for seed in range(20)), *map(read_scenario, FILES)]:
        path = tmp_path / "again.yaml"
        path.write_text(scenario_text(plan))
        assert read_scenario(path) == plan


def test_the_manuals_scenario_does_well(tmp_path: Path) -> None:
    manual = (FOLDER.parent / "docs" / "manual.md").read_text()
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", manual, re.DOTALL) if "scenario:" in block]
    assert len(blocks) == 1
    path = tmp_path / "manual.yaml"
    path.write_text(blocks[0])
    outcome = play(read_scenario(path))
    assert outcome.ok, outcome.failure
    assert outcome.run.operations


def test_refusals_are_told_and_do_not_end_the_run() -> None:
    outcome = play(read_scenario(FOLDER / "lnetctl-yaml.yaml"))
    assert [refusal.why for refusal in outcome.run.refusals] == [
        "no interface is named 'eth9': this host has eth0, eth1"
    ]


def run(**parts: Any) -> Outcome:
    nodes = {"a": {"nids": ["10.0.0.1@tcp"]}, "b": {"nids": ["10.0.0.2@tcp"], "portals": [30]}}
    return play(plan_of({"nodes": nodes, **parts}))


PUT = {"at": 0, "put": {"from": "a", "to": "b"}}
LOST = {"at": 0, "put": {"from": "a", "to": "10.0.0.9@tcp"}}


@pytest.mark.parametrize(
    ("events", "expectation", "failure"),
    [
        ([PUT, LOST], {"operations": "all"}, "1 of 2 messages ended well; all should"),
        ([PUT], {"operations": "none"}, "1 of 1 messages ended well; 0 to 0 should"),
        ([PUT], {"operations": {"ok": "some", "least": 2}}, "1 of 1 messages ended well; 2 to 1 should"),
        ([PUT], {"peer": {"node": "a", "nid": "10.0.0.7@tcp"}}, "node a knows no peer 10.0.0.7@tcp"),
        ([PUT], {"peer": {"node": "a", "nid": "10.0.0.2@tcp", "nids": []}}, "as 10.0.0.2@tcp"),
        ([PUT], {"peer": {"node": "a", "nid": "10.0.0.2@tcp", "primary": "x"}}, "as primary NID"),
        ([PUT], {"counter": {"node": "a", "name": "send_count", "least": 99}}, "send_count of node a is"),
        ([PUT], {"balance": {"node": "a", "least": 2}}, "a.eth0 carried"),
        (
            [PUT],
            {"output": {"node": "a", "request": {"op": "net.show"}, "contains": ["tcp9"]}},
            "does not say 'tcp9'",
        ),
        ([PUT], {"output": {"node": "a", "request": {"op": "net.show"}, "lacks": ["tcp"]}}, "says 'tcp'"),
    ],
)
def test_an_expectation_that_fails_says_what_is_there(
    events: list[Any], expectation: dict[str, Any], failure: str
) -> None:
    outcome = run(events=events, expect=[expectation])
    assert failure in outcome.failure


def test_output_of_a_refused_request_is_its_error() -> None:
    request = {"op": "net.del", "net": "tcp5"}
    outcome = run(expect=[{"output": {"node": "a", "request": request, "contains": ["not configured"]}}])
    assert outcome.ok, outcome.failure


WRONG = [
    ([], "a scenario is a mapping"),
    ({"node": {}}, "'node' is no part of a scenario"),
    ({"events": {}}, "'events' is a list"),
    ({"events": [3]}, "event 1 is no mapping"),
    ({"events": [{"at": 1}]}, "event 1 has 0 actions"),
    ({"events": [{"at": 1, "up": "a", "down": "a"}]}, "event 1 has 2 actions"),
    ({"events": [{"at": "soon", "heal": None}]}, "does not fit"),
    ({"events": [{"at": 0, "explode": "a"}]}, "'explode' is no event: use one of put,"),
    ({"events": [{"at": 0, "down": {"cable": "a"}}]}, "event down: Object contains unknown field"),
    ({"events": [{"at": 0, "down": "a.eth7"}]}, "a.eth7 is no port"),
    ({"events": [{"at": 0, "kill": "z"}]}, "there is no node 'z'"),
    ({"events": [{"at": 0, "lnetctl": {"node": "a"}}]}, "give either request or config"),
    ({"events": [{"at": 0, "lnetctl": {"node": "a", "request": {"op": "net.burn"}}}]}, "request {'op'"),
    ({"events": [{"at": 0, "lnetctl": {"node": "a", "config": "net: 3"}}]}, "net"),
    ({"events": [{"at": 0, "put": {"from": "a", "to": "a", "size": 1 << 21}}]}, "Expected `int` <= 1048576"),
    ({"events": [{"at": 0, "put": {"from": "a", "to": "a", "count": 10**9}}]}, "Expected `int` <= 1000000"),
    ({"events": [{"at": -1, "heal": None}]}, "Expected `float` >= 0.0"),
    ({"events": [{"at": float("nan"), "heal": None}]}, "does not fit"),
    ({"expect": [{"luck": {}}]}, "'luck' cannot be expected"),
    ({"expect": [{}]}, "an expectation has one kind"),
    ({"expect": [{"peer": {"node": "a"}}]}, "expectation peer: Object missing required field"),
    ({"expect": [{"counter": {"node": "a", "name": "luck"}}]}, "counter 'luck' is none of LNet's"),
    ({"expect": [{"operations": "most"}]}, "'most' is none of all, some and none"),
    ({"link": {"loss": 1}}, "Expected `float` < 1.0"),
    ({"link": {"rate": float("inf")}}, "does not fit"),
    ({"nodes": {"a": {"kind": "toaster"}}}, "'toaster' is none of node, single-rail and silent"),
    ({"nodes": {"a": {"nids": ["ten@tcp"]}}}, "ten"),
    ({"nodes": {"a": {"config": "net: ["}}}, "node a: "),
    ({"nodes": {"a": {"nids": ["10.0.0.1@tcp"]}, "b": {"nids": ["10.0.0.1@tcp"]}}}, "on switch lan already"),
]


@pytest.mark.parametrize(("parts", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_is_wrong_in_a_scenario_is_told(parts: Any, words: str) -> None:
    nodes = {"a": {"nids": ["10.0.0.1@tcp"]}}
    data = {"nodes": nodes, **parts} if isinstance(parts, dict) else parts
    with pytest.raises(PlanError) as refused:
        play(plan_of(data))
    assert words in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        read_scenario(tmp_path / "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("nodes: [")
    with pytest.raises(PlanError, match="is no YAML"):
        read_scenario(bad)
    bad.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(PlanError, match="is not UTF-8"):
        read_scenario(bad)
