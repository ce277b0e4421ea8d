"""The event loop whose connections are read without a turn of it: all else it has to do is done as well."""

from __future__ import annotations

import asyncio
import contextvars
import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ulnet
from lnd.conftest import Addresses
from support.ports import free_port
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT
from ulnet.lnd.loop import Loop
from ulnet.lnd.selector import Selector
from ulnet.lnd.tcp import TcpParams

Pair = tuple[socket.socket, socket.socket]
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


def run(main: Any) -> Any:
    """A program on that loop."""
    with asyncio.Runner(loop_factory=ulnet.new_event_loop) as runner:
        return runner.run(main)


def loop_now() -> Loop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    return loop


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    for sock in (one, other):
        sock.setblocking(False)
    with one, other:
        yield one, other


# A reader is called at once, and the loop goes on -----------------------------------------------------


def test_one_thing_leads_to_the_next_without_a_turn_of_the_loop(pair: Pair) -> None:
    one, other = pair
    seen: list[bytes] = []
    waited: list[float | None] = []

    async def main() -> None:
        loop = loop_now()
        select = loop.selector.select
        done = asyncio.Event()

        def take() -> None:
            seen.append(one.recv(10))
            if len(seen) < 100:
                other.send(b"next")
            else:
                done.set()

        class Counted:
            """The loop's selector, each of whose turns is counted."""

            def __getattr__(self, name: str) -> Any:
                return getattr(loop.selector, name)

            def select(self, timeout: float | None) -> Any:
                waited.append(timeout)
                return select(timeout)

        setattr(loop, "_selector", Counted())  # noqa: B010 - not in the stubs
        loop.selector.watch(one.fileno(), take)
        other.send(b"first")
        await done.wait()
        loop.selector.forget(one.fileno())
        setattr(loop, "_selector", loop.selector)  # noqa: B010

    run(main())
    assert seen == [b"first", *[b"next"] * 99]
    assert len(waited) < 10


@pytest.mark.parametrize(
    "what",
    ["call_soon", "arguments", "future", "call_later", "threadsafe", "file", "writer", "signal"],
)
def test_a_reader_that_is_always_called_keeps_nothing_from_its_turn(pair: Pair, what: str) -> None:
    one, other = pair
    calls = 0

    async def main() -> None:
        loop = loop_now()
        done = asyncio.Event()
        files: Pair = socket.socketpair()

        def act() -> None:
            if what == "call_soon":
                loop.call_soon(done.set)
            elif what == "arguments":
                loop.call_soon(lambda *words: done.set() if words == (1, 2) else None, 1, 2)
            elif what == "future":  # which wakes who waits for it with one argument, itself
                future = loop.create_future()
                future.add_done_callback(lambda ended: done.set() if ended is future else None)
                future.set_result(None)
            elif what == "call_later":
                loop.call_later(0.01, done.set)
            elif what == "threadsafe":
                threading.Thread(target=loop.call_soon_threadsafe, args=(done.set,)).start()
            elif what == "file":
                files[1].send(b"x")
            elif what == "signal":
                os.kill(os.getpid(), signal.SIGUSR1)
            else:
                loop.add_writer(one, done.set)

        def never_reads() -> None:
            nonlocal calls
            calls += 1
            if calls == 5:
                act()

        loop.add_reader(files[0], done.set)
        loop.add_signal_handler(signal.SIGUSR1, done.set)
        loop.selector.watch(one.fileno(), never_reads)
        other.send(b"there")
        await done.wait()
        loop.selector.forget(one.fileno())
        loop.remove_writer(one)
        loop.remove_reader(files[0])
        for sock in files:
            sock.close()

    run(main())
    assert calls >= 5


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_callback_has_its_arguments_and_its_context(count: int) -> None:
    told: contextvars.ContextVar[str] = contextvars.ContextVar("told")
    context = contextvars.copy_context()
    context.run(told.set, "in its context")
    seen: list[tuple[tuple[int, ...], str]] = []

    async def main() -> None:
        loop_now().call_soon(
            lambda *words: seen.append((words, told.get("elsewhere"))), *range(count), context=context
        )
        loop_now().call_soon(lambda *words: seen.append((words, told.get("elsewhere"))), *range(count))
        await asyncio.sleep(0)

    run(main())
    assert seen == [(tuple(range(count)), "in its context"), (tuple(range(count)), "elsewhere")]


