"""The LNet header, 72 and 96 bytes (spec wire-lnet.md §4)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import Nid
from ulnet.wire import (
    HEADER_SIZE,
    LARGE_HEADER_SIZE,
    NO_WMD,
    Header,
    MsgType,
    WireError,
    pack_header,
    unpack_header,
)
from wire.wire_strategies import large_nids, nids, small_nids, u32, u64

A, B = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp1")
WMD = bytes(range(16))


@st.composite
def headers(draw: st.DrawFn, nid: st.SearchStrategy[Nid]) -> Header:
    kind = draw(st.sampled_from([MsgType.ACK, MsgType.PUT, MsgType.GET, MsgType.REPLY]))
    hdr = Header(kind, draw(nid), draw(nid), draw(u32), draw(u32), draw(u32))
    hdr.wmd = draw(st.binary(min_size=16, max_size=16))
    if kind != MsgType.REPLY:
        hdr.match_bits = draw(u64)
    if kind in (MsgType.PUT, MsgType.GET):
        hdr.portal, hdr.offset = draw(u32), draw(u32)
    if kind in (MsgType.ACK, MsgType.GET):
        hdr.length = draw(u32)
    if kind == MsgType.PUT:
        hdr.hdr_data = draw(u64)
    return hdr


@given(headers(small_nids), st.integers(0, 5))
def test_72_bytes_round_trip(hdr: Header, offset: int) -> None:
    packed = pack_header(hdr, large=False)
    assert len(packed) == HEADER_SIZE
    assert unpack_header(bytes(offset) + packed, offset) == hdr


@given(headers(nids))
def test_96_bytes_round_trip(hdr: Header) -> None:
    packed = pack_header(hdr, large=True)
    assert len(packed) == LARGE_HEADER_SIZE
    assert unpack_header(memoryview(bytearray(packed)), 0, large=True) == hdr


@pytest.mark.parametrize(
    ("hdr", "union"),
    [
        (Header(MsgType.ACK, wmd=WMD, match_bits=7, length=9), {16: ("Q", 7), 24: ("I", 9)}),
        (
            Header(MsgType.PUT, wmd=WMD, match_bits=7, hdr_data=8, portal=3, offset=4),
            {16: ("Q", 7), 24: ("Q", 8), 32: ("I", 3), 36: ("I", 4)},
        ),
        (
            Header(MsgType.GET, wmd=WMD, match_bits=7, portal=3, offset=4, length=9),
            {16: ("Q", 7), 24: ("I", 3), 28: ("I", 4), 32: ("I", 9)},
        ),
        (Header(MsgType.REPLY, wmd=WMD), {}),
    ],
    ids=["ACK", "PUT", "GET", "REPLY"],
)
@pytest.mark.parametrize("large", [False, True])
def test_every_field_is_where_the_specification_puts_it(
    hdr: Header, union: dict[int, tuple[str, int]], large: bool
) -> None:
    hdr.dest_nid, hdr.src_nid, hdr.dest_pid, hdr.src_pid, hdr.payload_length = A, B, 11, 12, 13
    packed = pack_header(hdr, large)
    expected = bytearray(LARGE_HEADER_SIZE if large else HEADER_SIZE)
    if large:
        expected[0:40] = bytes(A) + bytes(B)
    else:
        struct.pack_into("<QQ", expected, 0, A.nid4, B.nid4)
    at = 40 if large else 16
    struct.pack_into("<IIII", expected, at, 11, 12, hdr.type, 13)
    expected[at + 16 : at + 32] = WMD
    for relative, (form, value) in union.items():
        struct.pack_into("<" + form, expected, at + 16 + relative, value)
    assert packed == bytes(expected)


@given(st.binary(max_size=120), st.integers(0, 8), st.booleans())
def test_any_bytes_give_a_header_or_a_wire_error(data: bytes, offset: int, large: bool) -> None:
    try:
        hdr = unpack_header(data, offset, large)
    except WireError:
        return
    assert len(data) - offset >= (LARGE_HEADER_SIZE if large else HEADER_SIZE)
    assert repr(hdr)


@given(st.binary(min_size=72, max_size=72))
def test_any_72_bytes_give_a_header(data: bytes) -> None:
    hdr = unpack_header(data)
    assert hdr.type == int.from_bytes(data[24:28], "little")
    if hdr.type <= MsgType.REPLY:
        assert unpack_header(pack_header(hdr, large=False)) == hdr


@pytest.mark.parametrize("kind", [MsgType.HELLO, 5, 9, 0x100, 0x02000000, 0xFFFFFFFF])
@pytest.mark.parametrize("large", [False, True])
def test_unknown_types_keep_their_number_and_nothing_of_the_union(kind: int, large: bool) -> None:
    raw = bytearray(pack_header(Header(MsgType.PUT, A, B, 1, 2, 3, WMD, 4, 5, 6, 7), large))
    at = 48 if large else 24
    raw[at : at + 4] = kind.to_bytes(4, "little")
    assert unpack_header(raw, 0, large) == Header(kind, A, B, 1, 2, 3)
    with pytest.raises(WireError, match="cannot be sent"):
        pack_header(Header(kind, A, B), large)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "field", ["dest_pid", "payload_length", "match_bits", "hdr_data", "portal", "offset"]
)
def test_a_field_that_does_not_fit_is_a_wire_error(field: str, large: bool) -> None:
    hdr = Header(MsgType.PUT, A, B)
    for value in (-1, 2**64):
        setattr(hdr, field, value)
        with pytest.raises(WireError, match="does not fit"):
            pack_header(hdr, large)


@given(large_nids)
def test_a_large_nid_needs_the_large_header(nid: Nid) -> None:
    with pytest.raises(WireError, match="needs a connection with large NIDs"):
        pack_header(Header(MsgType.REPLY, nid, A), large=False)


def test_the_large_header_refuses_an_address_that_is_too_long() -> None:
    raw = bytearray(pack_header(Header(MsgType.REPLY, A, B), large=True))
    raw[20] = 13
    with pytest.raises(WireError, match="bad NID"):
        unpack_header(raw, 0, large=True)


def test_headers_compare_by_their_fields() -> None:
    assert Header(MsgType.PUT, A, B) == Header(MsgType.PUT, A, B)
    assert Header(MsgType.PUT, A, B) != Header(MsgType.PUT, A, A)
    assert Header(MsgType.PUT, A, B) != "PUT"
    assert Header(MsgType.PUT).wmd == NO_WMD
