"""How the driver sees that a path makes no progress, and what it does when a device fails."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable
from contextvars import Context
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnd.conftest import Addresses
from lnd.kit import RawListener, RawPeer, Side, connect, linked, turns, until
from ulnet.core.lnd import NiEvent
from ulnet.core.ni import NI, Place
from ulnet.core.status import HealthStatus
from ulnet.lnd.base import DeviceNews
from ulnet.lnd.tcp.progress import QUIET, SILENT, ProgressTimer, judge
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]
CONTROL, IN = ConnType.CONTROL, ConnType.BULK_IN


# The judgement ----------------------------------------------------------------------------------------


def info(in_flight: int = 10, last_ack: float = 1.0, round_trip: float = 0.0, spread: float = 0.0) -> bytes:
    """struct tcp_info with times in seconds."""
    raw = bytearray(104)
    struct.pack_into("=I", raw, 24, in_flight)
    struct.pack_into("=I", raw, 56, int(last_ack * 1000))
    struct.pack_into("=II", raw, 68, int(round_trip * 1e6), int(spread * 1e6))
    return bytes(raw)


@pytest.mark.requirement("hlt-005")
@pytest.mark.parametrize(
    ("raw", "quiet", "stalled"),
    [
        (info(), 0.07, True),
        (info(), 0.05, False),  # not long enough
        (info(in_flight=0), 9.0, False),  # a full window: the program there reads slowly
        (info(in_flight=2), 0.2, False),  # the acknowledgement may be a delayed one
        (info(in_flight=2), 0.26, True),
        (info(last_ack=0.01), 0.5, False),  # acknowledgements come, only not of the next byte: a loss
        (info(round_trip=0.2, spread=0.05), 0.3, False),  # a long way
        (info(round_trip=0.2, spread=0.05), 0.41, True),
        (b"", 9.0, False),
    ],
)
def test_what_the_kernel_knows_of_a_connection(raw: bytes, quiet: float, stalled: bool) -> None:
    assert judge(raw, quiet) is stalled


@given(raw=st.binary(max_size=256), quiet=st.floats(0, 1e6))
def test_any_answer_of_the_kernel_is_judged(raw: bytes, quiet: float) -> None:
    assert judge(raw, quiet) in (True, False)


# The timer --------------------------------------------------------------------------------------------


class Beating:
    """Something that is watched for so many turns."""

    def __init__(self, turns: int) -> None:
        self.watched = False
        self.excused = 0.0
        self.left = turns
        self.then: Callable[[], None] = lambda: None

    def excuse(self, seconds: float) -> None:
        self.excused += seconds

    def check_progress(self, now: float) -> bool:
        self.left -= 1
        if not self.left:
            self.then()
        return self.left > 0


def slept_nothing(seconds: float) -> None:
    """Nobody asks."""


def is_running(timer: ProgressTimer) -> bool:
    """Whether a timer of it runs."""
    return timer._timer is not None


class Clock:
    now = 0.0


async def test_the_timer_stops_when_nothing_is_watched() -> None:
    timer = ProgressTimer(asyncio.get_running_loop(), Clock(), slept_nothing)
    one, two = Beating(2), Beating(3)
    timer.watch(one)
    timer.watch(two)
    await until(lambda: not two.watched)
    assert (one.left, two.left, one.watched) == (0, 0, False)
    assert not is_running(timer)
    timer.watch(two)
    assert is_running(timer)
    timer.forget(two)
    assert not is_running(timer)


@pytest.mark.parametrize(("count", "often"), [(1, True), (16, True), (17, False), (400, False)])
async def test_few_are_looked_at_more_often_than_many(count: int, often: bool) -> None:
    timer = ProgressTimer(asyncio.get_running_loop(), Clock(), slept_nothing)
    all_of_them = [Beating(100) for _ in range(count)]
    for one in all_of_them:
        timer.watch(one)
    timer._timer.cancel()  # type: ignore[union-attr]
    timer._check()
    after = timer._timer.when() - asyncio.get_running_loop().time()  # type: ignore[union-attr]
    assert after <= (0.02 if often else 0.05) + 1e-6  # uvloop's clock stands still: all is rounding
    assert often or after > 0.021
    for one in all_of_them:
        timer.forget(one)


async def test_a_beat_may_forget_and_watch_others() -> None:
    timer = ProgressTimer(asyncio.get_running_loop(), Clock(), slept_nothing)
    first, second, third = Beating(1), Beating(5), Beating(2)

    def change() -> None:
        timer.forget(second)
        timer.forget(first)
        timer.watch(third)

    first.then = change
    timer.watch(first)
    timer.watch(second)
    await until(lambda: third.left == 0)
    assert second.left == 5
    assert timer._timer is None


class Ticking(asyncio.BaseEventLoop):
    """As much of a loop as a progress timer needs, with a clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.due = 0.0
        self.call: Callable[..., object] = lambda: None

    def time(self) -> float:
        return self.now

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.due, self.call = when, callback
        return asyncio.TimerHandle(when, callback, args, self, context)


