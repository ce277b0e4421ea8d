"""Attempts to connect have a budget: peers that do not answer hold up nobody who does."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lnd.conftest import Addresses
from lnd.kit import Side, put_header, until
from lnd.test_tcp_connect import listening, swallowing
from ulnet.cli.pki import make_authority, make_node
from ulnet.core.md import Md
from ulnet.lnd.tcp import budget
from ulnet.lnd.tcp.secure import Security
from ulnet.lnd.tcp.secure_socket import SecureSocket
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
@pytest.mark.parametrize("scarce", [True, False], ids=["others wait", "nobody waits"])
async def test_a_silent_host_is_called_no_more_once_all_that_waits_was_given_up(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch, scarce: bool
) -> None:
    """Questions that had lasted two seconds kept their places, or waited for some, for fifty."""
    monkeypatch.setattr(budget, "MOST_CALLS", 1 if scarce else 8)
    if not scarce:
        monkeypatch.setattr("ulnet.lnd.tcp.dialer._ANEW", 0.1)
    side = make(at.nid(1), tunables={"timeout": 300})
    mds = [Md([], None) for _ in range(3)]
    with ExitStack() as stack:
        for host, md in enumerate(mds, 10):
            stack.enter_context(swallowing(at.ip(host), side.params.accept_port))
            side.put(at.nid(host), b"is anybody there?", md=md)
        side.put(at.nid(10), b"that one waits on", md=Md([], None))
        await until(lambda: side.dialer(at.nid(10)).connecting)
        for md in mds:
            md.aborted = errno.ETIMEDOUT
        await until(lambda: len(side.core.outcomes) == 2)
        assert {(one.errno, one.unsent) for one in side.core.outcomes} == {(errno.ETIMEDOUT, True)}
        assert [peer.nid for peer in side.state().peers.values() if peer.queue] == [Nid.parse(at.nid(10))]
        await until(lambda: side.lnd.pending_handshakes == 1 and not side.lnd._shared.budget.wanted)


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


@pytest.fixture
def secured(make: Make, at: Addresses, tmp_path: Path) -> Callable[[int], Side]:
    """Makes nodes whose peers are secured."""
    make_authority(tmp_path / "ca", "a site")

    def one(host: int) -> Side:
        make_node(tmp_path / "ca", tmp_path / str(host), [at.nid(host)])
        tunables = {"security": int(Security.REQUIRE), "timeout": 300}
        return make(at.nid(host), tunables=tunables, credentials=str(tmp_path / str(host)))

    return one


@pytest.mark.pure
async def test_tls_for_which_a_node_needs_long_itself_keeps_its_place(
    secured: Callable[[int], Side], at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine all that such attempts had done was lost, again and again."""
    monkeypatch.setattr(budget, "MOST_CALLS", 1)
    side, one, other = (secured(host) for host in (1, 2, 3))
    work, go, held = SecureSocket.work, threading.Event(), []

    def long(sock: SecureSocket) -> None:
        held.append(sock)
        go.wait()
        work(sock)

    monkeypatch.setattr(SecureSocket, "work", long)
    try:
        side.put(one.ni.nid, b"hello")
        await until(lambda: held)
        side.put(other.ni.nid, b"hello")
        await until(lambda: side.lnd._shared.budget.wanted)
        dialer = side.dialer(at.nid(2))
        attempt = dialer._attempt
        assert dialer.check_progress(dialer._called + budget.TURN)
        assert attempt is not None and dialer._attempt is attempt
    finally:
        go.set()
    await until(lambda: one.core.complete(1)() and other.core.complete(1)())