def test_a_timer_that_was_there_before_is_not_late(pair: Pair) -> None:
    one, other = pair

    async def main() -> None:
        loop = loop_now()
        loop.selector.watch(one.fileno(), lambda: None)
        other.send(b"there")
        await asyncio.sleep(0.02)  # without its deadline `select` would never return
        loop.selector.forget(one.fileno())

    run(main())


def test_the_loop_can_be_stopped_by_a_reader(pair: Pair) -> None:
    one, other = pair
    loop = Loop()
    loop.selector.watch(one.fileno(), loop.stop)
    other.send(b"there")
    loop.run_forever()
    loop.selector.forget(one.fileno())
    loop.close()


def test_what_a_reader_raises_is_told_and_the_others_go_on(pair: Pair) -> None:
    one, other = pair
    told: list[dict[str, Any]] = []

    async def main() -> None:
        loop = loop_now()
        loop.set_exception_handler(lambda _, context: told.append(context))
        done = asyncio.Event()

        def take() -> None:
            if one.recv(1) == b"a":
                raise ValueError("odd")
            done.set()

        loop.selector.watch(one.fileno(), take)
        other.send(b"ab")
        await done.wait()
        loop.selector.forget(one.fileno())

    run(main())
    assert [str(context["exception"]) for context in told] == ["odd"]


def test_who_interrupts_ends_the_program(pair: Pair) -> None:
    one, other = pair

    async def main() -> None:
        loop = loop_now()

        def interrupt() -> None:
            one.recv(1)
            loop.selector.forget(one.fileno())
            raise KeyboardInterrupt

        loop.selector.watch(one.fileno(), interrupt)
        other.send(b"x")
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run(main())


@pytest.mark.parametrize("reader_first", [True, False])
@pytest.mark.parametrize("number_used_again", [True, False])
def test_a_reader_closes_a_file_that_is_ready_as_well(
    pair: Pair, reader_first: bool, number_used_again: bool
) -> None:
    """The kernel tells of both in one call: what it said of the other holds for no file any more."""
    one, other = pair

    async def main() -> None:
        loop = loop_now()
        done = asyncio.Event()
        wrong: list[str] = []
        ready, far = socket.socketpair()
        fresh: list[socket.socket] = []

        def close_it() -> None:
            one.recv(1)
            number = ready.fileno()
            loop.remove_writer(ready)
            ready.close()
            if number_used_again:
                fresh.extend(socket.socketpair())
                assert fresh[0].fileno() == number
                fresh[0].setblocking(False)
                loop.add_reader(fresh[0], woken)
            loop.call_soon(done.set)

        def woken() -> None:
            try:
                done.set() if fresh[0].recv(1) == b"x" else wrong.append("another byte")
            except BlockingIOError:
                wrong.append("woken for what another file had")

        def watch_the_other() -> None:
            loop.add_writer(ready, wrong.append, "of a closed file")

        if not reader_first:
            watch_the_other()
        loop.selector.watch(one.fileno(), close_it)
        other.send(b"x")
        if reader_first:
            watch_the_other()
        await done.wait()
        loop.selector.forget(one.fileno())
        if fresh:
            done.clear()
            fresh[1].send(b"x")  # the new file is watched for all that
            await done.wait()
            loop.remove_reader(fresh[0])
        for sock in (*fresh, far):
            sock.close()
        assert not wrong

    run(main())


