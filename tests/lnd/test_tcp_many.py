"""Many connections that are ready at once: read in groups, whatever one of them leads to."""

from __future__ import annotations

import asyncio
import errno
import select
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import Arrival, RawPeer, Side, connect, lnet_frame, loop_state, put_header, until
from ulnet.core.status import LNetError
from ulnet.nid import Nid

Make = Callable[..., Side]


async def connected(side: Side, at: Addresses, count: int) -> list[RawPeer]:
    """So many peers with a connection each."""
    return [await connect(side, at.nid(2 + number)) for number in range(count)]


def speak(side: Side, at: Addresses, raws: list[RawPeer], payload: bytes = b"") -> None:
    """Each sends a message, before the loop goes on."""
    for number, raw in enumerate(raws):
        hdr = put_header(side.ni.nid, Nid.parse(at.nid(2 + number)), len(payload), tag=number)
        raw.sock.send(lnet_frame(hdr, payload))


def tags(side: Side) -> list[int]:
    return sorted(arrival.hdr.match_bits for arrival in side.core.arrivals)


async def test_all_are_heard_again_and_again(make: Make, at: Addresses) -> None:
    side = make(at.nid(1))
    raws = await connected(side, at, 8)
    for turn in range(3):
        speak(side, at, raws, b"x" * 1000 * turn)
        await until(side.core.complete(8 * (turn + 1)))
    assert tags(side) == sorted([*range(8)] * 3)
    for raw in raws:
        raw.close()
    await until(lambda: side.lnd.open_connections == 0)


async def test_others_in_the_loop_have_their_turn(make: Make, at: Addresses) -> None:
    side = make(at.nid(1))
    raws = await connected(side, at, 200)
    seen: list[int] = []

    def first(arrival: Arrival) -> None:
        side.core.on_parse = None
        asyncio.get_running_loop().call_soon(lambda: seen.append(len(side.core.arrivals)))

    side.core.on_parse = first
    speak(side, at, raws)
    await until(lambda: len(side.core.arrivals) == 200)
    assert 1 < seen[0] <= 64
    assert tags(side) == [*range(200)]


async def test_one_whose_message_ends_all_others(make: Make, at: Addresses) -> None:
    side = make(at.nid(1))
    raws = await connected(side, at, 5)
    side.core.on_parse = lambda arrival: side.lnd.shutdown(side.ni)
    speak(side, at, raws)
    await until(lambda: side.lnd.open_connections == 0)
    assert len(side.core.arrivals) == 1


async def test_one_that_breaks_the_protocol_among_many(make: Make, at: Addresses) -> None:
    side = make(at.nid(1))
    raws = await connected(side, at, 6)
    raws[2].sock.send(bytes(200))
    del raws[2]
    speak(side, at, raws)
    await until(lambda: len(side.core.arrivals) == 5 and side.lnd.open_connections == 5)


async def test_one_that_waits_for_memory_among_many(make: Make, at: Addresses) -> None:
    side = make(at.nid(1))
    raws = await connected(side, at, 4)
    side.core.hold = True
    speak(side, at, raws[:2], b"later")
    await until(lambda: len(side.core.held) == 2)
    side.core.hold = False
    speak(side, at, raws, b"at once")  # behind the held ones, and on connections of their own
    await until(lambda: tags(side) == [0, 1, 2, 3])
    for held in list(side.core.held):
        side.core.held.remove(held)
        side.core.take(held)
    await until(side.core.complete(6))
    assert tags(side) == [0, 0, 1, 1, 2, 3]


async def test_answers_leave_without_another_turn_of_the_loop(make: Make, at: Addresses) -> None:
    side = make(at.nid(1))
    raws = await connected(side, at, 3)
    for number in range(3):
        peer = side.state().peers[Nid.parse(at.nid(2 + number)), 12345]
        assert peer.usable()
    asked: list[bool] = []

    def answer(arrival: Arrival) -> None:
        asyncio.get_running_loop().call_soon(lambda: asked.append(side.lnd.queued_messages == 0))
        side.put(arrival.hdr.src_nid, b"answer")

    side.core.on_parse = answer
    speak(side, at, raws)
    await until(lambda: len(asked) == 3)
    assert all(asked)


async def test_without_files_for_an_epoll_an_ni_is_refused(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> select.epoll:
        raise OSError(errno.EMFILE, "Too many open files")

    side = make()
    with monkeypatch.context() as patched:
        patched.setattr(select, "epoll", refuse)
        with pytest.raises(LNetError, match="cannot watch connections"):
            side.add(at.nid(1))
    side.add(at.nid(1))
    raws = await connected(side, at, 2)
    speak(side, at, raws)
    await until(lambda: len(side.core.arrivals) == 2)


async def test_an_ni_that_cannot_listen_leaves_no_epoll(make: Make, at: Addresses) -> None:
    side = make()
    before = loop_state()
    with pytest.raises(LNetError, match="not an address of this host"):
        side.add("192.0.2.1@tcp")
    assert loop_state() == before
