"""A process that opens comms without end, refers to frames that it announced, sends what nobody asked for."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from distributed.comm.core import connect
from distributed.protocol.serialize import to_serialize

from support.dask_ends import Ends, Far
from ulnet.dask import comm as comm_module
from ulnet.dask import endpoint as endpoint_module
from ulnet.dask.assembly import EAGER, EAGER_PIECE
from ulnet.dask.backend import UlnetConnector
from ulnet.dask.comm import HEAD, PART, UlnetComm
from ulnet.dask.endpoint import present_endpoint
from ulnet.dask.fetch_queue import FetchQueue
from ulnet.rpc import Call, RpcError

pytestmark = [
    pytest.mark.requirement("ULP"),
    pytest.mark.leaks("the thread in which Dask serializes large messages is kept"),
]

PATIENCE = 60.0  # seconds within which a state is reached


async def until(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not state():
            await asyncio.sleep(0.002)


def port_of(comm: UlnetComm) -> int:
    return int(comm.peer_address.rpartition(":")[2])


async def test_a_process_has_half_of_the_comms_that_others_leave(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "MOST_COMMS", 9, raising=False)
    address = await far.listen()
    mine = await connect(address)
    assert isinstance(mine, UlnetComm)
    endpoint = present_endpoint()
    assert endpoint is not None
    opened: list[UlnetComm] = []

    async def open_many() -> None:
        for _ in range(20):
            comm = endpoint._comm(mine.partner, "ulnet://x:1", "ulnet://y:2", False)
            opened.append(comm)  # and it says nothing
            wanted = endpoint_module._CONNECT.pack(port_of(mine), 1, comm.number)
            comm.begin(struct.unpack("<Q", bytes(await mine.partner.call("connect", wanted)))[0])

    with pytest.raises(RpcError, match=r"5 comms .* of 9: close some") as told:
        await open_many()
    opened.pop().break_off("it was refused")
    assert told.value.errno == errno.EAGAIN
    assert len(opened) == 4
    with pytest.raises(OSError, match="close some"):  # Dask tries again after those
        await UlnetConnector().connect(address.removeprefix("ulnet://"))

    another = Far()
    try:
        other = await another.do(connect(address))
        await another.do(other.close())
        await another.close_node()
    finally:
        another.close()

    opened.pop().abort()
    again = await connect(address)
    for comm in (again, mine, *opened):
        comm.abort()
    assert not endpoint.comms


async def test_all_places_of_comms_come_back(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "MOST_COMMS", 5, raising=False)
    address = await far.listen()
    for _ in range(10):
        for comm in [await connect(address) for _ in range(3)]:
            comm.abort()


class Sizes(tuple[int, ...]):
    """They are not all looked at."""

    __slots__ = ()

    def __iter__(self) -> Iterator[int]:
        raise AssertionError


async def test_to_refuse_a_frame_the_sizes_of_all_are_not_copied(ends: Ends) -> None:
    assembly = ends.ours._assembly(1)
    assembly.sizes = Sizes((5,) * 100)
    lends: Any = SimpleNamespace(bulk_size=6)
    for index in (3, 99, 100, 1535):
        with pytest.raises(RpcError, match=f"frame {index} of 6 bytes is none"):
            await ends.ours.part(1, index, 0, cast(Any, lends))


async def test_joined_frames_come_with_their_sizes(ends: Ends) -> None:
    """Else the message would never be whole, and stay."""
    theirs = ends.ours.theirs
    where = PART.pack(theirs, 1, 0, 0)
    for limit in (0, 4, comm_module.JOINED):
        body = HEAD.pack(theirs, 1, 1000, limit) + struct.pack("<1000Q", *[5] * 1000)
        with pytest.raises(RpcError, match="too few for the frames"):
            await ends.ours.partner.call("joined", where, body)
    await ends.ours.write("as before")
    assert await ends.read() == "as before"


async def test_a_large_frame_among_very_many_is_joined_with_them(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comm_module, "JOINED", 100_000)
    values = [np.full(7, number % 251, "u1") for number in range(2000)]
    values[1000] = np.arange(50_000, dtype="u4")
    await ends.ours.write([to_serialize(value) for value in values])
    async with asyncio.timeout(PATIENCE):
        read = await ends.read()
    assert all(np.array_equal(*pair) for pair in zip(read, values, strict=True))


class Held:
    """Bulk that never comes: how many bytes of it were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []

        async def never(queue: FetchQueue, call: Call, *_: Any) -> None:
            self.asked.append(call.bulk_size)
            await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(FetchQueue, "fetch", never)

    async def begin(
        self, comm: UlnetComm, number: int, eager: int = EAGER, bulk: bytes = b"1", method: str = "part"
    ) -> asyncio.Task[Any]:
        """Announce a frame of which so many bytes are sent eagerly, and the others are not sent."""
        before = len(self.asked)
        place = PART.pack(comm.theirs, number, 0, eager)
        call = asyncio.create_task(comm.partner.call(method, place, bulk))
        await until(lambda: call.done() or len(self.asked) > before)
        return call


