"""Frames of requests and replies: what is packed comes back, and hostile bytes are refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import Nid
from ulnet.wire.errors import WireError
from ulnet.wire.rpc import (
    BODY,
    HEAD_SIZE,
    MAX_BATCH,
    MAX_BULK,
    SINK,
    SOURCE,
    Bulk,
    CallFrame,
    Chunk,
    Connect,
    Connected,
    Frame,
    Kind,
    Note,
    OtherVersion,
    Refused,
    Reply,
    batch,
    call_overhead,
    frames_in,
    is_batch,
    session_of,
    unpack,
)

pytestmark = pytest.mark.requirement("ULP")

u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
HEAD: dict[str, Any] = {"session": u64, "slot": u16, "number": u32, "attempt": u16, "answer_to": u64}
data = st.binary(max_size=100)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
bits = st.integers(0, (1 << 48) - 1).map(lambda number: number << 16)
lengths = st.integers(0, MAX_BULK)
nids = st.lists(st.sampled_from([Nid.parse("10.0.0.1@tcp"), Nid.parse("fd00::1@tcp1")]), max_size=16).map(
    tuple
)
sinks = st.none() | st.builds(Bulk, bits, lengths)
sources = st.none() | st.builds(Bulk, bits, lengths, u32)
frames: st.SearchStrategy[Any] = st.one_of(
    st.builds(Connect, **HEAD, slots=u16, largest=u32, token=u64, knows=u16, nids=nids),
    st.builds(Connected, **HEAD, slots=u16, largest=u32, incarnation=u64, token=u64, knows=u16),
    st.builds(
        CallFrame,
        **HEAD,
        method=names,
        data=data,
        left=u32,
        patience=u32,
        credit=u32,
        flags=st.sampled_from([0, 8, 16, 32, 56, 80, 128]),
        sink=sinks,
        source=sources,
    ),
    st.builds(Reply, **HEAD, status=u32, chunks=u32, service_us=u32, checksum=u32, pushed=u64, data=data),
    st.builds(Chunk, **HEAD, index=u32, data=data),
    st.builds(Refused, **HEAD, errno=u32, text=st.text(st.characters(exclude_categories=["Cs"]))),
    st.builds(Note, **HEAD, kind=st.sampled_from([Kind.CREDIT, Kind.WORKING, Kind.BUSY]), value=u32),
    st.builds(Note, **HEAD, kind=st.sampled_from([Kind.CANCEL, Kind.CLOSE])),
)


def plain(frame: Frame) -> dict[str, Any]:
    """Its fields, with data as bytes and without the flags that the bulk tells."""
    found = {name: getattr(frame, name) for kind in type(frame).__mro__ for name in _slots(kind)}
    if "data" in found:
        found["data"] = bytes(found["data"])
    if "flags" in found:
        found["flags"] &= ~(SINK | SOURCE)
    return found


def _slots(kind: type) -> tuple[str, ...]:
    return tuple(kind.__dict__.get("__slots__", ()))


@given(frames)
def test_what_is_packed_comes_back(frame: Any) -> None:
    read = unpack(frame.pack())
    assert type(read) is type(frame)
    assert plain(read) == plain(frame)


@given(frames, st.data())
def test_a_frame_that_is_cut_off_is_refused_or_read_as_a_shorter_one(frame: Any, draw: st.DataObject) -> None:
    raw = frame.pack()
    cut = raw[: draw.draw(st.integers(0, len(raw)))]
    try:
        read = unpack(cut)
    except WireError:
        return
    assert type(read) is type(frame)


@given(frames, st.data())
def test_changed_bytes_raise_nothing_else(frame: Any, draw: st.DataObject) -> None:
    raw = bytearray(frame.pack())
    for _ in range(draw.draw(st.integers(1, 4))):
        raw[draw.draw(st.integers(0, len(raw) - 1))] = draw.draw(st.integers(0, 255))
    try:
        unpack(raw)
    except WireError:
        pass


@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_else(raw: bytes) -> None:
    try:
        unpack(struct.pack("<HB", 0x7255, 1) + raw)
        unpack(raw)
    except WireError:
        pass


def test_lies_about_lengths_are_refused() -> None:
    call = bytearray(CallFrame(method="m", data=b"x").pack())
    call[44] = 3  # the name is said to be longer than all that follows
    with pytest.raises(WireError, match="whole name"):
        unpack(call)
    with pytest.raises(WireError, match="bulk of"):
        unpack(CallFrame(method="m", sink=Bulk(0, MAX_BULK + 1)).pack())
    with pytest.raises(WireError, match="no room for its regions"):
        unpack(CallFrame(method="m", sink=Bulk(1, 5)).pack())
    with pytest.raises(WireError, match="has none"):
        unpack(CallFrame(method="m", flags=BODY).pack())
    bad = bytearray(CallFrame(method="m").pack())
    bad[-1] = 0xFF
    with pytest.raises(WireError, match="UTF-8"):
        unpack(bad)


@pytest.mark.parametrize("method", ["", "x" * 256, "\ud800"])
def test_names_that_cannot_be_sent_are_refused(method: str) -> None:
    with pytest.raises(WireError, match="1 to 255 bytes"):
        CallFrame(method=method).pack()


def test_of_another_version_the_head_is_read() -> None:
    raw = bytearray(CallFrame(session=5, slot=1, number=2, attempt=3, answer_to=4, method="m").pack())
    raw[2] = 9
    assert unpack(raw) == OtherVersion(5, 1, 2, 3, 4, 9)
    with pytest.raises(WireError, match="magic"):
        unpack(bytes(HEAD_SIZE))
    with pytest.raises(WireError, match="nobody knows"):
        unpack(struct.pack("<HBB", 0x7255, 1, 99) + bytes(HEAD_SIZE))


@pytest.mark.parametrize(("sink", "source"), [(False, False), (True, False), (True, True)])
def test_the_overhead_is_what_a_frame_has_beside_its_data(sink: bool, source: bool) -> None:
    bulk = Bulk(0, 5)
    frame = CallFrame(
        method="läse", data=b"12345", sink=bulk if sink else None, source=bulk if source else None
    )
    assert len(frame.pack()) == call_overhead("läse", sink=sink, source=source) + 5


@given(st.lists(frames.map(lambda frame: frame.pack()), min_size=1, max_size=8), u64)
def test_a_batch_gives_back_its_frames(raws: list[bytes], session: int) -> None:
    message = batch(session, raws)
    assert is_batch(message)
    assert session_of(message) == session
    assert [bytes(raw) for raw in frames_in(message)] == raws
    assert [bytes(raw) for raw in frames_in(memoryview(message))] == raws
    assert [bytes(raw) for raw in frames_in(raws[0])] == raws[:1]


@given(st.lists(frames.map(lambda frame: frame.pack()), max_size=4), st.data())
def test_a_batch_that_is_cut_or_changed_raises_nothing_else(raws: list[bytes], draw: st.DataObject) -> None:
    message = bytearray(batch(1, raws))
    for _ in range(draw.draw(st.integers(0, 4))):
        message[draw.draw(st.integers(0, len(message) - 1))] = draw.draw(st.integers(0, 255))
    try:
        for raw in frames_in(message[: draw.draw(st.integers(0, len(message)))]):
            unpack(raw)
    except WireError:
        pass


def test_lies_of_batches_are_refused() -> None:
    message = bytearray(batch(1, [b"one", b"two"]))
    for cut in (5, 20, 32, 39, len(message) - 1):
        with pytest.raises(WireError, match="batch"):
            frames_in(message[:cut])
    message[32:36] = (1 << 31).to_bytes(4, "little")
    with pytest.raises(WireError, match="cut off"):
        frames_in(message)
    for count in (0, MAX_BATCH + 1, 65_535):
        with pytest.raises(WireError, match="1 to 16"):
            frames_in(batch(1, [b""] * count))
    with pytest.raises(WireError, match="a batch itself"):
        frames_in(batch(1, [batch(1, [b"one"])]))
    with pytest.raises(WireError, match="or it is a batch"):
        unpack(batch(1, [b"one"]))
