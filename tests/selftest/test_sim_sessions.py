"""Sessions in the simulator: consoles that crash, nodes that leave, sessions that expire; all end clean."""

from __future__ import annotations

import asyncio
import errno
import logging
from dataclasses import replace
from typing import Any

import pytest

from selftest.sim_sessions import SESSION, World
from support.routed import SETTLED, add_route, make_router
from ulnet.core.status import LNetError
from ulnet.dlc import model_selftest as ask
from ulnet.dlc.documents_selftest import CountersDocument, GroupDocument
from ulnet.selftest import Selftest
from ulnet.selftest.console import Console
from ulnet.selftest.exchange import Incoming
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode
from ulnet.wire.selftest_bodies import MakeSessionReply, MakeSessionRequest, Reply
from ulnet.wire.selftest_values import ANY_SESSION, BULK_LEN, Service, SessionId

pytestmark = pytest.mark.requirement("LST")


class Told:
    """Answers to commands, in order; each is given when all is over."""

    def __init__(self, node: SimNode, console: Console, *commands: ask.Command | float) -> None:
        self.answers: list[Any] = []
        node.spawn(self._do(console, commands))

    async def _do(self, console: Console, commands: tuple[ask.Command | float, ...]) -> None:
        for command in commands:
            if isinstance(command, float):
                await asyncio.sleep(command)
            else:
                self.answers.append(await console.do(ask.Lst(7, command)))


def lab(count: int, **more: Any) -> tuple[Simulation, list[SimNode], list[Selftest], Console]:
    sim = Simulation(1, link=LinkParams(rate=1e9, delay=0.01))
    nodes = [
        sim.node(f"n{number}", f"10.0.{number >> 8}.{number & 255}@tcp") for number in range(1, count + 1)
    ]
    tests = []
    for node in nodes:
        tests.append(Selftest(node.node, wall=World.wall(node), **more))
        node.loop.enter(tests[-1].start)
    return sim, nodes, tests, Console(tests[0].exchange)


def test_a_console_that_crashes_leaves_sessions_that_expire() -> None:
    sim, nodes, tests, console = lab(3, session_timeout=SESSION)
    ids = [str(node.nid) for node in nodes]
    brw = ask.Brw("write", 1 << 16, "full")
    # fmt: off
    told = Told(nodes[0], console, ask.SessionNew(), ask.GroupAdd("c", ids[1:2]), ask.GroupAdd("s", ids[2:]),
                ask.TestAdd("c", "s", concurrency=4, brw=brw), ask.BatchRun())
    # fmt: on
    sim.run(1.0)
    assert len(told.answers) == 5
    session = tests[1].framework.session
    assert session is not None and session.active == 1
    nodes[0].kill(silent=True)
    sim.run(SESSION - 5.0)
    assert tests[1].framework.session is session and session.active == 1
    sim.run(10.0)
    assert [test.framework.sid for test in tests[1:]] == [ANY_SESSION] * 2
    assert not tests[1].framework.zombies and session.corrupted == 0
    sent = tests[1].exchange.sent
    sim.run(10.0)
    assert tests[1].exchange.sent == sent  # its units have ended


def test_a_console_keeps_sessions_alive() -> None:
    sim, nodes, tests, console = lab(2, session_timeout=SESSION)
    told = Told(nodes[0], console, ask.SessionNew(idle=0), ask.GroupAdd("g", [str(nodes[1].nid)]))
    sim.run(20 * SESSION)
    assert len(told.answers) == 2 and tests[1].framework.sid != ANY_SESSION
    nodes[0].spawn(console.close())
    sim.run(1.0)
    assert tests[1].framework.session is None