async def test_pieces_that_are_sent_eagerly_count_before_their_frame_is_whole(
    make_ends: Callable[..., Awaitable[Ends]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, 5 comms had 2,145 MiB of a process where 256 were allowed, of which none was counted."""
    one, other = await make_ends(), await make_ends()
    endpoint = one.theirs.endpoint
    await until(lambda: not endpoint.taken)
    held = Held(monkeypatch)
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 5 * EAGER)  # of which one partner may have half
    calls = [await held.begin(ends.ours, 9) for ends in (one, other)]
    for ends in (one, other):
        for at in range(0, EAGER, EAGER_PIECE):
            piece = PART.pack(ends.ours.theirs, 9, 0, at) + bytes(EAGER_PIECE)
            await ends.ours.partner.call("eager", piece)
    assert 2 * EAGER <= endpoint.taken < 2 * EAGER + EAGER_PIECE
    assert one.theirs.partner.taken == endpoint.taken
    with pytest.raises(RpcError, match="bytes are announced") as told:
        await (await held.begin(other.ours, 10))
    assert told.value.errno == errno.ENOMEM
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    one.ours.abort()
    other.ours.abort()
    await until(lambda: not endpoint.taken)


@pytest.mark.parametrize("by_the_other_side", [False, True])
async def test_what_a_closed_comm_fetches_ends(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, by_the_other_side: bool
) -> None:
    """Also where who lends it waits on. Before, it was fetched into memory until then, for nobody."""
    endpoint, ours = ends.theirs.endpoint, ends.ours
    await until(lambda: not endpoint.taken)
    held = Held(monkeypatch)
    calls = [await held.begin(ours, 9)]
    joined = ours.partner.call("joined", PART.pack(ours.theirs, 10, 0, 0), b"2")
    calls.append(asyncio.create_task(joined))
    await until(lambda: len(held.asked) == 2)
    if by_the_other_side:
        await ours.partner.call("message", HEAD.pack(ours.theirs, (1 << 64) - 1, 0xFFFFFFFF, 0))
    else:
        await ends.abort()
    for call in calls:
        with pytest.raises(RpcError, match="this comm is closed") as told:
            async with asyncio.timeout(PATIENCE):
                await call
        assert told.value.errno == errno.ENOTCONN
    assert not endpoint.taken


async def test_messages_that_begin_to_arrive_count_whatever_they_have(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a piece of one byte cost 1.3 KiB, of which one byte was counted: 43 GB on 8,192 comms."""
    endpoint, ours = ends.theirs.endpoint, ends.ours
    await until(lambda: not endpoint.taken)

    async def begin(number: int) -> None:
        await ours.partner.call("eager", PART.pack(ours.theirs, number, 0, 0) + b"x")

    for number in range(1, 101):
        await begin(number)
    assert endpoint.taken >= 100 * 1290  # which is what was measured
    await ours.write("before")
    assert await ends.read() == "before"
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 2 * endpoint.taken + 1000)  # half is one partner's
    with pytest.raises(RpcError, match="bytes are announced") as told:
        await begin(101)
    assert told.value.errno == errno.ENOMEM
    end = HEAD.pack(ours.theirs, 102, 0xFFFFFFFF, 0)  # which has room always, once
    await ours.partner.call("message", end)
    with pytest.raises(RpcError, match="ends at message 102 already"):
        await ours.partner.call("message", HEAD.pack(ours.theirs, 103, 0xFFFFFFFF, 0))
    await ends.abort()
    assert not endpoint.taken


async def test_messages_without_frames_count_until_they_are_read(ends: Ends) -> None:
    """Else they could wait without end."""
    endpoint, ours = ends.theirs.endpoint, ends.ours
    await until(lambda: not endpoint.taken)
    first = ends.theirs._next
    for number in range(first, first + 100):
        await ours.partner.call("message", HEAD.pack(ours.theirs, number, 0, 0))
    assert len(ends.theirs._whole) == 100
    assert endpoint.taken == 100 * comm_module.MESSAGE
    await ends.abort()
    assert not endpoint.taken


@pytest.mark.parametrize("what", ["part", "eager"])
async def test_frames_that_came_before_they_are_announced_count_once(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Of what is announced only the rest is still to come."""
    ours, size, endpoint = ends.ours, 20_000, ends.theirs.endpoint
    await until(lambda: not endpoint.taken)
    beside = comm_module.MESSAGE + (comm_module.PIECE if what == "eager" else comm_module.FRAME)
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 2 * (size + beside) + 2000)  # half is one partner's
    place = PART.pack(ours.theirs, 9, 0, 0)
    if what == "eager":
        await ours.partner.call("eager", place + bytes(size))
    else:
        await ours.partner.call("part", place, bytes(size))
    assert endpoint.taken == size + beside
    await ours.partner.call("message", HEAD.pack(ours.theirs, 9, 1, 0) + struct.pack("<Q", size))
    assert endpoint.taken == size + beside + 8 + comm_module.FRAME
    await ends.abort()
    assert not endpoint.taken


async def test_a_frame_that_did_not_come_counts_among_those_that_are_announced(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, endpoint = ends.ours, ends.theirs.endpoint
    await until(lambda: not endpoint.taken)
    held = Held(monkeypatch)
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 70_000)
    call = await held.begin(ours, 9, 0, bytes(20_000))
    call.cancel()
    await asyncio.wait([call])
    await until(lambda: not ends.theirs._fetching)
    with pytest.raises(RpcError, match="40000 bytes are announced"):
        await ours.partner.call("message", HEAD.pack(ours.theirs, 9, 1, 0) + struct.pack("<Q", 40_000))


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("part", 5000 + comm_module.FRAME),
        ("eager", 5000 + comm_module.PIECE),
        ("message", 100 * (8 + comm_module.FRAME)),
    ],
)
async def test_what_a_frame_or_piece_takes_beside_its_own_bytes_must_fit_with_them(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, method: str, wanted: int
) -> None:
    ours, endpoint = ends.ours, ends.theirs.endpoint
    await until(lambda: not endpoint.taken)
    most = 2 * (comm_module.MESSAGE + wanted)  # half is one partner's
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", most - 1)
    place, bulk = PART.pack(ours.theirs, 9, 0, 0), b""
    if method == "part":
        bulk = bytes(5000)
    elif method == "eager":
        place += bytes(5000)
    else:
        place = HEAD.pack(ours.theirs, 9, 100, 0) + bytes(800)
    with pytest.raises(RpcError, match=f" {wanted} bytes are announced"):
        await ours.partner.call(method, place, bulk)
    assert endpoint.taken == comm_module.MESSAGE
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", most)
    await ours.partner.call(method, place, bulk)


@pytest.mark.parametrize("early", [0, 300])
async def test_while_a_frame_is_fetched_what_is_sent_eagerly_of_it_counts(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, early: int
) -> None:
    """Its rest counts as it comes, and pieces that are here already count once."""
    ours, endpoint = ends.ours, ends.theirs.endpoint
    await until(lambda: not endpoint.taken)
    held, taken = Held(monkeypatch), comm_module.MESSAGE + 1000
    if early:
        await ours.partner.call("eager", PART.pack(ours.theirs, 9, 0, 0) + bytes(early))
        taken += comm_module.PIECE
    call = await held.begin(ours, 9, 1000, bytes(50_000))
    assert endpoint.taken == taken
    await ends.abort()
    with pytest.raises(RpcError, match="this comm is closed"):
        await call
    assert not endpoint.taken


@pytest.mark.parametrize("methods", [("part", "part"), ("joined", "joined"), ("part", "joined")])
async def test_of_one_comm_all_that_is_fetched_at_once_counts(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, methods: tuple[str, str]
) -> None:
    """Whatever has come of it."""
    ours, endpoint = ends.ours, ends.theirs.endpoint
    await until(lambda: not endpoint.taken)
    held = Held(monkeypatch)
    monkeypatch.setattr(comm_module, "MEMORY_LIMIT", 209_900)
    calls = [
        await held.begin(ours, number, 0, bytes(size), method)
        for number, (method, size) in enumerate([*((one, 100_000) for one in methods), ("part", 10_000)], 9)
    ]
    assert held.asked == [100_000, 100_000]
    with pytest.raises(RpcError, match="10000 bytes are announced"):
        await calls.pop()
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await until(lambda: not ends.theirs._fetching)
    again = await held.begin(ours, 20, 0, bytes(100_000))
    assert held.asked == [100_000] * 3, "they count no more"
    again.cancel()
    await asyncio.wait([again])
