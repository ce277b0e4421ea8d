"""Plans of tests: what they may say, what runs, what is reported, and two reports side by side."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from itertools import permutations
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as Screen

from selftest.conftest import Lab
from support.shared import ROOT
from ulnet.cli.selftest_run import Picture, report_lines
from ulnet.core.status import LNetError
from ulnet.dlc import model_selftest as ask
from ulnet.selftest.console import Console
from ulnet.selftest.exchange import Incoming
from ulnet.selftest.html import as_html
from ulnet.selftest.plan import Expect, Plan, PlanError, read_plan
from ulnet.selftest.report import Cell, NodeResult, Report, Sample, TestResult, compare, judge
from ulnet.selftest.runner import pairs_in_rounds, run_plan
from ulnet.wire.selftest_bodies import MakeSessionReply, RailsReply, Reply
from ulnet.wire.selftest_values import Service

pytestmark = pytest.mark.requirement("LST")

GROUPS = {"c": ["127.4.0.2@tcp"], "s": ["127.4.0.3@tcp"], "all": ["127.4.0.[1-3]@tcp"]}


def plan(**more: Any) -> Plan:
    return read_plan({"groups": GROUPS, "interval": 0.1, **more})


def one_test(**more: Any) -> dict[str, Any]:
    return {"name": "t", "from": "c", "to": "s", "seconds": 0.3, **more}


@dataclass
class Runner:
    """Runs plans by a console on the first node."""

    lab: Lab
    console: Console

    async def __call__(self, plan: Plan, **more: Any) -> Report:
        return await run_plan(plan, self.do, **more)

    async def do(self, command: ask.Command) -> Any:
        return await self.console.do(ask.Lst(1, command))


@pytest.fixture
def runner(lab: Lab) -> Runner:
    return Runner(lab, Console(lab.tests[0].exchange))


async def test_tests_are_run_measured_and_judged(runner: Runner) -> None:
    looks: list[tuple[str, float]] = []
    # fmt: off
    report = await runner(plan(tests=[
        one_test(name="write", brw="write", size="64k", check="full", concurrency=4,
                 expect={"bandwidth": 0.001}),
        one_test(name="read", brw="read", size=5000, check="simple", expect={"bandwidth": 1e9, "slowest": 1}),
        one_test(name="ping", expect={"rate": 1}),
    ]), progress=lambda name, share, sample: looks.append((name, share)))
    # fmt: on
    assert report.error == "" and not report.good
    write, read, ping = report.tests
    assert [one.met for one in write.expectations] == [True, True]
    assert {one.what: one.met for one in read.expectations} == {
        "bandwidth": False, "slowest": True, "errors": True
    }  # fmt: skip
    assert write.bandwidth > 0 and read.bandwidth > 0 and ping.rate > 0 and ping.bandwidth == 0
    assert [node.id for node in write.nodes] == GROUPS["c"] and write.samples
    assert {name for name, _ in looks} == {"write", "read", "ping"} and looks[-1][1] == 1
    assert runner.console.roster is None
    assert all(test.framework.session is None for test in runner.lab.tests)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"brw": "reed"}, "'reed' - at `$.tests[0].brw`: it is one of read, write"),
        (
            {"brw": "read", "check": "ful"},
            "'ful' - at `$.tests[0].check`: it is one of none, simple, full, discard",
        ),
    ],
)
def test_words_that_a_plan_does_not_know_are_told_with_those_that_it_does(
    wrong: dict[str, str], words: str
) -> None:
    with pytest.raises(PlanError) as bad:
        plan(tests=[one_test(**wrong)])
    assert str(bad.value) == f"no plan of tests: Invalid enum value {words}"


async def test_rails_of_clients_and_servers_are_told(runner: Runner) -> None:
    looks: list[Sample] = []
    load = {"brw": "write", "size": "64k", "concurrency": 8, "seconds": 0.5}
    for tested in ("read", "write"):
        groups = {"own": ["127.4.0.1@tcp"], "s": ["127.4.0.3@tcp"]}
        tests = [{"name": "t", "from": "own", "to": "s", **load, "brw": tested}]
        report = await runner(
            read_plan({"groups": groups, "interval": 0.1, "tests": tests}),
            progress=lambda name, share, sample: looks.append(sample),
        )
        (test,) = report.tests
        assert report.error == "" and test.no_rails == []
        assert [(rail.node, rail.rail) for rail in test.rails] == [
            (f"127.4.0.{number}@tcp", rail)
            for number in (1, 3)
            for rail in (f"127.4.0.{number}@tcp", f"127.4.1.{number}@tcp1")
        ]
        assert all(rail.bandwidth > 0 and rail.rate > 0 and not rail.errors for rail in test.rails)
        page = as_html(report)
        assert "<td>127.4.1.3@tcp1</td>" in page and "are not known" not in page
        lines = "\n".join(report_lines(report))
        assert "  127.4.0.1@tcp, rail 127.4.1.1@tcp1: " in lines and "are not known" not in lines
    assert all(set(sample.rails) == {"127.4.0.1@tcp", "127.4.0.3@tcp"} for sample in looks)
    assert any(all(sample.rails["127.4.0.3@tcp"].values()) for sample in looks)


async def test_a_node_that_does_not_say_so_is_not_asked_for_rails(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of the kernel, which would let the request wait for good."""
    asked: list[int] = []
    framework = runner.lab.tests[2].framework
    answer = framework.answer

    async def kernel(incoming: Incoming) -> Reply | None:
        asked.append(incoming.message.service)
        reply = await answer(incoming)
        return replace(reply, mark=0) if isinstance(reply, MakeSessionReply) else reply

    monkeypatch.setattr(framework, "answer", kernel)
    report = await runner(plan(tests=[one_test(brw="write")]))
    (test,) = report.tests
    assert report.error == "" and Service.QUERY_STAT in asked and Service.RAILS not in asked
    assert test.no_rails == ["127.4.0.3@tcp"] and {rail.node for rail in test.rails} == {"127.4.0.2@tcp"}
    words = "rails of 127.4.0.3@tcp are not known: nodes that are not ulnet's do not tell them"
    assert escape(words) in as_html(report) and f"  {words}" in report_lines(report)