def test_a_reader_closes_another_whose_number_is_used_again(pair: Pair) -> None:
    one, other = pair

    async def main() -> None:
        loop = loop_now()
        calls: list[str] = []
        ready, far = socket.socketpair()
        fresh: list[socket.socket] = []

        def close_it() -> None:
            one.recv(1)
            number = ready.fileno()
            loop.selector.forget(number)
            ready.close()
            fresh.extend(socket.socketpair())
            assert fresh[0].fileno() == number
            loop.selector.watch(number, lambda: calls.append("new"))

        loop.selector.watch(one.fileno(), close_it)
        loop.selector.watch(ready.fileno(), lambda: calls.append("old"))
        other.send(b"x")
        far.send(b"x")
        await asyncio.sleep(0.01)
        assert calls == []
        loop.selector.forget(one.fileno())
        loop.selector.forget(fresh[0].fileno())
        for sock in (*fresh, far):
            sock.close()

    run(main())


def test_a_file_that_is_read_and_written_by_its_object(pair: Pair) -> None:
    """From Python 3.13 on asyncio looks for it in the selector's map."""
    one, other = pair

    async def main() -> None:
        loop = loop_now()
        done = asyncio.Event()
        loop.add_writer(one, done.set)
        loop.add_reader(one, done.set)
        await done.wait()
        assert loop.selector.get_map().get(one) == loop.selector.get_key(one)
        assert loop.selector.get_map().get(other) is None
        assert loop.remove_writer(one)
        assert loop.remove_reader(one)
        assert loop.selector.get_map().get(one) is None

    run(main())


def test_who_is_read_may_outlive_the_loop(pair: Pair) -> None:
    one, _ = pair
    loop = Loop()
    loop.selector.watch(one.fileno(), lambda: None)
    loop.close()
    loop.selector.forget(one.fileno())  # as `remove_reader` may be called then


def test_a_child_process() -> None:
    async def main() -> int | None:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(3)")
        return await child.wait()

    assert run(main()) == 3


# It is a selector -------------------------------------------------------------------------------------


def refuse(failure: BaseException) -> None:
    raise AssertionError from failure


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["register", "modify", "unregister", "read", "leave", "send", "drain", "hang up"]),
        st.integers(0, 2),
        st.sampled_from([READ, WRITE, READ | WRITE]),
    ),
    max_size=30,
)


@given(STEPS)
def test_it_tells_the_loop_what_any_other_would(steps: list[tuple[str, int, int]]) -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    for sock, far in pairs:
        sock.setblocking(False)
        far.setblocking(False)
    mine, theirs = Selector(refuse), selectors.EpollSelector()
    mine.open()
    read: dict[int, int] = {}
    try:
        for what, number, events in steps:
            sock, far = pairs[number]
            if what == "register":
                assert _outcome(mine.register, sock, events) == _outcome(theirs.register, sock, events)
            elif what == "modify":
                assert _outcome(mine.modify, sock, events) == _outcome(theirs.modify, sock, events)
            elif what == "unregister":
                assert _outcome(mine.unregister, sock) == _outcome(theirs.unregister, sock)
            elif what == "read" and number not in read:
                read[number] = 0
                mine.watch(sock.fileno(), partial(_count, read, number))
            elif what == "leave" and number in read:
                del read[number]
                mine.forget(sock.fileno())
            elif what == "send" and far.fileno() >= 0:
                far.send(b"x")
            elif what == "drain":
                _outcome(sock.recv, 100)
            elif what == "hang up":
                far.close()
            before = dict(read)
            told = {key.fd: seen for key, seen in mine.select(0)}
            expected = {key.fd: seen for key, seen in theirs.select(0)}
            assert {fd: seen for fd, seen in told.items() if seen} == expected
            assert dict(mine.get_map()) == {key.fd: key for key in theirs.get_map().values()}
            for one in before:
                assert (read[one] > before[one]) == _readable(pairs[one][0])
    finally:
        mine.close()
        theirs.close()
        for sock, far in pairs:
            sock.close()
            far.close()


def _outcome(call: Callable[..., object], *args: object) -> object:
    try:
        return call(*args)
    except (KeyError, OSError) as error:
        return type(error)


def _count(calls: dict[int, int], number: int) -> None:
    calls[number] += 1


def _readable(sock: socket.socket) -> bool:
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    return True


def test_a_file_that_was_closed_too_soon(pair: Pair) -> None:
    one, _ = pair
    selector = Selector(refuse)
    selector.open()
    key = selector.register(one, READ)
    one.close()
    assert selector.unregister(one) == key
    with pytest.raises(ValueError, match="is closed"):
        selector.register(one, READ)
    with pytest.raises(OSError, match="Bad file descriptor"):
        selector.watch(key.fd, lambda: None)
    assert selector.select(0) == []
    selector.close()


# Nodes on it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peers", [1, 12])
def test_nodes_talk_over_it(at: Addresses, peers: int) -> None:
    """With a few connections, and with so many that the driver has an epoll of its own."""
    count = 50

    async def main() -> list[int]:
        port = free_port()
        params = TcpParams(accept="all", accept_port=port, reserved_ports=False)
        heard = [0] * peers

        def take(event: Event) -> None:
            if event.kind is EventKind.PUT:
                heard[event.match_bits - 1] += 1

        async with ulnet.Node(tcp=params) as server:
            server.add_ni(f"{at.ip(1)}@tcp")
            for number in range(peers):
                server.attach(
                    30, number + 1, bytearray(100_000), options=OP_PUT | MANAGE_REMOTE, handler=take
                )
            await asyncio.gather(*(client(number, params) for number in range(peers)))
            await asyncio.sleep(0)
        return heard

    async def client(number: int, params: TcpParams) -> None:
        async with ulnet.Node(tcp=params) as node:
            node.add_ni(f"{at.ip(2 + number)}@tcp")
            for size in (8, 100_000):
                for _ in range(count // 2):
                    await node.put(f"{at.ip(1)}@tcp", 30, number + 1, bytes(size))

    assert run(main()) == [count] * peers


# Writers -------------------------------------------------------------------------------------------------


def fill(sock: socket.socket) -> int:
    """Give it all that it takes."""
    count = 0
    try:
        while True:
            count += sock.send(bytes(65536))
    except BlockingIOError:
        return count


def drain(sock: socket.socket) -> int:
    """Take all that is there."""
    count = 0
    try:
        while got := len(sock.recv(65536)):
            count += got
    except BlockingIOError:
        pass
    return count


@pytest.mark.parametrize("also_read", [False, True])
def test_a_writer_is_called_when_there_is_room_and_until_it_is_left(pair: Pair, also_read: bool) -> None:
    one, other = pair
    calls: list[str] = []

    async def main() -> None:
        loop = loop_now()
        selector = loop.selector
        number = one.fileno()
        if also_read:
            selector.watch(number, lambda: calls.append(f"read {one.recv(9).decode()}"))
        fill(one)
        done = asyncio.Event()

        def writer() -> None:
            calls.append("write")
            selector.forget_room(number)
            loop.call_soon(done.set)

        selector.watch_room(number, writer)
        await asyncio.sleep(0.01)
        assert not calls  # full
        drain(other)
        await done.wait()
        assert calls == ["write"]
        other.send(b"more")
        await asyncio.sleep(0.01)
        assert calls == ["write", *(["read more"] if also_read else [])]
        selector.forget(number)

    run(main())


@pytest.mark.parametrize("what", ["forget", "forget_room"])
def test_who_leaves_one_of_reading_and_writing_keeps_the_other(pair: Pair, what: str) -> None:
    one, other = pair
    calls: set[str] = set()

    async def main() -> None:
        selector = loop_now().selector
        number = one.fileno()
        selector.watch(number, lambda: calls.add("read"))
        selector.watch_room(number, lambda: calls.add("write"))
        getattr(selector, what)(number)
        other.send(b"x")
        await asyncio.sleep(0)
        selector.select(0)
        assert calls == {"write" if what == "forget" else "read"}
        selector.forget(number)
        selector.forget_room(number)
        calls.clear()
        selector.select(0)
        assert not calls

    run(main())


def test_a_file_that_the_loop_reads_is_written_here(pair: Pair) -> None:
    """Connections that are not the loop's own are read by an epoll of the driver; asyncio dials them."""
    one, other = pair
    calls: list[str] = []

    async def main() -> None:
        loop = loop_now()
        done = asyncio.Event()
        loop.add_reader(one, done.set)
        loop.selector.watch_room(one.fileno(), lambda: calls.append("write"))
        loop.selector.select(0)
        assert calls == ["write"]
        loop.selector.forget_room(one.fileno())
        other.send(b"x")
        await done.wait()
        assert loop.remove_reader(one)
        loop.selector.select(0)
        assert calls == ["write"]

    run(main())


def test_a_reader_closes_the_file_that_was_ready_for_its_writer_too(pair: Pair) -> None:
    """Even if its number belongs to another file at once, whose writer has no room."""
    one, other = pair
    calls: list[str] = []

    async def main() -> None:
        selector = loop_now().selector
        number = one.fileno()
        fresh: list[socket.socket] = []

        def close_it() -> None:
            selector.forget(number)
            selector.forget_room(number)
            one.close()
            fresh.extend(socket.socketpair())
            assert fresh[0].fileno() == number
            fresh[0].setblocking(False)
            fill(fresh[0])
            selector.watch_room(number, lambda: calls.append("new"))

        selector.watch(number, close_it)
        selector.watch_room(number, lambda: calls.append("old"))
        other.send(b"x")
        selector.select(0)
        assert fresh and not calls
        selector.forget_room(number)
        for sock in fresh:
            sock.close()

    run(main())


def test_a_writer_that_raises_is_told_of_and_the_loop_goes_on(pair: Pair) -> None:
    one, _ = pair

    async def main() -> None:
        loop = loop_now()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))

        def fails() -> None:
            loop.selector.forget_room(one.fileno())
            raise ValueError("of the writer")

        loop.selector.watch_room(one.fileno(), fails)
        await asyncio.sleep(0.01)
        assert [str(context["exception"]) for context in told] == ["of the writer"]

    run(main())


