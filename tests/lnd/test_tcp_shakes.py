"""TLS handshakes whose steps take long: threads take them, addresses take turns, and the loop goes on."""

from __future__ import annotations

import _thread
import asyncio
import os
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lnd.conftest import Addresses
from lnd.kit import Side, dial, until
from ulnet.cli.pki import make_authority, make_node
from ulnet.lnd.tcp import shakes as module
from ulnet.lnd.tcp.secure import Security
from ulnet.lnd.tcp.secure_socket import SecureSocket
from ulnet.lnd.tcp.shakes import Shakes


class Step:
    """A handshake with one long step, which takes until it is told to go on."""

    def __init__(self, begun: list[str], done: list[str], name: str) -> None:
        self.begun = begun
        self.done = done
        self.name = name
        self.closed = self.taken = False
        self.go = threading.Event()

    def work(self) -> None:
        self.begun.append(self.name)
        self.go.wait()
        self.taken = True

    def go_on(self) -> Step | None:
        if self.closed:
            return None
        if self.taken:
            self.done.append(self.name)
            return None
        return self


class Looks(Step):
    """It sees in which threads it is taken, and what priority they had."""

    def __init__(self, begun: list[str], done: list[str], name: str) -> None:
        super().__init__(begun, done, name)
        self.threads: list[int] = []
        self.priorities: list[int] = []

    def work(self) -> None:
        own = threading.get_native_id()
        self.priorities.append(priority(own))
        self.threads.append(own)
        super().work()


def priority(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)


class Steps:
    """Those of one test, by name: that begins with the address."""

    def __init__(self) -> None:
        self.shakes = Shakes(asyncio.get_running_loop())
        self.begun: list[str] = []
        self.done: list[str] = []
        self.all: dict[str, Step] = {}

    def later(self, *names: str) -> None:
        for name in names:
            step = self.all[name] = Step(self.begun, self.done, name)
            self.shakes.later(name[0], step.go_on)

    async def begin(self, *names: str) -> None:
        await until(lambda: set(self.begun) >= set(names))

    async def go(self, *names: str) -> None:
        for name in names:
            self.all[name].go.set()
        await until(lambda: set(self.done) >= set(names))

    async def over(self) -> None:
        await until(lambda: not self.shakes._queues and not self.shakes._running)


async def test_an_address_has_one_thread_and_its_steps_their_order() -> None:
    steps = Steps()
    names = [f"a{at}" for at in range(9)]
    steps.later(*names, "b0")
    await steps.begin("a0", "b0")
    for name in names:
        assert [one for one in steps.begun if one[0] == "a"] == names[: names.index(name) + 1]
        steps.all[name].go.set()
        await until(lambda: len(steps.begun) > names.index(name) + 2 or name == names[-1])  # noqa: B023
    await steps.go("b0")
    await steps.over()
    assert [one for one in steps.done if one[0] == "a"] == names


async def test_there_are_so_many_threads_and_addresses_take_turns() -> None:
    steps = Steps()
    first = list("abcdefgh")
    steps.later(*first, "a2", "z")
    await steps.begin(*first)
    assert len(steps.begun) == len(first)
    await steps.go("b")
    await steps.begin("z")
    assert "a2" not in steps.begun  # `a` has a thread already
    await steps.go("z", "a2", *first)
    await steps.over()


async def test_a_thread_whose_step_takes_long_leaves_cpus_to_the_loop() -> None:
    """One that did so at once got no CPU beside other programs, and the loop no GIL."""
    steps = Steps()
    before = priority(0)
    step = steps.all["a"] = Looks(steps.begun, steps.done, "a")
    steps.shakes.later("a", step.go_on)
    await until(lambda: step.threads)
    assert step.priorities == [before]
    await until(lambda: priority(step.threads[0]) >= 10)
    assert priority(0) == before
    await steps.go("a")
    await steps.over()


