"""Traffic as programs write it: awaited calls, bursts, streams of one descriptor; and what holds of it."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ulnet.core.event import Event
from ulnet.core.memory import Memory
from ulnet.sim import Broken, LinkParams, Operation, SimNode, Simulation
from ulnet.sim.plan import plan_of
from ulnet.sim.run import Outcome, play

SIZES = (0, 1, 5000, 1 << 20)


def pair(**link: Any) -> tuple[Simulation, SimNode, SimNode]:
    sim = Simulation(3, link=LinkParams(**link))
    a, b = sim.node("a", "10.0.0.1@tcp"), sim.node("b", "10.0.0.2@tcp")
    b.attach(30)
    return sim, a, b


def plan_run(events: list[Any], **parts: Any) -> Outcome:
    nodes = {"a": {"nids": ["10.0.0.1@tcp"]}, "b": {"nids": ["10.0.0.2@tcp"], "portals": [30]}}
    return play(plan_of({"nodes": nodes, "events": events, **parts}))


@pytest.mark.parametrize("size", SIZES)
def test_awaited_calls_end_once_with_what_was_moved(size: int) -> None:
    sim, a, b = pair()
    put, get = a.await_put(b.nid, 30, data=bytes(size)), a.await_get(b.nid, 30, size=size)
    ping = a.await_ping(b.nid)
    sim.run_until_quiet()
    assert (put.ok, put.taken) == (True, size)
    assert (get.ok, get.taken) == (True, size)
    assert (ping.ok, ping.taken) == (True, 1)
    assert all(one.ended and not one.broken for one in (put, get, ping))
    assert not a.operations


def test_an_awaited_call_that_fails_has_the_errno() -> None:
    sim, a, _ = pair()
    put = a.await_put("10.0.0.77@tcp", 30, data=b"x", timeout=5)
    bad = a.await_get("10.0.0.2@tcp", 1 << 40)
    sim.run_until_quiet()
    assert put.status in (-errno.ETIMEDOUT, -errno.EHOSTUNREACH)
    assert bad.status == -errno.EINVAL


def test_a_node_may_die_before_its_task_begins_and_while_it_waits() -> None:
    sim, a, b = pair()
    a.await_put(b.nid, 30, data=bytes(100))
    a.kill()
    a.restart()
    sim.run_until_quiet()
    waiting = a.await_put(b.nid, 30, data=bytes(1 << 20))
    sim.run(1e-4)
    a.kill()
    a.restart()
    sim.run_until_quiet()
    assert waiting.status is None
    assert not a.operations


@pytest.mark.parametrize("ack", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_a_stream_keeps_its_window_and_delivers_each_message_once(size: int, ack: bool) -> None:
    sim, a, b = pair()
    inbox = b.attach(31, keep_data=False)
    begun: list[Operation] = []
    most = 0

    def begin(operation: Operation) -> None:
        nonlocal most
        begun.append(operation)
        most = max(most, sum(not one.ended for one in begun))

    stream = a.stream(b.nid, 31, size=size, count=50, window=7, ack=ack, begun=begin)
    sim.run_until_quiet()
    assert len(begun) == len(inbox) == stream.delivered == 50
    assert all(one.ok and one.ended for one in begun)
    assert set(inbox.times.values()) == {1}
    assert most == 7
    assert stream.ended
    assert not a.streams


def test_a_stream_of_gets() -> None:
    sim, a, b = pair(ordered=False, jitter=1e-3)
    begun: list[Operation] = []
    a.stream(b.nid, 30, kind="get", size=5000, count=40, window=32, begun=begun.append)
    sim.run_until_quiet()
    assert [one.status for one in begun] == [0] * 40


def test_a_stream_whose_receiver_dies_ends_and_so_does_each_of_its_messages() -> None:
    sim, a, b = pair(rate=1e8)
    begun: list[Operation] = []
    a.stream(b.nid, 30, size=100_000, count=1000, window=8, begun=begun.append)
    sim.run(0.05)
    b.kill()
    sim.run_until_quiet()
    assert 8 < len(begun) < 1000
    assert all(one.ended for one in begun)
    assert {one.ok for one in begun} == {True, False}
    assert not a.streams


def test_a_stream_that_is_never_answered_gives_up() -> None:
    """LNet sees to one answer of a descriptor: the last ones of a window may be missing for ever."""
    sim, a, b = pair()
    a.put(b.nid, 30)
    sim.run_until_quiet()
    a.stream(b.nid, 30, size=10, count=20, window=20)
    sim.run(10e-6)
    b.kill(silent=True)
    sim.run_until_quiet()
    assert not a.streams


def test_what_cannot_begin_leaves_nothing_behind() -> None:
    outcome = plan_run(
        [
            {"at": 0, "stream": {"from": "a", "to": "b", "portal": 1 << 40}},
            {"at": 0, "put": {"from": "a", "to": "b", "portal": 1 << 40}},
        ]
    )
    assert outcome.ok, outcome.failure
    assert len(outcome.run.refusals) == 2


@pytest.mark.pure
@pytest.mark.parametrize(
    "event",
    [
        {"put": {"from": "a", "to": "b", "awaited": True}},
        {"ask": {"node": "a", "nid": "10.0.0.2@tcp"}},
        {"lnetctl": {"node": "a", "request": {"op": "discover", "nids": ["10.0.0.2@tcp"]}}},
    ],
)
def test_what_a_task_raises_is_a_failed_run(event: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **more: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("ulnet.node.operations.Operations.put", fails)
    monkeypatch.setattr("ulnet.control.instance.LNet.discover", fails)
    monkeypatch.setattr("ulnet.node.peers.ask_primary", fails)
    outcome = plan_run([{"at": 0, **event}])
    assert "a task failed: RuntimeError: planted" in outcome.failure


@pytest.mark.pure
def test_an_answer_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = Memory.complete

    def twice(self: Memory, md: Any, event: Event) -> None:
        complete(self, md, event)
        if event.kind.name == "SEND" and not event.unlinked:
            complete(self, md, event)

    monkeypatch.setattr(Memory, "complete", twice)
    sim, a, b = pair()
    a.stream(b.nid, 30, count=5, window=2)
    with pytest.raises(Broken, match=r"more events than it has messages|after its last event"):
        sim.run_until_quiet()


@pytest.mark.pure
def test_a_message_that_arrives_on_another_portal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sim, a, b = pair()
    b.attach(31)
    put = a.core.put
    monkeypatch.setattr(a.core, "put", lambda md, to, portal, *rest, **more: put(md, to, 31, *rest, **more))
    a.put(b.nid, 30)
    with pytest.raises(Broken, match="arrived as another one: portal 31"):
        sim.run_until_quiet()


@pytest.mark.parametrize("awaited", [False, True])
def test_bursts_are_sent_in_one_go(awaited: bool) -> None:
    words = {"from": "a", "to": "b", "burst": 30, "count": 2, "every": 1, "awaited": awaited}
    outcome = plan_run([{"at": 0, "put": words}], expect=[{"operations": "all"}])
    assert outcome.ok, outcome.failure
    assert len(outcome.run.operations) == 60


def test_recovers_mends_what_was_broken() -> None:
    events = [
        {"at": 0, "partition": {"between": ["a"], "and": ["b"]}},
        {"at": 1, "down": "a.eth0"},
        {"at": 2, "kill": "b"},
    ]
    outcome = plan_run(events, expect=[{"recovers": {"nodes": ["a", "b"]}}])
    assert "node b does not reach a after all was mended" in outcome.failure  # a has no memory
    outcome = plan_run(events, expect=[{"recovers": {"nodes": ["a"], "targets": ["b"]}}])
    assert outcome.ok, outcome.failure


def test_recovers_says_who_is_out_of_reach() -> None:
    wanted = {"nodes": ["a"], "targets": ["10.0.0.9@tcp"], "after": 1}
    outcome = plan_run([], expect=[{"recovers": wanted}])
    assert "node a does not reach 10.0.0.9@tcp after all was mended: " in outcome.failure