def test_the_pace_of_one_member_is_not_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says that its session ends after a second had all others asked eight times a second.

    Those that needed a quarter of a second for an answer counted as down.
    """
    sim, nodes, tests, console = lab(4)

    def says(number: int, timeout: int, seconds: float) -> None:
        answer = tests[number].framework.answer

        async def slow(incoming: Incoming) -> Reply | None:
            await asyncio.sleep(seconds)
            reply = await answer(incoming)
            return replace(reply, timeout=timeout) if isinstance(reply, MakeSessionReply) else reply

        monkeypatch.setattr(tests[number].framework, "answer", slow)

    says(1, 1, 0.0)
    says(2, 100, 1.0)
    says(3, 1, 2.0)
    ids = [str(node.nid) for node in nodes]
    Told(nodes[0], console, ask.SessionNew(idle=0), ask.GroupAdd("g", ids[1:]))
    sim.run(5.0)
    begun = [test.exchange.received for test in tests]
    looks: list[ask.Command | float] = [1.0, ask.GroupList(["g"])]
    told = Told(nodes[0], console, *looks * 100)
    sim.run(101.0)
    for document in told.answers:
        assert [node.state for node in document.groups[0].nodes] == ["active"] * 3
    asked = [test.exchange.received - before for test, before in zip(tests, begun, strict=True)]
    assert 40 <= asked[1] <= 80 and 4 <= asked[2] <= 8 and 20 <= asked[3] <= 80
    nodes[0].spawn(console.close())
    sim.run(10.0)


def test_a_silent_member_does_not_delay_what_keeps_others_alive() -> None:
    """Nodes whose sessions end after ten seconds: the first question came after 12.5 s."""
    sim, nodes, tests, console = lab(3, session_timeout=10.0)
    ids = [str(node.nid) for node in nodes[1:]]
    Told(nodes[0], console, ask.SessionNew(idle=0), ask.GroupAdd("g", ids))
    sim.run(1.0)
    session = tests[1].framework.session
    nodes[2].kill(silent=True)
    sim.run(100.0)
    assert session is not None and tests[1].framework.session is session
    nodes[0].spawn(console.close())
    sim.run(10.0)


def test_a_session_without_commands_ends() -> None:
    sim, nodes, tests, console = lab(2)
    Told(nodes[0], console, ask.SessionNew(idle=50), ask.GroupAdd("g", [str(nodes[1].nid)]))
    sim.run(45.0)
    begun = (console.roster, tests[1].framework.session)
    sim.run(10.0)
    assert None not in begun and (console.roster, tests[1].framework.session) == (None, None)


def test_sessions_that_follow_each_other_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Who forces a new one had ten lines more each time."""
    caplog.set_level(logging.WARNING, "ulnet.selftest")
    sim, nodes, tests, _ = lab(2)
    framework = tests[1].framework

    def make(number: int) -> None:
        """All of them within a moment."""
        request = MakeSessionRequest(number, SessionId(nodes[0].nid.nid4, number), force=1, name="s")
        assert framework._make_session(request, BULK_LEN).status == 0
        assert framework.session is not None
        for target in range(10):
            framework.session.failed(Service.PING, LNetError(errno.EHOSTUNREACH, f"no route to {target}"))
        framework.data_corrupted(nodes[0].nid)

    def told() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.name == "ulnet.selftest"]
        caplog.clear()
        return lines

    for number in range(100):
        nodes[1].loop.enter(make, number)
    assert len(told()) == 11, "of 1,100, which say eleven things"
    sim.run(2.0)
    nodes[1].loop.enter(make, 100)
    lines = told()
    assert len(lines) == 11 and all("(and 99 more like this)" in line for line in lines)


def test_a_node_that_leaves_counts_as_down_and_joins_again() -> None:
    sim, nodes, _, console = lab(3, rpc_timeout=5.0)
    ids = [str(node.nid) for node in nodes]
    # fmt: off
    Told(nodes[0], console, ask.SessionNew(), ask.GroupAdd("c", ids[1:2]), ask.GroupAdd("s", ids[2:]),
         ask.TestAdd("c", "s", stop_on_error=False), ask.BatchRun())
    # fmt: on
    sim.run(1.0)
    nodes[2].kill(silent=True)
    told = Told(nodes[0], console, ask.Counters(["c", "s"]), ask.GroupList(["s"]))
    sim.run(20.0)
    counters, groups = told.answers
    assert isinstance(counters, CountersDocument) and isinstance(groups, GroupDocument)
    assert counters.of[1].nodes[0].error and not counters.of[0].nodes[0].error
    assert groups.groups[0].nodes[0].state == "down"
    nodes[2].restart()
    again = Selftest(nodes[2].node)
    nodes[2].loop.enter(again.start)
    told = Told(nodes[0], console, 60.0, ask.GroupUpdate("s", refresh=True), ask.SessionEnd())
    sim.run(200.0)
    assert told.answers[0].groups[0].nodes[0].state == "active"
    assert again.framework.session is None


