"""A process that opens comms without end, or refers to frames of messages that it announced."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from distributed.comm.core import connect
from distributed.protocol.serialize import to_serialize

from support.dask_ends import Ends, Far
from ulnet.dask import comm as comm_module
from ulnet.dask import endpoint as endpoint_module
from ulnet.dask.backend import UlnetConnector
from ulnet.dask.comm import HEAD, PART, UlnetComm
from ulnet.dask.endpoint import present_endpoint
from ulnet.rpc import RpcError

pytestmark = [
    pytest.mark.requirement("ULP"),
    pytest.mark.leaks("the thread in which Dask serializes large messages is kept"),
]

PATIENCE = 60.0  # seconds within which a state is reached


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