async def test_a_node_that_tells_its_rails_slowly_holds_a_round_no_longer_than_its_time(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    framework = runner.lab.tests[2].framework
    answer = framework.answer

    async def slow(incoming: Incoming) -> Reply | None:
        reply = await answer(incoming)
        if not isinstance(reply, RailsReply):
            return reply
        asked.append(len(asked))
        await asyncio.sleep(0.1)
        return replace(reply, status=0, rails=64, nid=1 + len(asked))

    monkeypatch.setattr(framework, "answer", slow)
    await runner.do(ask.SessionNew())
    await runner.do(ask.GroupAdd("s", GROUPS["s"]))
    document = await runner.do(ask.Counters(["s"], timeout=2.0, rails=True))
    (node,) = document.of[0].nodes
    assert (node.error, node.rails) == ("", {})
    assert 0 < len(asked) < 64
    await runner.do(ask.SessionEnd())


async def test_sessions_without_bulk_len_move_whole_pages(runner: Runner) -> None:
    load = {"brw": "write", "check": "full", "concurrency": 2}
    report = await runner(plan(features=0, tests=[one_test(size="8k", **load)]))
    assert report.good and report.tests[0].bandwidth > 0
    refused = await runner(plan(features=0, tests=[one_test(size=5000, **load)]))
    assert "it is whole pages" in refused.error and not refused.good
    assert all(test.framework.session is None for test in runner.lab.tests)


def test_the_live_picture_has_clients_and_rails() -> None:
    picture = Picture(plan(name="rack", tests=[one_test()]))
    screen = Screen(width=80, record=True, file=io.StringIO())
    screen.print(picture.table())
    rails = {"a@tcp": {"a@tcp": 30.0, "b@tcp1": 10.0}}
    picture.look("write", 0.5, Sample(1.0, {"a@tcp": 40.0, "c@tcp": 20.0}, 3, rails))
    screen.print(picture.table())
    text = screen.export_text()
    assert "rack" in text and "write: 50%, 3 errors" in text
    rows = [line.split("│")[1:-1] for line in text.splitlines() if "│" in line]
    shown = {row[0].strip(): (row[1].strip(), row[2].count("█")) for row in rows}
    assert shown["a@tcp"] == ("40.0", 20) and shown["c@tcp"] == ("20.0", 10)
    assert shown["a@tcp, rail a@tcp"][0] == "30.0" and shown["a@tcp, rail b@tcp1"][0] == "10.0"


async def test_every_pair_has_its_turn(runner: Runner) -> None:
    matrix = {"group": "all", "brw": "write", "size": "4k", "seconds": 0.2, "expect": {"slowest": 0.0001}}
    report = await runner(plan(matrix=matrix))
    (result,) = report.tests
    ids = [f"127.4.0.{number}@tcp" for number in (1, 2, 3)]
    assert {(cell.source, cell.sink) for cell in result.cells} == set(permutations(ids, 2))
    assert all(cell.bandwidth > 0 and not cell.errors for cell in result.cells) and report.good


async def test_errors_are_expectations_too(runner: Runner) -> None:
    async def switch_off(name: str) -> None:
        runner.lab.tests[2].switch(False)

    async def do(command: ask.Command) -> Any:
        done = await runner.do(command)
        if isinstance(command, ask.BatchRun):
            await switch_off(command.name)
        return done

    report = await run_plan(plan(tests=[one_test(expect={"errors": 0})]), do)
    assert not report.good and report.tests[0].errors > 0
    assert "not as expected" in as_html(report)


TWO = {"c": ["127.4.0.[1-2]@tcp"], "s": ["127.4.0.3@tcp"]}
ANEW = "its counters fell: its session there began anew"


def telling(runner: Runner, looks: Callable[[str, int], dict[str, Any]]) -> Callable[[Any], Any]:
    """Commands of a run in which nodes tell other counters at each look: `looks(node, its how-manieth)`."""
    seen: Counter[str] = Counter()

    async def do(command: ask.Command) -> Any:
        document = await runner.do(command)
        for view in document.of if isinstance(command, ask.Counters) else ():
            for node in view.nodes:
                told = looks(node.id, seen[node.id])
                seen[node.id] += 1
                node.error = told.pop("error", "")
                node.framework.update(told)
        return document

    return do


async def test_a_node_that_is_lost_cancels_no_errors_of_others(runner: Runner) -> None:
    """A client with 22 errors of an earlier test was killed: -22 errors were no more than 0."""

    def looks(node: str, number: int) -> dict[str, Any]:
        if node == "127.4.0.1@tcp":
            return {"error": "it is gone"} if number >= 2 else {"ping_errors": 22}
        return {"ping_errors": number if node == "127.4.0.2@tcp" else 0}

    named = read_plan({"groups": TWO, "interval": 0.1, "tests": [one_test()]})
    report = await run_plan(named, telling(runner, looks))
    (test,) = report.tests
    assert not report.error and not report.good and test.lost == {"127.4.0.1@tcp": "it is gone"}
    assert [node.errors for node in test.nodes] == [1, len(test.samples) + 1]
    assert test.errors == len(test.samples) + 2 and test.samples[-1].errors == test.errors
    assert "  127.4.0.1@tcp: it is gone" in report_lines(report)


@pytest.mark.parametrize(
    ("count", "first", "then"), [("brw_errors", 4_000_000_000, 0), ("running_ms", 5000, 20)]
)
async def test_a_client_whose_counters_fall_is_lost(
    runner: Runner, count: str, first: int, then: int
) -> None:
    """It restarted, or lied to hide the errors of others."""

    def looks(node: str, number: int) -> dict[str, Any]:
        if node == "127.4.0.1@tcp":
            return {count: then if number >= 2 else first}
        return {"brw_errors": number}

    named = read_plan({"groups": TWO, "interval": 0.1, "tests": [one_test()]})
    report = await run_plan(named, telling(runner, looks))
    (test,) = report.tests
    assert not report.good and test.lost == {"127.4.0.1@tcp": ANEW}
    assert test.nodes[0].errors == 1 and test.errors > 1
    assert all(sample.errors > 0 for sample in test.samples)


async def test_a_server_that_is_lost_is_named(runner: Runner) -> None:
    def looks(node: str, number: int) -> dict[str, Any]:
        return {"error": "<gone>"} if number and node == "127.4.0.3@tcp" else {}

    report = await run_plan(plan(tests=[one_test()]), telling(runner, looks))
    assert not report.good and report.tests[0].errors == 1
    assert "  127.4.0.3@tcp: <gone>" in report_lines(report) and "127.4.0.3@tcp: &lt;gone&gt;" in as_html(
        report
    )


async def test_pairs_of_a_matrix_hide_no_errors_either(runner: Runner) -> None:
    def looks(node: str, number: int) -> dict[str, Any]:
        if node == "127.4.0.1@tcp":
            return {"error": "gone"} if number else {"ping_errors": 22}
        return {"ping_errors": number}

    matrix = {"group": "c", "seconds": 0.1}
    named = read_plan({"groups": TWO, "interval": 0.1, "matrix": matrix})
    report = await run_plan(named, telling(runner, looks))
    (test,) = report.tests
    assert [cell.errors for cell in test.cells] == [2, 2] and test.errors == 4
    assert not report.good and test.lost == {"127.4.0.1@tcp": "gone"}


async def test_a_node_that_a_test_goes_without_is_an_error(runner: Runner) -> None:
    async def do(command: ask.Command) -> Any:
        if isinstance(command, ask.TestAdd):
            assert runner.console.roster is not None
            member = runner.console.roster.groups["c"].members[0]
            member.state, member.error = "down", "no answer"
        return await runner.do(command)

    report = await run_plan(read_plan({"groups": TWO, "interval": 0.1, "tests": [one_test()]}), do)
    (test,) = report.tests
    assert not report.good and test.errors == 1
    assert test.lost == {"127.4.0.1@tcp": "it is down, and not in the test: no answer"}
    assert [node.rate > 0 for node in test.nodes] == [False, True]


async def test_a_node_that_is_not_there_ends_the_run(runner: Runner) -> None:
    runner.lab.tests[2].switch(False)
    report = await runner(plan(tests=[one_test()]))
    assert "127.4.0.3@tcp is unknown: selftest is off there" in report.error and not report.good
    assert runner.console.roster is None and runner.lab.tests[1].framework.session is None


async def test_another_session_is_in_the_way(runner: Runner) -> None:
    await runner.do(ask.SessionNew("mine"))
    refused = await runner(plan(tests=[one_test()]))
    assert "there is a session already" in refused.error
    assert runner.console.roster is not None
    assert (await runner(plan(tests=[one_test()]), force=True)).good
    with pytest.raises(LNetError):
        await runner.do(ask.SessionShow())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.pop("groups"), "missing required field `groups`"),
        (lambda data: data.pop("tests"), "a plan without tests"),
        (lambda data: data.update(speed=3), "unknown field `speed`"),
        (lambda data: data["tests"][0].update(to="x"), "no group 'x'; groups are c, s, all"),
        (lambda data: data["tests"][0].update(brw="up"), r"Invalid enum value 'up' - at `\$.tests\[0\].brw`"),
        (lambda data: data["tests"][0].update(brw="read", size="2M"), "size '2M' is no size"),
        (lambda data: data["tests"][0].update(distribute="1-2"), "no ratio"),
        (lambda data: data["tests"][0].update(seconds=0), "seconds"),
        (lambda data: data["groups"].update(c=["what?"]), "group c: "),
        (lambda data: data["groups"].update({"x" * 32: ["10.0.0.1@tcp"]}), "1 to 31 bytes"),
        (lambda data: data["groups"].update(c=["10.0.[0-255].[0-255]@tcp"]), "group c: "),
        (lambda data: data.update(matrix={"group": "none"}), "no group 'none'"),
    ],
)
def test_plans_that_cannot_be(change: Callable[[Any], object], words: str) -> None:
    data: dict[str, Any] = {"groups": dict(GROUPS), "tests": [one_test()]}
    change(data)
    with pytest.raises(PlanError, match=words):
        read_plan(data)


