"""Calls in random worlds with faults: executed at most once, each ends exactly once, nothing is kept."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator

import pytest

from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.pending import Pending
from ulnet.rpc.played import RECIPE
from ulnet.rpc.sessions import Session, Verdict
from ulnet.sim import Simulation
from ulnet.sim.random_run import replay

pytestmark = pytest.mark.requirement("ULP")

GROUP = 20
IN_C = pytest.mark.pure  # methods that the compiled build calls without looking them up


@pytest.mark.parametrize("first", range(1, 81, GROUP))
def test_random_worlds(first: int) -> None:
    for seed in range(first, first + GROUP):
        assert replay(RECIPE, seed).failure == "", seed


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 30_000, 500))
def test_more_random_worlds(first: int) -> None:
    for seed in range(first, first + 500):
        assert replay(RECIPE, seed).failure == "", seed


def failures(seeds: int) -> set[str]:
    return {replay(RECIPE, seed).failure.partition(": ")[2] for seed in range(1, seeds + 1)} - {""}


@IN_C
def test_a_server_that_executes_repetitions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Session.judge

    def wrong(self: Session[object], slot: int, number: int) -> Verdict:
        verdict = judge(self, slot, number)
        return Verdict.NEW if verdict in (Verdict.ANSWERED, Verdict.RUNNING) else verdict

    monkeypatch.setattr(Session, "judge", wrong)
    assert "it was executed more than once" in failures(40)


def restarted_in_mid_call() -> tuple[int, RpcError | None]:
    """How often a call is executed whose server is restarted while its handler runs, and how it ends."""
    sim = Simulation(1)
    home, other = sim.node("s", "10.0.0.1@tcp"), sim.node("c", "10.0.0.2@tcp")
    service = Service("tested")
    executed = 0
    ended: list[RpcError | None] = []

    @service.method("slow")
    async def slow(call: Call) -> None:
        nonlocal executed
        executed += 1
        await asyncio.sleep(5.0)

    async def ask() -> None:
        client = Client(other.node, "10.0.0.1@tcp", "tested")
        try:
            await client.call("slow", timeout=300.0)
            ended.append(None)
        except RpcError as failed:
            ended.append(failed)
        await client.close()

    home.each_life(lambda: Server(service, home.node).start())
    other.spawn(ask())
    sim.run_until(lambda: executed == 1)
    home.kill(silent=True)
    home.restart()
    sim.run_until(lambda: bool(ended), 400.0)
    return executed, ended[0]


def test_a_call_in_whose_midst_the_server_was_restarted_is_not_made_again() -> None:
    executed, error = restarted_in_mid_call()
    assert executed == 1
    assert error is not None
    assert (error.errno, error.executed) == (errno.ECONNRESET, "unknown")


@IN_C
def test_a_client_that_is_too_sure_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Pending._not_known_there
    monkeypatch.setattr(Pending, "_not_known_there", lambda self, sure: end(self, True))
    assert restarted_in_mid_call() == (2, None)


@IN_C
def test_replies_that_are_kept_for_ever_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "_forget", lambda self: None)
    found = [replay(RECIPE, seed).failure for seed in range(1, 8)]
    assert any("not quiet" in failure for failure in found)


@pytest.mark.parametrize("kind", ["stream", "call"])
def test_a_client_that_is_never_heard_again_is_not_worked_for(kind: str) -> None:
    sim = Simulation(1)
    home, other = sim.node("s", "10.0.0.1@tcp"), sim.node("c", "10.0.0.2@tcp")
    service = Service("long")

    @service.stream("stream")
    async def endless(call: Call) -> AsyncIterator[bytes]:
        while True:
            yield bytes(10)

    @service.method("call")
    async def never(call: Call) -> None:
        await home.node.inbox(30, 1).receive()

    server: list[Server] = []

    def serve() -> None:
        server.append(Server(service, home.node))
        server[0].start()

    home.loop.enter(serve)

    async def ask() -> None:
        client = Client(other.node, "10.0.0.1@tcp", "long")
        if kind == "call":
            await client.call("call")
        stream = client.stream("stream")
        await anext(stream)
        await home.node.inbox(31, 1).receive()  # and reads no further

    other.spawn(ask())
    sim.run_until(lambda: server[0].running == 1)
    sim.run(1.0)
    other.kill(silent=True)
    sim.run(20.0)
    assert server[0].running == 1  # it may be back soon
    sim.run_until(lambda: server[0].running == 0, 200.0)
    sim.run_until(lambda: not any(server[0].kept().values()), 200.0)
    home.call(server[0].close())


@pytest.mark.parametrize("seed", [12750, 70000820])
def test_a_stream_ends_whose_server_does_not_take_its_credit(seed: int) -> None:
    assert replay(RECIPE, seed).failure == ""


@pytest.mark.parametrize("seed", [70101744])
def test_a_stream_that_was_begun_is_not_told_to_be_untouched(seed: int) -> None:
    assert replay(RECIPE, seed).failure == ""


@pytest.mark.parametrize("seed", [70101364])
def test_bulk_that_fails_often_waits_no_longer_each_time(seed: int) -> None:
    assert replay(RECIPE, seed).failure == ""