def test_a_hundred_nodes_in_one_session() -> None:
    sim, nodes, tests, console = lab(100)
    clients, servers = "10.0.0.[1-50]@tcp", "10.0.0.[51-100]@tcp"
    # fmt: off
    told = Told(nodes[0], console, ask.SessionNew(), ask.GroupAdd("c", [clients]),
                ask.GroupAdd("s", [servers]), ask.TestAdd("c", "s", loop=3, distribute=2, span=5),
                ask.BatchRun(), 2.0,
                ask.Counters(["c", "s"]), ask.SessionEnd())
    # fmt: on
    sim.run(60.0)
    counters = told.answers[-2]
    assert isinstance(counters, CountersDocument)
    assert [node.rpc["rpcs_sent"] >= 15 for node in counters.of[0].nodes] == [True] * 50
    assert sum(node.framework["ping_errors"] for view in counters.of for node in view.nodes) == 0
    assert all(test.framework.session is None for test in tests)


@pytest.mark.parametrize("seed", range(20))
def test_random_sessions_end_clean(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "ulnet.selftest"):
        world = World(seed)
        world.run()
    assert "corrupted" not in caplog.text


def test_random_sessions_are_worth_it() -> None:
    moved = done = 0
    for seed in range(100, 104):
        world = World(seed)
        world.run()
        moved += world.moved
        done += world.counts["done"]
    assert moved > 1 << 20 and done > 20


def test_the_same_seed_is_the_same_run() -> None:
    runs = []
    for _ in range(2):
        world = World(7)
        world.run()
        runs.append((world.sim.now, dict(world.counts), world.moved))
    assert runs[0] == runs[1]


def test_bulk_passes_a_router() -> None:
    sim = Simulation(1, link=LinkParams(rate=1e9, delay=0.001))
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", "10.2.0.2@tcp2")
    make_router(sim.node("r", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
    add_route(client, "tcp2", ["10.1.0.9@tcp1"])
    add_route(server, "tcp1", ["10.2.0.9@tcp2"])
    tests = []
    for node in (client, server):
        tests.append(Selftest(node.node, wall=World.wall(node)))
        node.loop.enter(tests[-1].start)
    sim.run(SETTLED)
    # fmt: off
    told = Told(client, Console(tests[0].exchange), ask.SessionNew(), ask.GroupAdd("c", [str(client.nid)]),
                ask.GroupAdd("s", [str(server.nid)]),
                ask.TestAdd("c", "s", loop=20, concurrency=2, brw=ask.Brw("read", 1 << 18, "full")),
                ask.TestAdd("c", "s", loop=20, concurrency=2, brw=ask.Brw("write", 1 << 18, "full")),
                ask.BatchRun(), 5.0, ask.Counters(["c", "s"]), ask.SessionEnd())
    # fmt: on
    sim.run(30.0)
    counters = told.answers[-2]
    assert isinstance(counters, CountersDocument)
    for view in counters.of:
        (told_of,) = view.nodes
        lists = told_of.rpc["bulk_get"] - (40 << 18)  # of two tests, each with one node
        assert (lists, told_of.rpc["bulk_put"]) == (24 if view.name == "c" else 0, 40 << 18)
        assert told_of.framework["brw_errors"] == 0


@pytest.mark.long
def test_a_thousand_nodes_are_polled() -> None:
    sim, nodes, _, console = lab(1000)
    polls = [ask.Counters(["all"])] * 5
    everybody = ["10.0.[0-3].[0-255]@tcp"]
    told = Told(nodes[0], console, ask.SessionNew(), ask.GroupAdd("all", everybody), *polls, ask.SessionEnd())
    sim.run(300.0)
    counters = told.answers[-2]
    assert isinstance(counters, CountersDocument)
    answers = [node for node in counters.of[0].nodes if not node.error]
    assert len(answers) == 1000