@pytest.mark.parametrize("data", [None, 3, [], "text"])
def test_what_is_no_plan_at_all(data: Any) -> None:
    with pytest.raises(PlanError, match="no plan of tests"):
        read_plan(data)


@given(st.integers(0, 9), st.integers(1, 5))
def test_rounds_hold_each_pair_once_and_no_node_twice(count: int, flows: int) -> None:
    nodes = [f"n{number}" for number in range(count)]
    rounds = pairs_in_rounds(nodes, flows)
    pairs = [pair for one in rounds for pair in one]
    assert sorted(pairs) == sorted(permutations(nodes, 2))
    for one in rounds:
        assert 0 < len(one) <= flows
        assert len({node for pair in one for node in pair}) == 2 * len(one)


def result(bandwidth: float, errors: int = 0, **more: Any) -> TestResult:
    return TestResult("t", "brw read", 1.0, bandwidth, 0.0, errors, **more)


def test_the_slowest_is_judged_by_the_mean() -> None:
    found = result(30.0, nodes=[NodeResult("a", 20.0, 1, 0), NodeResult("b", 10.0, 1, 0)])
    judge(found, Expect(slowest=0.7, errors=None))
    (one,) = found.expectations
    assert one.found == pytest.approx(2 / 3) and not one.met


def test_two_reports_are_compared() -> None:
    before = Report("p", 0.0, [result(100.0, cells=[Cell("a", "b", 10.0, 1, 0), Cell("b", "a", 10.0, 1, 0)])])
    after = Report("p", 1.0, [result(95.0, 1, cells=[Cell("a", "b", 8.0, 1, 0)])])
    found = {(one.test, one.what): one.worse for one in compare(before, after, 10.0)}
    assert found == {("t", "errors"): True, ("t", "bandwidth"): False, ("t: a to b", "bandwidth"): True}
    assert list(compare(before, Report("p", 2.0, []), 10.0)) == []


def test_a_report_comes_back_and_is_a_page() -> None:
    nodes = [NodeResult("<a>", 1.0, 2.0, 0, "gone & lost")]
    found = result(
        1.0, nodes=nodes, samples=[Sample(1.0, {"<a>": 1.0}, 0)], cells=[Cell("a", "b", 1.0, 1, 2)]
    )
    report = Report("<plan>", 0.0, [found], "it ended <early>")
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert json.loads(msgspec.json.encode(report))["tests"][0]["cells"][0]["errors"] == 2
    page = as_html(report)
    assert (
        "&lt;plan&gt;" in page and "<polyline" in page and "gone &amp; lost" in page and "<early>" not in page
    )


def test_the_plan_of_the_page_is_one() -> None:
    page = (ROOT / "docs/selftest.md").read_text()
    block = page.split("```yaml\n")[1].split("```")[0]
    found = read_plan(yaml.safe_load(block))
    assert found.tests[0].ratio() == (1, 2) and found.matrix is not None and found.matrix.flows == 4