@pytest.mark.requirement("hlt-005")
def test_time_in_which_this_process_did_not_run_is_told_of() -> None:
    loop, one = Ticking(), Beating(100)
    slept: list[float] = []
    timer = ProgressTimer(loop, Clock(), slept.append)
    timer.watch(one)
    for late in (0.0, 0.03, 0.0):
        loop.now = loop.due + late
        loop.call()
    assert one.excused == 0, "as late as a loop with much to do may be"
    assert not slept
    loop.now = loop.due + 3.0
    loop.call()
    assert one.excused == pytest.approx(3.0)
    loop.now = loop.due
    loop.call()
    assert one.excused == pytest.approx(3.0), "only once"
    assert slept == [pytest.approx(3.0)]
    loop.close()


@pytest.mark.pure
async def test_more_than_a_beat_can_look_at_have_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ulnet.lnd.tcp.progress._MOST", 2)
    timer = ProgressTimer(asyncio.get_running_loop(), Clock(), slept_nothing)
    all_of_them = [Beating(100) for _ in range(6)]
    for one in all_of_them:
        timer.watch(one)
    for _ in range(3):
        timer._check()
    assert [one.left for one in all_of_them] == [99] * 6
    for one in all_of_them:
        timer.forget(one)


# Connections ------------------------------------------------------------------------------------------


async def test_a_program_that_reads_nothing_is_no_stalled_path(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 1})
    raw = await connect(a, at.nid(2), CONTROL)
    raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    msg = a.put(at.nid(2), bytes(20 << 20))
    outcome = await a.ended(msg)
    assert (outcome.status, outcome.errno) == (HealthStatus.NETWORK_TIMEOUT, errno.ETIMEDOUT)
    assert not outcome.unsent
    assert not a.core.ever_stalled
    raw.close()


@pytest.mark.pure
async def test_a_process_that_slept_blames_no_path(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), CONTROL)
    (conn,) = a.peer(at.nid(2)).conns
    await until(lambda: not conn.watched)
    monkeypatch.setattr("ulnet.lnd.tcp.conn.unacknowledged", lambda sock: 1)
    monkeypatch.setattr("ulnet.lnd.tcp.conn.is_stalled", lambda sock, quiet: True)
    a.put(at.nid(2), b"x")
    late = asyncio.get_running_loop().time() + 5 * QUIET
    assert conn.check_progress(late), "seen for the first time: it may have left just now"
    assert not a.core.stalled
    conn.excuse(10)
    assert conn.check_progress(late + 10 + QUIET / 2), "it slept while that was under way"
    assert not a.core.stalled
    assert conn.check_progress(late + 10 + 2 * QUIET)
    assert a.core.stalled
    raw.close()


async def test_a_call_is_not_blamed_for_time_in_which_this_process_slept(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    listener = RawListener(at.ip(2), a.params.accept_port)
    a.put(at.nid(2), b"x")
    raw = await listener.accept()
    dialer = a.dialer(at.nid(2))
    now = asyncio.get_running_loop().time()
    dialer.excuse(10)
    assert dialer.check_progress(now + 10)
    assert not a.core.stalled
    assert dialer.check_progress(now + 10 + 2 * SILENT)
    assert a.core.stalled
    raw.close()
    listener.close()


async def test_a_call_that_nobody_answers_is_a_stalled_path(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 1})
    listener = RawListener(at.ip(2), a.params.accept_port)
    msg = a.put(at.nid(2), b"x")
    raw = await listener.accept()  # and never a HELLO
    await until(lambda: a.core.stalled)
    assert a.core.taken_back == [msg], "it may set out on another path"
    outcome = await a.ended(msg)
    assert outcome.status is HealthStatus.NETWORK_TIMEOUT
    assert outcome.unsent
    assert not a.core.stalled, "the call is over"
    raw.close()
    listener.close()