@pytest.mark.pure
async def test_so_does_a_thread_that_begins_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not run it for a while."""
    steps = Steps()
    start, late = _thread.start_new_thread, []
    step = steps.all["a"] = Looks(steps.begun, steps.done, "a")
    with monkeypatch.context() as busy:
        busy.setattr(_thread, "start_new_thread", lambda *those: late.append(those))
        steps.shakes.later("a", step.go_on)
        await until(lambda: late)
    timer = steps.shakes._running["a"]
    await until(lambda: timer not in getattr(asyncio.get_running_loop(), "_scheduled"))  # noqa: B009
    start(*late[0])
    await until(lambda: step.threads and priority(step.threads[0]) >= 10)
    await steps.go("a")
    await steps.over()


async def test_few_go_on_in_one_turn_of_the_loop() -> None:
    """4,080 requests at once kept everybody else waiting for three seconds."""
    loop, steps = asyncio.get_running_loop(), Steps()
    turn, counts, ended = 0, Counter[int](), 0

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if ended < 1000:
            loop.call_soon(next_turn)

    def go_on() -> None:
        nonlocal ended
        ended += 1
        counts[turn] += 1

    next_turn()
    for number in range(1000):
        steps.shakes.later(str(number % 300), go_on)
    await until(lambda: ended == 1000)
    assert max(counts.values()) < 20
    await steps.over()


async def test_those_that_were_dropped_keep_nobody_waiting() -> None:
    steps = Steps()
    steps.later("a1")
    await steps.begin("a1")
    steps.later("a2", "a3")
    steps.all["a1"].closed = steps.all["a2"].closed = True
    steps.all["a1"].go.set()
    await steps.begin("a3")
    await steps.go("a3")
    assert steps.done == ["a3"]
    await steps.over()


async def test_those_that_are_over_leave_nothing() -> None:
    """An address that has a thread for minutes may begin others meanwhile, and end them."""
    steps = Steps()
    steps.later("a1")
    await steps.begin("a1")
    names = [f"a{at}" for at in range(2, 1000)]
    steps.later(*names)
    for name in names[:-1]:
        steps.shakes.forget("a", steps.all[name].go_on)
    steps.shakes.forget("b", steps.all["a1"].go_on)
    assert len(steps.shakes._queues["a"]) == 1
    await steps.go("a1")
    steps.shakes.forget("a", steps.all[names[-1]].go_on)
    steps.all[names[-1]].go.set()
    await steps.over()


async def test_one_that_fails_behind_its_step_keeps_those_of_its_batch() -> None:
    loop, steps, told = asyncio.get_running_loop(), Steps(), []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    class Fails(Step):
        def go_on(self) -> Step | None:
            if self.taken:
                raise ValueError
            return self

    step = steps.all["a0"] = Fails(steps.begun, steps.done, "a0")
    steps.shakes.later("a", step.go_on)
    steps.later("a1", "a2")
    for one in steps.all.values():
        one.go.set()
    await steps.go("a1", "a2")
    assert len(told) == 1
    await steps.over()


async def test_a_handshake_that_fails_keeps_nobody_waiting() -> None:
    loop, steps, told = asyncio.get_running_loop(), Steps(), []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    def fails() -> None:
        raise ValueError

    steps.shakes.later("a", fails)
    steps.later("a1", "b1")
    await steps.begin("a1", "b1")
    await steps.go("a1", "b1")
    await steps.over()
    assert len(told) == 1


@pytest.mark.pure
async def test_who_takes_long_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the CPU counts, so that nobody waits for a busy machine."""
    steps = Steps()
    waits: list[tuple[float, Callable[..., None], str]] = []
    monkeypatch.setattr(module, "thread_time", lambda: 30.0 if steps.begun[-1] == "a1" else 0.0)
    monkeypatch.setattr(steps.shakes, "_loop", Later(asyncio.get_running_loop(), waits))
    steps.later("a1")
    await steps.begin("a1")
    steps.later("a2")
    await steps.go("a1")
    steps.later("b1")
    await steps.begin("b1")
    await steps.go("b1")
    assert [(seconds, address) for seconds, _, address in waits] == [(60.0, "a")]
    assert "a2" not in steps.begun
    waits[0][1]("a")
    await steps.begin("a2")
    await steps.go("a2")
    await steps.over()


