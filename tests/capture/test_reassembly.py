"""Putting TCP segments back in order: any order, repeats, overlaps, holes, wrap-around, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.capture.reassembly import Budget, Chunk, HalfStream


def stream_of(chunks: list[Chunk]) -> bytes:
    return b"".join(b"?" * chunk.missing + chunk.data for chunk in chunks)


def started(seq: int = 1000, budget: Budget | None = None) -> HalfStream:
    half = HalfStream(budget or Budget())
    half.start(seq)
    return half


@given(st.binary(min_size=1, max_size=300), st.integers(0, 2**32 - 1), st.data())
def test_every_byte_comes_once_and_in_order(data: bytes, first: int, choose: st.DataObject) -> None:
    """Segments that overlap, repeat and arrive in any order, but leave no hole."""
    cuts = sorted(choose.draw(st.sets(st.integers(0, len(data)), max_size=8)) | {0, len(data)})
    segments = [(cuts[i], cuts[j]) for i in range(len(cuts) - 1) for j in (i + 1, min(i + 2, len(cuts) - 1))]
    budget = Budget()
    half = started(first, budget)
    got = b""
    for start, end in choose.draw(st.permutations(segments)):
        got += stream_of(half.feed((first + start) % 2**32, data[start:end]))
    assert got == data
    assert budget.used == 0
    assert half.reached((first + len(data)) % 2**32)


@given(st.lists(st.tuples(st.integers(-400, 400), st.binary(max_size=40), st.integers(0, 20)), max_size=30))
def test_what_arrives_is_never_out_of_place(segments: list[tuple[int, bytes, int]]) -> None:
    """Whatever a capture holds, each byte given is the byte sent at that place."""
    truth = {place: place % 251 for place in range(-500, 1000)}
    budget = Budget()
    half = started(2**32 - 50, budget)
    at = 0
    chunks: list[Chunk] = []
    for offset, shape, cut in segments:
        data = bytes(truth[offset + i] for i in range(len(shape)))
        chunks += half.feed((2**32 - 50 + offset) % 2**32, data, cut)
    for chunk in [*chunks, *half.flush()]:
        at += chunk.missing
        assert chunk.data == bytes(truth[at + i] for i in range(len(chunk.data)))
        at += len(chunk.data)
    assert budget.used == 0


def test_a_stream_without_start_begins_with_its_first_bytes() -> None:
    half = HalfStream(Budget())
    assert half.acknowledged(77) == [] and not half.reached(0)
    assert half.feed(500, b"") == []
    assert stream_of(half.feed(600, b"abc")) == b"abc"
    assert half.feed(599, b"x") == []  # a TCP keepalive's old byte
    assert stream_of(half.feed(603, b"def")) == b"def"


def test_a_hole_is_given_up_when_the_other_end_has_its_bytes() -> None:
    half = started()
    assert half.feed(1010, b"later") == []
    assert half.acknowledged(1009) == []
    assert half.acknowledged(1015) == [Chunk(10, b""), Chunk(0, b"later")]
    assert half.feed(1000, b"too late!!") == []


def test_a_hole_known_to_be_one_does_not_wait() -> None:
    half = started()
    assert half.acknowledged(1020) == []
    assert stream_of(half.feed(1003, b"abc")) == b"???abc"


def test_two_holes() -> None:
    half = started()
    assert half.feed(1006, b"f") == half.feed(1002, b"b") == []
    assert stream_of(half.flush()) == b"??b???f"


def test_bytes_that_the_capture_cut_off_are_missing_at_once() -> None:
    half = started()
    assert half.feed(1000, b"ab", 3) == [Chunk(0, b"ab"), Chunk(3, b"")]
    assert half.feed(1002, b"", 3) == []
    assert half.feed(1001, b"", 6) == [Chunk(2, b"")]
    assert stream_of(half.feed(1007, b"z")) == b"z"


@pytest.mark.parametrize(("size", "count"), [(65536, 80), (1, 5000)])
def test_what_waits_behind_a_hole_is_bounded(size: int, count: int) -> None:
    budget = Budget()
    half = started(0, budget)
    given_up = 0
    for index in range(count):
        given_up += sum(chunk.missing for chunk in half.feed(1000 + index * size, bytes(size)))
        assert budget.used <= (4 << 20) + size
    assert given_up == 1000


def test_all_directions_share_one_bound() -> None:
    budget = Budget(limit=10)
    one, two = started(0, budget), started(0, budget)
    assert one.feed(5, b"12345678") == []
    assert stream_of(two.feed(5, b"abc")) == b"?????abc"
    assert budget.used == 8