@pytest.mark.parametrize("count", [1, 3, 40])  # of few the kernel goes on telling, of many not
def test_those_with_more_to_read_take_turns_and_nobody_waits_for_them(count: int) -> None:
    """Each has as many turns as the others, and who is ready once is served before their next turn."""
    failures: list[BaseException] = []
    selector = Selector(failures.append)
    selector.open()
    selector.is_loops = True
    pairs = [socket.socketpair() for _ in range(count + 1)]
    told: list[int] = []
    try:

        def reader(place: int, turns: int) -> None:
            pairs[place][0].recv(1)
            told.append(place)
            if turns == 1:
                selector.watch(numbers[place], partial(reader, place, 1))
                return
            assert selector.again(numbers[place])

        numbers = [ours.fileno() for ours, _ in pairs]
        for place in range(count):
            pairs[place][1].sendall(bytes(1000))
            selector.watch(numbers[place], partial(reader, place, 2))
        selector.watch(numbers[count], partial(reader, count, 1))
        while len(told) < 2 * count:
            selector.select(0)
        assert {told.count(place) for place in range(count)} <= {1, 2, 3}
        told.clear()
        for _ in range(3 * count):
            pairs[count][1].sendall(b"x")
            selector.select(0)
        assert [told.count(place) for place in range(count)] == [3] * count
        assert told.count(count) == 3 * count
        assert told.index(count) == 0
        selector.forget(numbers[0])
        told.clear()
        for _ in range(2 * count):
            selector.select(0)
        assert 0 not in told
        assert not failures
    finally:
        selector.close()
        for ours, theirs in pairs:
            ours.close()
            theirs.close()