class Later:
    """A loop whose timers for addresses are kept."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, waits: list[tuple[float, Callable[..., None], str]]
    ) -> None:
        self.call_soon, self.call_soon_threadsafe = loop.call_soon, loop.call_soon_threadsafe
        self._loop, self._waits = loop, waits

    def call_later(
        self, seconds: float, what: Callable[..., None], address: str, *thread: list[int]
    ) -> asyncio.TimerHandle | None:
        if thread:
            return self._loop.call_later(seconds, what, address, *thread)
        self._waits.append((seconds, what, address))
        return None


@pytest.mark.pure
async def test_where_the_system_gives_no_thread_one_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps()
    waits: list[tuple[float, Callable[..., None], str]] = []
    monkeypatch.setattr(steps.shakes, "_loop", Later(asyncio.get_running_loop(), waits))

    def start(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as none_left:
        none_left.setattr(_thread, "start_new_thread", start)
        steps.later("a1")
        await until(lambda: waits)
    waits[0][1]("a")
    await steps.begin("a1")
    await steps.go("a1")
    await steps.over()


@pytest.mark.pure
async def test_a_step_that_takes_long_keeps_nobody_waiting(
    make: Callable[..., Side], at: Addresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL takes half a minute for certificates of 32 KiB that are made for that."""
    make_authority(tmp_path / "ca", "a site")
    sides = []
    for number in (1, 2, 3):
        make_node(tmp_path / "ca", tmp_path / str(number), [at.nid(number)])
        sides.append(
            make(
                at.nid(number),
                tunables={"security": int(Security.REQUIRE)},
                credentials=str(tmp_path / str(number)),
            )
        )
    a, b, foe = sides
    work, go, held = SecureSocket.work, threading.Event(), []

    def long(sock: SecureSocket) -> None:
        with suppress(OSError):  # it is closed
            if at.ip(3) in (sock.getpeername()[0], sock.getsockname()[0]):
                held.append(sock)
                go.wait()
        work(sock)

    monkeypatch.setattr(SecureSocket, "work", long)
    try:
        late = foe.put(a.ni.nid)
        await until(lambda: held)
        await b.ended(b.put(a.ni.nid))
        assert late in foe.core.open
    finally:
        go.set()
    await foe.ended(late)


def hello() -> bytes:
    """A request for TLS."""
    incoming, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, sent).do_handshake()
    return sent.read()


@pytest.mark.pure
async def test_who_has_no_port_below_1024_keeps_others_of_its_address_waiting_no_longer(
    make: Callable[..., Side], at: Addresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do those that it begins and ends stay."""
    make_authority(tmp_path / "ca", "a site")
    make_node(tmp_path / "ca", tmp_path / "node", [at.nid(1)])
    a = make(at.nid(1), tunables={"security": int(Security.REQUIRE)}, credentials=str(tmp_path / "node"))
    opening, work, go, held = hello(), SecureSocket.work, threading.Event(), []

    def long(sock: SecureSocket) -> None:
        with suppress(OSError):  # it is closed
            if sock.getpeername()[1] > 1023:
                held.append(sock)
                go.wait()
        work(sock)

    monkeypatch.setattr(SecureSocket, "work", long)
    half_open = a.lnd._shared.callers.half_open
    try:
        foe = await dial(a, at.ip(2))
        foe.sock.send(opening)
        await until(lambda: held)
        for _ in range(20):
            other = await dial(a, at.ip(2))
            other.sock.send(opening)
        await until(lambda: len(half_open) == 21)
        queues = a.lnd._acceptor.shakes._queues
        await until(lambda: sum(map(len, queues.values())) == 20)
        for inbound in list(half_open)[1:]:
            inbound.drop()
        assert not sum(map(len, queues.values()))
        friend = await dial(a, at.ip(2), port=low_port())
        friend.sock.send(opening)
        assert await asyncio.get_running_loop().sock_recv(friend.sock, 1) == b"\x16"
        assert len(held) == 1
    finally:
        go.set()


def low_port() -> int:
    """A port below 1024 that nobody has."""
    for port in range(1023, 600, -1):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError
