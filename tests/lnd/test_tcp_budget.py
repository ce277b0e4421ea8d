"""Attempts to connect have a budget: peers that do not answer hold up nobody who does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from lnd.conftest import Addresses
from lnd.kit import Side, put_header, until
from lnd.test_tcp_connect import swallowing
from ulnet.lnd.tcp import budget
from ulnet.nid import Nid
from ulnet.wire.lnet import MsgType

Make = Callable[..., Side]


@pytest.mark.pure  # compiled code has the constant in it
async def test_the_silent_make_room_for_who_answers(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MOST_CALLS", 2)
    side = make(at.nid(1), tunables={"timeout": 300})
    silent = range(10, 15)
    most = []
    with ExitStack() as stack:
        for host in silent:
            stack.enter_context(swallowing(at.ip(host), side.params.accept_port))
            side.put(at.nid(host), b"nobody is there")
        live = make(at.nid(2))
        side.put(at.nid(2), b"hello")

        def arrived() -> bool:
            most.append(side.lnd.pending_handshakes)
            return live.core.complete(1)()

        await until(arrived)
        assert max(most) == 2
        assert len(side.core.outcomes) <= 1
    later = [
        make(at.nid(host)) for host in silent
    ]  # now the others may answer: they are called again in turn
    await until(lambda: all(one.core.complete(1)() for one in later))
    await until(lambda: len(side.core.outcomes) == 6)
    assert [one.errno for one in side.core.outcomes] == [0] * 6


@pytest.mark.pure
async def test_who_stays_silent_fails_when_its_time_is_up(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MOST_CALLS", 1)
    side = make(at.nid(1), tunables={"timeout": 3})
    with ExitStack() as stack:
        for host in (10, 11, 12):
            stack.enter_context(swallowing(at.ip(host), side.params.accept_port))
            side.put(at.nid(host), b"nobody is there")
        await until(lambda: len(side.core.outcomes) == 3)
        assert {one.errno for one in side.core.outcomes} == {errno.ETIMEDOUT}
        await until(lambda: side.lnd.pending_handshakes == 0)
        assert not side.lnd._shared.budget.wanted


@pytest.mark.pure
async def test_a_node_that_shuts_down_gives_all_places_back(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MOST_CALLS", 1)
    side = make(at.nid(1))
    with swallowing(at.ip(10), side.params.accept_port), swallowing(at.ip(11), side.params.accept_port):
        for host in (10, 11):
            side.put(at.nid(host), b"nobody is there")
        await until(lambda: side.lnd._shared.budget.wanted)
        side.lnd.close()
        assert not side.lnd._shared.budget.wanted
    await until(lambda: len(side.core.outcomes) == 2)


@pytest.mark.pure
async def test_answers_that_others_ask_for_leave_places_for_this_node_s_own_calls(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever invented sources on another net had all places taken by calls to answer these."""
    monkeypatch.setattr(budget, "MOST_CALLS", 4)
    monkeypatch.setattr(budget, "MOST_ANSWERS", 2)
    side = make(at.nid(1), tunables={"timeout": 300})
    places = side.lnd._shared.budget
    with ExitStack() as stack:
        for host in range(10, 20):
            stack.enter_context(swallowing(at.ip(host), side.params.accept_port))
            side.send(put_header(Nid.parse(at.nid(host)), side.ni.nid, 0, type=MsgType.ACK))
        await until(lambda: places.wanted)
        assert side.lnd.pending_handshakes == 2
        live = make(at.nid(2))
        side.put(at.nid(2), b"hello")
        await until(live.core.complete(1))
        assert places.wanted


@pytest.mark.pure
async def test_this_node_s_own_message_waits_behind_no_answers_to_its_target(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source that somebody invents may be that of a node that is there."""
    monkeypatch.setattr(budget, "MOST_CALLS", 4)
    monkeypatch.setattr(budget, "MOST_ANSWERS", 2)
    monkeypatch.setattr("ulnet.lnd.tcp.dialer.TURN", 1e9)
    side = make(at.nid(1), tunables={"timeout": 300})
    with ExitStack() as stack:
        for host in range(10, 30):
            stack.enter_context(swallowing(at.ip(host), side.params.accept_port))
            side.send(put_header(Nid.parse(at.nid(host)), side.ni.nid, 0, type=MsgType.ACK))
        for _ in range(20):
            side.send(put_header(Nid.parse(at.nid(2)), side.ni.nid, 0, type=MsgType.ACK))
        places = side.lnd._shared.budget
        await until(lambda: len(places._to_answer) == 19)
        live = make(at.nid(2))
        side.put(at.nid(2), b"hello")
        await until(live.core.complete(21))
        assert len(places._to_answer) == 18