@pytest.mark.pure
async def test_a_path_that_was_silent_to_the_end_is_called_before_it_is_trusted(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ulnet.lnd.tcp.conn.is_stalled", lambda sock, quiet: True)
    a = make(at.nid(1), tunables={"timeout": 1})
    listener = RawListener(at.ip(2), a.params.accept_port)
    raw = await stuffed(a, at.nid(2))
    outcome = await a.ended(a.put(at.nid(2), bytes(20 << 20)))
    assert outcome.status is HealthStatus.NETWORK_TIMEOUT
    called = await listener.accept()  # though there is no message
    assert a.core.stalled and a.dialer(at.nid(2)).connecting
    await until(lambda: not a.core.stalled)
    assert not a.dialer(at.nid(2)).connecting
    called.close()
    raw.close()
    listener.close()


async def stuffed(side: Side, nid: str) -> RawPeer:
    """A raw peer that reads nothing over a connection that takes little."""
    raw = await connect(side, nid, CONTROL)
    raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    (conn,) = side.peer(nid).conns
    assert conn.sock is not None
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    return raw


@pytest.mark.parametrize("sizes", [[1 << 20] * 3, [100] * 400 + [1 << 20] * 2, [1 << 20, 10, 10, 1 << 20]])
async def test_what_has_not_begun_is_taken_back_and_what_has_goes_on(
    make: Make, at: Addresses, sizes: list[int]
) -> None:
    a = make(at.nid(1))
    raw = await stuffed(a, at.nid(2))
    msgs = [a.put(at.nid(2), bytes([tag % 251]) * size, tag=tag) for tag, size in enumerate(sizes)]
    await turns()
    (conn,) = a.peer(at.nid(2)).conns
    left = [msg for msg in msgs if msg in a.core.open]
    assert left
    taken = conn.tx.take_queue()
    begun = [msg for msg in left if msg not in taken]
    assert len(begun) <= 1
    assert conn.tx.waiting_bytes == conn.tx.iov_bytes == sum(map(len, conn.tx.iov))
    a.core.open -= set(taken)
    done = len(msgs) - len(taken)
    seen = [await raw.frame() for _ in range(done)]
    assert [frame[4].match_bits for frame in seen if frame[4] is not None] == list(range(done))
    assert [frame[5] for frame in seen] == [bytes([tag % 251]) * sizes[tag] for tag in range(done)]
    again = a.put(at.nid(2), b"after", tag=77)
    hdr = (await raw.frame())[4]
    assert hdr is not None and hdr.match_bits == 77
    assert (await a.ended(again)).status is HealthStatus.OK
    raw.close()


# Devices ----------------------------------------------------------------------------------------------


class Watch:
    """Devices that fail when a test says so."""

    def __init__(self) -> None:
        self.tell: dict[NI, Callable[[DeviceNews], None]] = {}

    def add(self, ni: NI, tell: Callable[[DeviceNews], None], place: Place | None = None) -> None:
        self.tell[ni] = tell

    def remove(self, ni: NI) -> None:
        del self.tell[ni]


def watched(side: Side) -> Watch:
    """Put the devices of a side under a test's control."""
    watch = side.lnd._watch = Watch()
    state = side.state()
    watch.add(side.ni, partial(state.device_changed, state.devices[0]))
    return watch


@pytest.mark.requirement("hlt-010", "snd-080", "snd-085")
async def test_connections_outlive_a_device_that_comes_back(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    watch = watched(a)
    await a.ended(a.put(at.nid(2), b"x"))
    await linked(a, b)
    b.core.hold = True
    big = a.put(at.nid(2), bytes(1 << 20), tag=1)
    await until(lambda: b.core.held)
    waiting = [a.put(at.nid(2), bytes(1 << 20), tag=tag) for tag in range(2, 20)]
    await turns()
    stuck = [msg for msg in waiting if msg in a.core.open]
    assert stuck
    watch.tell[a.ni](DeviceNews("eth9", "it has no carrier"))
    assert a.core.events == [(a.ni, NiEvent.FATAL)]
    assert any("eth9" in line and "no carrier" in line for line in a.reports)
    assert set(a.core.taken_back) <= set(stuck)
    assert len(stuck) - len(a.core.taken_back) <= 1, "all but the one that has begun"
    assert len(a.kinds(at.nid(2))) == 3, "connections stay"
    watch.tell[a.ni](DeviceNews("eth9"))
    assert a.core.events[-1] == (a.ni, NiEvent.RECOVERED)
    b.core.hold = False
    while b.core.held:
        b.core.take(b.core.held.pop())
    for msg in (big, *waiting):
        assert (await a.ended(msg)).status is HealthStatus.OK
    await until(b.core.complete(20))


@pytest.mark.requirement("hlt-010", "snd-080")
async def test_a_device_that_is_gone_takes_its_connections_along(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    watch = watched(a)
    await a.ended(a.put(at.nid(2), b"x"))
    await linked(a, b)
    watch.tell[a.ni](DeviceNews("eth9", "it is gone", gone=True))
    assert a.core.events == [(a.ni, NiEvent.FATAL)]
    assert a.lnd.open_connections == 0
    await until(lambda: b.lnd.open_connections == 0)
    refused = await b.ended(b.put(at.nid(1), b"y"))
    assert (refused.status, refused.errno) == (HealthStatus.REMOTE_DROPPED, errno.ECONNREFUSED)
    assert refused.unsent
    watch.tell[a.ni](DeviceNews("eth9", "it has lost the address"))
    assert a.core.events[-1] == (a.ni, NiEvent.FATAL)
    watch.tell[a.ni](DeviceNews("eth9"))
    assert a.core.events[-1] == (a.ni, NiEvent.RECOVERED)
    assert (await a.ended(a.put(at.nid(2), b"z"))).status is HealthStatus.OK
    raw = await connect(a, at.nid(7), CONTROL)
    raw.close()


async def test_a_device_that_comes_back_while_its_port_is_taken(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    watch = watched(a)
    watch.tell[a.ni](DeviceNews("eth9", "it is gone", gone=True))
    thief = RawListener(at.ip(1), a.params.accept_port)
    watch.tell[a.ni](DeviceNews("eth9"))
    assert [event for _, event in a.core.events] == [NiEvent.FATAL], "it would not hear its peers"
    assert any("stays down" in line and "in use" in line for line in a.reports)
    thief.close()
    watch.tell[a.ni](DeviceNews("eth9"))
    assert [event for _, event in a.core.events] == [NiEvent.FATAL, NiEvent.RECOVERED]


@pytest.mark.requirement("hlt-015", "hlt-020")
async def test_a_device_that_became_slow_is_told_of(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    tell = watched(a).tell[a.ni]
    tell(DeviceNews("eth9", slow="it runs at 100 Mb/s, in place of 10000"))
    tell(DeviceNews("eth9", slow="it runs at 100 Mb/s, in place of 10000"))
    tell(DeviceNews("eth9", "it has no carrier"))
    tell(DeviceNews("eth9", slow="it runs at 100 Mb/s, in place of 10000"))
    tell(DeviceNews("eth9"))
    assert [event for _, event in a.core.events] == [
        NiEvent.DEGRADED,
        NiEvent.FATAL,
        NiEvent.RECOVERED,
        NiEvent.DEGRADED,
        NiEvent.RESTORED,
    ]
    assert any("100 Mb/s" in line for line in a.reports)


async def test_a_handler_may_shut_the_ni_down_when_its_device_fails(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    watch = watched(a)
    raw = await connect(a, at.nid(2), CONTROL)
    tell, ni = watch.tell[a.ni], a.ni
    a.core.on_event = lambda: a.lnd.shutdown(ni)
    tell(DeviceNews("eth9", "it is gone", gone=True))
    assert a.lnd.open_connections == 0
    assert not watch.tell
    raw.close()


async def test_a_shorter_time_out_counts_for_what_is_under_way(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 500})
    raw = await stuffed(a, at.nid(2))
    msg = a.put(at.nid(2), bytes(1 << 20))
    await turns()
    a.lnd.retune(a.ni, 1)
    outcome = await a.ended(msg)
    assert outcome.status is HealthStatus.NETWORK_TIMEOUT
    assert "for 1 s" in outcome.reason
    raw.close()


async def test_a_shorter_time_out_counts_for_a_call_that_nobody_answers(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 500})
    listener = RawListener(at.ip(2), a.params.accept_port)
    msg = a.put(at.nid(2), b"x")
    raw = await listener.accept()  # and never a HELLO
    a.lnd.retune(a.ni, 1)
    outcome = await a.ended(msg)
    assert (outcome.status, outcome.errno) == (HealthStatus.NETWORK_TIMEOUT, errno.ETIMEDOUT)
    assert "after 1 s" in outcome.reason
    await until(lambda: not a.lnd.pending_handshakes)
    raw.close()
    listener.close()
