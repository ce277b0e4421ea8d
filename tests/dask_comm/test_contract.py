"""The contract of a comm back end of Dask, point by point: messages, ends, listeners, addresses."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import dask.config
import numpy as np
import pytest
from distributed.comm.addressing import (
    get_address_host,
    get_address_host_port,
    get_local_address_for,
    resolve_address,
)
from distributed.comm.core import CommClosedError, connect, listen
from distributed.comm.registry import get_backend
from distributed.protocol.serialize import Serialized, deserialize, to_serialize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.dask_ends import Ends, Far, an_address
from support.examples import examples
from ulnet.dask import UlnetBackend
from ulnet.dask import comm as comm_module
from ulnet.dask.assembly import EAGER, EAGER_PIECE
from ulnet.dask.backend import UlnetConnector
from ulnet.dask.comm import HEAD, PART, UlnetComm
from ulnet.dask.endpoint import endpoint_for, present_endpoint
from ulnet.dask.fetch_queue import FetchQueue
from ulnet.lnd.tcp import TcpParams
from ulnet.node import Node
from ulnet.rpc import Call, Client, RpcError

pytestmark = [
    pytest.mark.requirement("ULP"),
    pytest.mark.leaks("the thread in which Dask serializes large messages is kept"),
]

PATIENCE = 60.0  # seconds within which a state is reached


async def until(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not state():
            await asyncio.sleep(0.002)


def array(size: int) -> Any:
    return np.arange(size, dtype="u4")


# Reading and writing ---------------------------------------------------------------------------------


async def test_messages_go_both_ways(ends: Ends) -> None:
    assert await ends.ours.write({"op": "x", "numbers": [1, 2.5, None], "bytes": b"\0\xff"}) > 0
    assert await ends.read() == {"op": "x", "numbers": (1, 2.5, None), "bytes": b"\0\xff"}
    await ends.write("back")
    assert await ends.ours.read() == "back"


async def test_the_handshake_tells_both_of_each_other(ends: Ends) -> None:
    assert ends.ours.remote_info["address"] == ends.ours.peer_address
    assert ends.theirs.remote_info["python"] == ends.ours.local_info["python"]
    assert ends.ours.handshake_options == ends.theirs.handshake_options
    assert ends.ours.handshake_options["compression"] is None  # both are on one host
    assert ends.ours.same_host and ends.theirs.same_host


async def test_what_is_written_ahead_comes_in_order(ends: Ends) -> None:
    async def write() -> None:
        for number in range(600):
            await ends.ours.write((number, b"x" * (number * 37 % 20_000)))

    writing = asyncio.create_task(write())
    for number in range(600):
        assert await ends.read() == (number, b"x" * (number * 37 % 20_000))
    await writing


async def test_small_and_large_messages_keep_their_order(ends: Ends) -> None:
    large = array(1 << 20)

    async def write() -> None:
        for number in range(12):
            await ends.ours.write({"n": number, "x": to_serialize(large) if number % 3 == 0 else b""})

    writing = asyncio.create_task(write())
    for number in range(12):
        message = await ends.read()
        assert message["n"] == number
        assert number % 3 or np.array_equal(message["x"], large)
    await writing


async def test_large_frames_arrive_as_they_were_in_memory_that_may_be_changed(ends: Ends) -> None:
    value = array(20 << 18)  # 20 MiB
    await ends.ours.write({"x": to_serialize(value)})
    read = (await ends.read())["x"]
    assert np.array_equal(read, value)
    read[0] = 7


async def test_frames_longer_than_a_shard_are_joined_again(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UlnetComm, "max_shard_size", 1 << 20)
    value = array(3 << 18)
    await ends.ours.write({"x": to_serialize(value)})
    assert np.array_equal((await ends.read())["x"], value)


@pytest.mark.parametrize(("count", "size"), [(3000, 10), (2000, 20_000), (40, 100_000), (1, 0)])
async def test_many_frames(ends: Ends, count: int, size: int) -> None:
    values = [np.full(size, number % 251, "u1") for number in range(count)]
    await ends.ours.write([to_serialize(value) for value in values])
    read = await ends.read()
    assert len(read) == count
    assert all(np.array_equal(*pair) for pair in zip(read, values, strict=True))


@pytest.mark.parametrize(
    "sizes",
    [[EAGER_PIECE], [EAGER_PIECE + 1, 5000], [EAGER, 5000], [EAGER + 1], [5000, EAGER + 4097, 2 * EAGER]],
)
async def test_the_beginning_of_the_first_large_frame_is_sent_eagerly(
    ends: Ends, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But where bulk is under way to the same process already."""
    pulled: list[int] = []
    fetch = FetchQueue.fetch

    async def seen(self: FetchQueue, call: Call, memory: memoryview, *rest: Any) -> None:
        pulled.append(memory.nbytes)
        await fetch(self, call, memory, *rest)

    monkeypatch.setattr(FetchQueue, "fetch", seen)
    frames = [np.random.default_rng(size).integers(0, 256, size, "u1") for size in sizes]
    first, *others = sizes
    for lends in (0, 1):
        pulled.clear()
        ends.ours.partner.lends += lends
        await ends.ours.write([to_serialize(frame) for frame in frames])
        ends.ours.partner.lends -= lends
        assert [one.tobytes() for one in await ends.read()] == [frame.tobytes() for frame in frames]
        asked = [first if lends else first - min(first, EAGER), *others]
        assert sorted(pulled) == sorted(filter(None, asked))


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.integers(0, 5000), st.integers(4090, 4100), st.integers(0, 200_000)), max_size=12)
)
async def test_frames_of_any_size_are_what_they_were(ends: Ends, sizes: list[int]) -> None:
    frames = [np.random.default_rng(size).integers(0, 256, size, "u1") for size in sizes]
    await ends.ours.write([to_serialize(frame) for frame in frames])
    read = await ends.read()
    assert [one.tobytes() for one in read] == [frame.tobytes() for frame in frames]


async def test_data_stay_serialized_where_that_is_wished(make_ends: Callable[..., Awaitable[Ends]]) -> None:
    ends = await make_ends(deserialize=False)
    await ends.write({"x": to_serialize(array(100))})
    read = (await ends.ours.read())["x"]
    assert isinstance(read, Serialized)
    assert np.array_equal(deserialize(read.header, read.frames), array(100))


async def test_what_cannot_be_serialized_breaks_nothing(ends: Ends) -> None:
    class Bad:
        def __reduce__(self) -> str:
            raise RuntimeError("not this one")

    with pytest.raises(TypeError):
        await ends.ours.write({"x": to_serialize(Bad())}, on_error="raise")
    await ends.ours.write("next")
    assert await ends.read() == "next"


async def test_a_slow_reader_holds_its_writer_and_bounds_memory(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comm_module, "KEPT", 4 << 20)
    value = np.zeros(1 << 20, "u1")
    written = 0

    async def write() -> None:
        nonlocal written
        for _ in range(20):
            await ends.ours.write({"x": to_serialize(value)})
            written += 1

    writing = asyncio.create_task(write())
    await until(lambda: written >= 4)
    for _ in range(200):
        await asyncio.sleep(0.002)
    assert written < 8
    for _ in range(20):
        assert (await ends.read())["x"].nbytes == 1 << 20
    await writing


async def test_reading_can_be_given_up_and_begun_again(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ends.ours.read()
    await ends.write("later")
    assert await ends.ours.read() == "later"


# The end ---------------------------------------------------------------------------------------------


async def test_close_loses_nothing_that_was_written(ends: Ends) -> None:
    value = array(1 << 18)
    for number in range(100):
        await ends.ours.write(number)
    await ends.ours.write({"x": to_serialize(value)})
    await ends.ours.close()
    assert ends.ours.closed()
    for number in range(100):
        assert await ends.read() == number
    assert np.array_equal((await ends.read())["x"], value)
    with pytest.raises(CommClosedError, match="closed by the other side"):
        await ends.read()
    assert ends.theirs.closed()


async def test_a_closed_comm_takes_nothing_and_closes_twice(ends: Ends) -> None:
    await ends.ours.close()
    await ends.ours.close()
    with pytest.raises(CommClosedError):
        await ends.ours.write(1)
    with pytest.raises(CommClosedError):
        await ends.ours.read()


async def test_who_reads_hears_of_the_end(ends: Ends) -> None:
    reading = asyncio.create_task(ends.ours.read())
    await asyncio.sleep(0)
    await ends.close()
    with pytest.raises(CommClosedError):
        await reading


async def test_who_writes_to_a_closed_one_hears_of_it(ends: Ends) -> None:
    await ends.close()

    async def write_on() -> None:
        while True:
            await ends.ours.write("x")

    with pytest.raises(CommClosedError):
        await asyncio.wait_for(write_on(), PATIENCE)
    assert ends.ours.closed()


async def test_abort_ends_both_at_once(ends: Ends) -> None:
    reading = asyncio.create_task(ends.ours.read())
    await asyncio.sleep(0)
    await ends.abort()
    with pytest.raises(CommClosedError, match="aborted"):
        await reading
    assert ends.ours.closed() and ends.theirs.closed()


@pytest.mark.parametrize("how", ["waits", "is cancelled", "is cut short"])
async def test_close_does_not_wait_for_who_takes_nothing(
    ends: Ends, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader does not read, and says that it is at work."""
    monkeypatch.setattr(comm_module, "KEPT", 10_000)
    for number in range(10):
        await ends.ours.write({"n": number, "x": b"x" * 5000})
    patience = "100ms" if how == "waits" else "1h"
    with dask.config.set({"distributed.comm.timeouts.tcp": patience}):
        closing = asyncio.create_task(ends.ours.close())
        await asyncio.sleep(0)
        if how == "is cancelled":
            closing.cancel()
        elif how == "is cut short":
            ends.ours.abort()
        done, _ = await asyncio.wait([closing], timeout=PATIENCE / 4)
        if not done:
            closing.cancel()
        assert done
    assert closing.cancelled() is (how == "is cancelled")
    await until(lambda: not ends.ours._calls)
    assert ends.ours.number not in ends.ours.endpoint.comms
    await until(ends.theirs.closed)
    while ends.theirs._whole:
        await ends.read()
    with pytest.raises(CommClosedError, match="aborted by the other side"):
        await ends.read()


async def test_close_waits_for_bulk_as_long_as_it_moves(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(self: FetchQueue, call: Call, memory: memoryview, came: Callable[[int], None]) -> None:
        step = memory.nbytes // 12
        for at in range(0, memory.nbytes, step):
            await asyncio.sleep(0.2)
            await call.pull(memory[at : at + step], offset=at)
        came(memory.nbytes)

    monkeypatch.setattr(FetchQueue, "fetch", slow)
    value = array(1 << 20)
    writing = asyncio.create_task(ends.ours.write({"x": to_serialize(value)}))
    await until(lambda: ends.ours.partner.lends > 0)
    with dask.config.set({"distributed.comm.timeouts.tcp": "1s"}):
        await ends.ours.close()
    assert np.array_equal((await ends.read())["x"], value)
    with pytest.raises(CommClosedError, match="closed by the other side"):
        await ends.read()
    with pytest.raises(CommClosedError):
        await writing


async def test_comms_of_two_processes_do_not_mix_or_fall_together(
    make_ends: Callable[..., Awaitable[Ends]],
) -> None:
    many = [await make_ends() for _ in range(5)]
    for number, ends in enumerate(many):
        await ends.ours.write(number)
    await many[2].abort()
    for number, ends in enumerate(many):
        if number != 2:
            assert await ends.read() == number


async def test_a_node_that_closes_ends_its_comms(ends: Ends, far: Far) -> None:
    reading = asyncio.create_task(ends.ours.read())
    await asyncio.sleep(0)
    await far.close_node()
    with pytest.raises(CommClosedError):
        async with asyncio.timeout(PATIENCE):
            await reading


async def test_a_node_lives_as_long_as_somebody_needs_it(make_ends: Callable[..., Awaitable[Ends]]) -> None:
    ends = await make_ends()
    endpoint = present_endpoint()
    assert endpoint is not None and not endpoint.closed
    await ends.ours.close()
    await until(lambda: endpoint.closed and not endpoint.node.running)
    again = await make_ends()
    await again.ours.write(1)
    assert await again.read() == 1


# Listeners and addresses -----------------------------------------------------------------------------


async def test_both_ends_in_one_loop() -> None:
    async def handle(comm: UlnetComm) -> None:
        await comm.write({"heard": await comm.read()})
        await comm.close()

    async with listen("ulnet://127.0.0.1:0", handle) as listener:
        comm = await connect(listener.contact_address)
        await comm.write(array(100_000).tobytes())
        assert (await comm.read())["heard"] == array(100_000).tobytes()
        with pytest.raises(CommClosedError, match="closed by the other side"):
            await comm.read()
    endpoint = present_endpoint()
    assert endpoint is not None
    await endpoint.close()


async def test_a_port_that_nobody_has(far: Far) -> None:
    host, port = get_address_host_port(await far.listen())
    with pytest.raises(OSError, match="nobody listens"):
        await UlnetConnector().connect(f"{host}:{1 + port % 60000}")


async def test_a_listener_that_stopped_takes_nobody_and_ends_nobody(
    make_ends: Callable[..., Awaitable[Ends]], far: Far
) -> None:
    ends = await make_ends()
    address = far.listener.contact_address

    async def stop() -> None:
        far.listener.stop()

    await far.do(stop())
    with pytest.raises(OSError, match="nobody listens"):
        await UlnetConnector().connect(address.rpartition("/")[2])
    await ends.ours.write(5)
    assert await ends.read() == 5


async def test_one_port_has_one_listener(far: Far) -> None:
    host, port = get_address_host_port(await far.listen())

    async def again() -> None:
        await listen(f"ulnet://{host}:{port}", far._accepted)

    with pytest.raises(OSError, match="listens there already") as failed:
        await far.do(again())
    assert failed.value.errno == errno.EADDRINUSE


async def test_each_process_has_an_address_of_its_own(far: Far) -> None:
    theirs = get_address_host(await far.listen())
    endpoint, ours = await endpoint_for(theirs)
    assert ours != theirs and ours.startswith("127.")
    await endpoint.close()
    with pytest.raises(Exception, match="another process has each of them") as failed:
        await endpoint_for(theirs, exactly=True)
    assert getattr(failed.value, "errno", 0) == errno.EADDRINUSE


def test_addresses() -> None:
    assert isinstance(get_backend("ulnet"), UlnetBackend)
    assert get_address_host("ulnet://10.0.0.1:80") == "10.0.0.1"
    assert get_address_host_port("ulnet://10.0.0.1:80") == ("10.0.0.1", 80)
    assert resolve_address("ulnet://localhost:80") == "ulnet://127.0.0.1:80"
    assert get_local_address_for("ulnet://127.0.0.1:80") == "ulnet://127.0.0.1"
    assert get_address_host_port("ulnet://[fd00::1]:80") == ("fd00::1", 80)


async def test_no_address() -> None:
    with pytest.raises(ValueError, match="missing port"):
        await connect("ulnet://127.0.0.1", timeout=1)
    with pytest.raises(ValueError, match="not started"):
        _ = get_backend("ulnet").get_listener("127.0.0.1:0", None, True).contact_address


async def test_encryption_is_not_promised() -> None:
    with pytest.raises(RuntimeError, match="encryption required"):
        await connect("ulnet://127.0.0.1:1", require_encryption=True)
    with pytest.raises(RuntimeError, match="encryption required"):
        listen("ulnet://127.0.0.1:0", None, require_encryption=True)


# Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "data", "words"),
    [
        ("connect", b"", "too few"),
        ("message", b"\1" * 10, "too few"),
        ("message", HEAD.pack(12345, 0, 0, 0), "closed"),
        ("part", PART.pack(12345, 0, 0, 0), "closed"),
        ("eager", PART.pack(12345, 0, 0, 0), "closed"),
        ("eager", b"", "too few"),
        ("joined", b"", "too few"),
    ],
)
async def test_what_strangers_say_is_refused(ends: Ends, method: str, data: bytes, words: str) -> None:
    await refused(ends, method, data, words)


@pytest.mark.parametrize(
    ("count", "limit", "rest", "words"),
    [
        (100, 0, b"", "sizes of 100 frames"),
        (1, 1 << 20, (1 << 20).to_bytes(8, "little"), "are announced"),
        (2, 5, b"\5" + bytes(7) + b"\5" + bytes(7) + b"123456789", "are announced"),
    ],
)
async def test_lying_sizes_are_refused(ends: Ends, count: int, limit: int, rest: bytes, words: str) -> None:
    await refused(ends, "message", HEAD.pack(ends.ours.theirs, 1, count, limit) + rest, words)


@pytest.mark.parametrize("size", [10**15, 1 << 62])
async def test_sizes_beyond_all_memory_are_refused(ends: Ends, size: int) -> None:
    """Before any is taken, whatever announces them."""
    sizes = HEAD.pack(ends.ours.theirs, 1, 1, 0) + size.to_bytes(8, "little")
    await refused(ends, "message", sizes, f"{size} bytes are announced")


@pytest.mark.parametrize("method", ["connect", "message", "part", "eager", "joined"])
async def test_data_that_would_be_fetched_are_refused(ends: Ends, method: str) -> None:
    """Nobody of ours has any, and there is no bound for what the endpoint would take of them."""
    await refused(ends, method, bytes(EAGER_PIECE + 1000), "must be in its frame")


@pytest.mark.parametrize("method", ["part", "joined"])
async def test_bulk_beyond_all_memory_is_refused(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 99_999)
    await refused(
        ends, method, PART.pack(ends.ours.theirs, 1, 0, 0), "100000 bytes are announced", bytes(100_000)
    )


async def test_what_comes_is_counted_for_all_comms(
    make_ends: Callable[..., Awaitable[Ends]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, frames that came with their sizes were not, also those behind a message that never came."""
    ends, other = await make_ends(), await make_ends()
    endpoint = ends.theirs.endpoint
    assert other.theirs.endpoint is endpoint
    await until(lambda: not endpoint.taken)

    async def send(comm: UlnetComm, number: int) -> None:
        head = HEAD.pack(comm.theirs, number, 2, 10_000)
        await comm.partner.call(
            "message", head + b"".join(n.to_bytes(8, "little") for n in (10_000, 0)) + bytes(10_000)
        )

    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 50_000)  # of which one partner may have half
    await send(ends.ours, 2)
    await send(other.ours, 2)
    for comm in (ends.ours, other.ours):
        with pytest.raises(RpcError, match="bytes are announced") as told:
            await send(comm, 3)
        assert told.value.errno == errno.ENOMEM
    each = 10_016 + 2 * comm_module.FRAME + comm_module.MESSAGE
    assert endpoint.taken == 2 * each
    ends.ours.abort()
    await until(lambda: endpoint.taken == each)
    monkeypatch.undo()
    await other.ours.write("first")
    assert await other.read() == "first"
    await until(lambda: endpoint.taken == each)  # it waits to be read
    other.ours.abort()
    await until(lambda: not endpoint.taken)


async def test_what_is_lent_and_does_not_come_stops_no_other_comm(
    make_ends: Callable[..., Awaitable[Ends]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, one call stopped all comms of a process: what it announced was counted as if it were here."""
    lenders, other = [await make_ends() for _ in range(3)], await make_ends()
    endpoint = other.theirs.endpoint
    await until(lambda: not endpoint.taken)
    asked = []

    async def never(self: FetchQueue, call: Call, *_: Any) -> None:
        asked.append(call.bulk_size)
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(FetchQueue, "fetch", never)
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 205_000)
    calls = [
        asyncio.create_task(
            ends.ours.partner.call(method, PART.pack(ends.ours.theirs, 1, 0, 0), bytes(100_000))
        )
        for ends, method in zip(lenders, ("part", "joined", "part"), strict=True)
    ]
    await until(lambda: len(asked) == 3)
    await other.ours.write("as before")
    assert await other.read() == "as before"
    part = PART.pack(lenders[0].ours.theirs, 1, 1, 0)
    with pytest.raises(RpcError, match="105001 bytes are announced"):  # of one comm all counts
        await lenders[0].ours.partner.call("part", part, bytes(105_001))
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await until(lambda: endpoint.taken == 2 * comm_module.MESSAGE)  # two have begun


async def test_bulk_is_counted_as_it_comes(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that of what is fetched at once no more comes than there may be."""
    endpoint, most = ends.theirs.endpoint, (8 << 20) + 4 * comm_module.MESSAGE
    await until(lambda: not endpoint.taken)
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", most)
    frames = bytes(3 << 20)
    results = await asyncio.gather(
        *(
            ends.ours.partner.call("part", PART.pack(ends.ours.theirs, number, 0, 0), frames)
            for number in (2, 3)  # each alone is less than half
        ),
        return_exceptions=True,
    )
    failed = [result for result in results if isinstance(result, RpcError)]
    assert [one.errno for one in failed] == [errno.ENOMEM]
    assert endpoint.taken == len(frames) + comm_module.FRAME + 2 * comm_module.MESSAGE
    ends.ours.abort()
    await until(lambda: not endpoint.taken)


async def test_no_partner_takes_all_memory(ends: Ends, far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has at most half of what the others leave, on all its comms."""
    another = Far()
    try:
        other = await another.do(connect(far.listener.contact_address))
        theirs = await far.accepted()
        monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 50_000)
        head = (10_000).to_bytes(8, "little") + bytes(10_000)
        for number in (2, 3, 4):
            message = HEAD.pack(ends.ours.theirs, number, 1, 10_000) + head
            if number == 4:
                with pytest.raises(RpcError, match="bytes are announced"):
                    await ends.ours.partner.call("message", message)
            else:
                await ends.ours.partner.call("message", message)
        await another.do(other.write(bytes(10_000)))
        assert await far.do(theirs.read()) == bytes(10_000)
        await another.do(other.close())
        await another.close_node()
    finally:
        another.close()


async def test_frames_beyond_those_that_are_announced_later_are_refused(ends: Ends) -> None:
    """Before, as many as there were to be made a message whole: it broke, and its comm hung."""
    ours = ends.ours
    number = ends.theirs._next
    sizes = HEAD.pack(ours.theirs, number, 1, 0) + (5000).to_bytes(8, "little")
    await ours.partner.call("part", PART.pack(ours.theirs, number, 7, 0), bytes(5000))
    with pytest.raises(RpcError, match="frame 7 is beyond the 1 ") as told:
        await ours.partner.call("message", sizes)
    assert told.value.errno == errno.EBADMSG
    assert number in ends.theirs._arriving
    none = HEAD.pack(ours.theirs, number + 1, 0, 0)
    await ours.partner.call("message", none)
    with pytest.raises(RpcError, match="none of those that were announced"):
        await ours.partner.call("part", PART.pack(ours.theirs, number + 1, 0, 0), bytes(5000))


async def test_a_frame_comes_once(ends: Ends) -> None:
    """Also one whose first bytes, which are sent eagerly, are still to come."""
    ours = ends.ours
    await ours.partner.call("part", PART.pack(ours.theirs, 2, 7, 100), bytes(5000))
    with pytest.raises(RpcError, match="none of those that were announced"):
        await ours.partner.call("part", PART.pack(ours.theirs, 2, 7, 0), bytes(5100))
    with pytest.raises(RpcError, match="frame 7 is beyond the 1 "):
        await ours.partner.call("message", HEAD.pack(ours.theirs, 2, 1, 0) + (5100).to_bytes(8, "little"))


async def test_what_was_read_is_not_counted(ends: Ends) -> None:
    for size in (10, 10_000, 100_000, 5 << 20):
        await ends.ours.write([to_serialize(np.zeros(size, "u1")) for _ in range(3)])
        await ends.read()
        assert not ends.theirs.endpoint.taken


async def test_bulk_that_breaks_off_is_not_counted(ends: Ends) -> None:
    """Whether its comm was closed before or after."""
    endpoint = ends.theirs.endpoint
    writing = asyncio.create_task(ends.ours.write({"x": to_serialize(np.zeros(200 << 20, "u1"))}))
    await until(lambda: endpoint.taken > 0)
    ends.ours.abort()
    with pytest.raises(CommClosedError):
        await writing
    await until(lambda: not endpoint.taken)


async def test_more_frames_than_a_message_may_have_are_refused(ends: Ends) -> None:
    """Before: eight million empty ones held the loop for 16 s, and took 2 GB."""
    most = comm_module.MOST_FRAMES
    head = HEAD.pack(ends.ours.theirs, 1, most + 1, 1) + bytes(8 * (most + 1))
    await refused(ends, "joined", PART.pack(ends.ours.theirs, 1, 0, 0), f"{most + 1} frames", head)
    sizes = HEAD.pack(ends.ours.theirs, 1, 2000, 1) + bytes(8 * 2000)
    await refused(ends, "message", sizes, "16000 bytes in one call")


async def test_a_message_is_announced_once(ends: Ends) -> None:
    head = HEAD.pack(ends.ours.theirs, 2, 1, 1) + bytes(8)
    await ends.ours.partner.call("message", head)
    with pytest.raises(RpcError, match="announced already"):
        await ends.ours.partner.call("message", head)


@pytest.mark.parametrize("size", [1, 3000])
async def test_of_more_frames_than_a_message_may_have_dask_makes_several(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(comm_module, "MOST_FRAMES", 100)
    monkeypatch.setattr(comm_module, "KEPT", 50_000)  # sections do not wait for each other to be read
    values = [np.full(size, number % 251, "u1") for number in range(1234)]
    for _ in range(2):
        await ends.ours.write([to_serialize(value) for value in values])
        await ends.ours.write("between")
        read = await ends.read()
        assert len(read) == len(values)
        assert all(np.array_equal(*pair) for pair in zip(read, values, strict=True))
        assert await ends.read() == "between"


@pytest.mark.parametrize(("number", "index"), [(0, 0), (5000, 0), (1 << 63, 0), (1, 1536)])
async def test_frames_that_nobody_expects_are_refused(ends: Ends, number: int, index: int) -> None:
    """Else they would be kept without end."""
    words = f"frame {index} " if index else f"message {number} "
    await refused(ends, "part", PART.pack(ends.ours.theirs, number, index, 0), words, bytes(5000))


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 0), (1, 100), (EAGER, 1), (0, EAGER_PIECE + 1), (EAGER_PIECE, EAGER_PIECE)]
)
async def test_pieces_that_are_none_are_refused(ends: Ends, offset: int, size: int) -> None:
    """The last one is beyond what was announced."""
    ours = ends.ours
    part = PART.pack(ours.theirs, 1, 0, EAGER_PIECE + 7)
    await ours.partner.call("part", part)
    for twice in (False, True):
        with pytest.raises(RpcError, match=f"{size} bytes at {offset} are ") as told:
            await ours.partner.call("eager", PART.pack(ours.theirs, 1, 0, offset) + bytes(size))
        assert told.value.errno == errno.EBADMSG, twice
    with pytest.raises(RpcError, match="frames 0 and 1 of a message are sent eagerly"):
        await ours.partner.call("part", PART.pack(ours.theirs, 1, 1, 7))
    with pytest.raises(RpcError, match="is none of those that were announced"):
        await ours.partner.call("part", PART.pack(ours.theirs, 1, 1, EAGER + 1))


async def test_early_pieces_beyond_all_memory_are_refused(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of messages whose frames nobody has announced; what is announced then is counted once."""
    ours, piece = ends.ours, bytes(EAGER_PIECE)
    some = 100 + comm_module.FRAME + 2 * (comm_module.MESSAGE + comm_module.PIECE)
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 2 * (2 * EAGER_PIECE + some))  # half is one partner's
    for number in (1, 2):
        await ours.partner.call("eager", PART.pack(ours.theirs, number, 0, 0) + piece)
    with pytest.raises(RpcError, match=f"{EAGER_PIECE} bytes are announced"):
        await ours.partner.call("eager", PART.pack(ours.theirs, 3, 0, 0) + piece)
    await ours.partner.call("part", PART.pack(ours.theirs, 1, 0, EAGER_PIECE + 100))
    with pytest.raises(RpcError, match="1 bytes are announced"):
        await ours.partner.call("part", PART.pack(ours.theirs, 2, 0, EAGER_PIECE + 1))


async def test_a_comm_is_of_its_partner_alone(ends: Ends) -> None:
    """Whoever has seen its number: a third node can neither write into it nor end it."""
    server = ends.ours.partner.nid
    params = TcpParams(
        accept="all",
        accept_port=dask.config.get("distributed.comm.ulnet.accept-port"),
        reserved_ports=False,
    )
    async with Node(tcp=params) as third:
        third.add_ni(f"{an_address()}@tcp")
        async with Client(third, server, "dask") as stranger:
            for number in (0, (1 << 64) - 1):
                with pytest.raises(RpcError, match="closed") as told:
                    await stranger.call("message", HEAD.pack(ends.ours.theirs, number, 0xFFFFFFFF, 0))
                assert told.value.errno == errno.ENOTCONN
            with pytest.raises(RpcError, match="closed"):
                await stranger.call("part", PART.pack(ends.ours.theirs, 0, 0, 0), bulk=bytes(5000))
    await ends.ours.write("as before")
    assert await ends.read() == "as before"


async def refused(ends: Ends, method: str, data: bytes, words: str, bulk: bytes | None = None) -> None:
    endpoint = present_endpoint()
    assert endpoint is not None
    async with Client(endpoint.node, ends.ours.partner.nid, "dask") as stranger:
        with pytest.raises(RpcError, match=words):
            await stranger.call(method, data, bulk=bulk)
    await ends.ours.write("as before")
    assert await ends.read() == "as before"