@pytest.mark.pure
async def test_who_takes_a_connection_and_begins_no_tls_makes_room(
    secured: Callable[[int], Side], at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the time of those with whom TLS goes on."""
    monkeypatch.setattr(budget, "MOST_CALLS", 1)
    monkeypatch.setattr("ulnet.lnd.tcp.dialer.TLS_TURN", 1e9)
    side, live = secured(1), secured(2)
    with listening(side, at.ip(10)), listening(side, at.ip(11)):
        for host in (10, 11):
            side.put(at.nid(host), b"nobody is there")
        side.put(live.ni.nid, b"hello")
        await until(live.core.complete(1))


@pytest.mark.pure
async def test_who_has_begun_with_tls_keeps_its_place_for_longer(
    secured: Callable[[int], Side], at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MOST_CALLS", 1)
    monkeypatch.setattr("ulnet.lnd.tcp.dialer.TURN", 1e9)
    side, live = secured(1), secured(2)
    with listening(side, at.ip(10)) as listener:
        side.put(at.nid(10), b"it is busy")
        raw = await listener.accept()
        side.put(live.ni.nid, b"hello")
        await until(lambda: side.lnd._shared.budget.wanted)
        dialer = side.dialer(at.nid(10))
        attempt = dialer._attempt
        assert attempt is not None
        await until(lambda: not attempt.tls_goes_on)
        raw.sock.send(b"\x16")  # a record of TLS begins
        await until(lambda: attempt.tls_goes_on)
        monkeypatch.setattr("ulnet.lnd.tcp.dialer.TURN", 0.0)
        monkeypatch.setattr("ulnet.lnd.tcp.dialer.TLS_TURN", 1e9)
        assert dialer.check_progress(dialer._called + 100)
        assert dialer._attempt is attempt
        monkeypatch.setattr("ulnet.lnd.tcp.dialer.TURN", 1.0)
        monkeypatch.setattr("ulnet.lnd.tcp.dialer.TLS_TURN", 1.0)
        await until(live.core.complete(1))


@pytest.mark.pure
async def test_the_second_of_a_silent_peer_begins_with_our_request_for_tls(
    secured: Callable[[int], Side], at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine our own step before it may take longer."""
    monkeypatch.setattr(budget, "MOST_CALLS", 1)
    monkeypatch.setattr("ulnet.lnd.tcp.dialer.TURN", 1e9)
    side = secured(1)
    work, go, held = SecureSocket.work, threading.Event(), []

    def long(sock: SecureSocket) -> None:
        held.append(sock)
        go.wait()
        work(sock)

    monkeypatch.setattr(SecureSocket, "work", long)
    with listening(side, at.ip(10)):
        try:
            side.put(at.nid(10), b"nobody is there")
            await until(lambda: held)
            dialer = side.dialer(at.nid(10))
            attempt, called = dialer._attempt, dialer._called
            assert attempt is not None and attempt.tls_goes_on
        finally:
            go.set()
        await until(lambda: not attempt.tls_goes_on)
        assert dialer._called > called


class Caller:
    """A dialer that tells when its turn has come."""

    def __init__(self, turns: list[Any]) -> None:
        self.turns = turns

    def turn(self) -> None:
        self.turns.append(self)


@pytest.mark.pure
@pytest.mark.parametrize("answers", [False, True])
def test_each_whose_messages_have_a_router_connect_has_its_turn(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First come, first served: who sent to many silent nodes held up all others."""
    monkeypatch.setattr(budget, "MOST_CALLS", 1)
    foe, friend, other = (Nid.parse(f"10.0.0.{number}@tcp") for number in (1, 2, 3))
    turns: list[Any] = []
    names: dict[Any, str] = {}
    places = budget.Budget()

    def enter(maker: Nid | None, name: str) -> bool:
        caller: Any = Caller(turns)
        names[caller] = name
        return places.enter(caller, False, answers, maker)

    assert enter(foe, "foe 1")
    for maker, name in ((foe, "foe 2"), (foe, "foe 3"), (foe, "foe 4"), (friend, "friend 1")):
        assert not enter(maker, name)
    assert not enter(friend, "friend 2")
    assert not enter(None, "own")
    assert not enter(other, "other, which leaves")
    places.leave(list(names)[-1])
    assert not enter(other, "other")
    places.leave(next(iter(names)))
    while places.wanted:
        places.leave(turns[-1])
    assert [names[one] for one in turns] == [
        "foe 2", "friend 1", "own", "other", "foe 3", "friend 2", "foe 4"
    ]  # fmt: skip


@pytest.mark.pure
def test_who_has_more_than_answers_to_send_waits_behind_the_others_of_its_maker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budget, "MOST_CALLS", 1)
    foe, friend = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
    turns: list[Any] = []
    places = budget.Budget()
    callers: list[Any] = [Caller(turns) for _ in range(5)]
    first, second, third, fourth, fifth = callers
    for caller, maker in zip(callers, (foe, foe, foe, foe, friend), strict=True):
        places.enter(caller, False, caller is second, maker)
    places.hurry(second)
    one = first
    while places.wanted:
        places.leave(one)
        one = turns[-1]
    assert turns == [third, fifth, fourth, second]
