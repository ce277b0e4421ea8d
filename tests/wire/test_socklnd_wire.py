"""HELLO v1 to v4, frames, cookies, checksum (spec wire-socklnd.md §3, §4)."""

from __future__ import annotations

import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import ANY_NID, Nid
from ulnet.wire.errors import ByteOrder, WireError
from ulnet.wire.socklnd import (
    MAGIC,
    MAGIC_SIZE,
    VERSION_SIZE,
    ConnType,
    FrameType,
    Hello,
    UnknownVersionError,
    checksum,
    hello_byteorder,
    hello_rest_size,
    hello_version,
    inverted_ctype,
    noop_acks,
    pack_frame_header,
    unpack_frame_header,
)
from wire.wire_strategies import byteorders, named_nids, named_small_nids, nids, small_nids, u32, u64

A, B = Nid.parse("192.168.110.12@tcp"), Nid.parse("192.168.110.1@tcp")
# What a kernel node sent (reference 40_raw_probes).
KERNEL_V3 = bytes.fromhex(
    "63697245030000000c6ea8c000000200016ea8c0000002003930000039300000"
    "ac98c64a7407ea1800000000000000000100000000000000"
)
KERNEL_V1 = bytes.fromhex(
    "ed0dbcee010000000c6ea8c00000020000000000393000000400000000000000ac98c64a7407ea1801000000"
) + bytes(28)
KERNEL_REFUSAL = bytes.fromhex(
    "63697245030000000c6ea8c0000002000c6ea8c0000002003930000000000000"
    "ac98c64a7407ea180000000000000000ffffffff00000000"
)

ctypes = st.integers(-1, 3)
ips = st.lists(st.integers(1, 2**32 - 1), max_size=16).map(tuple)


@st.composite
def hellos(draw: st.DrawFn) -> Hello:
    version = draw(st.integers(1, 4))
    src = draw(named_nids if version == 4 else named_small_nids)
    dst = draw(nids if version == 4 else small_nids)
    addresses = () if version == 4 else draw(ips)
    count = draw(u32) if version == 4 else len(addresses)
    order: ByteOrder = "little" if version == 1 else draw(byteorders)
    if version == 1:
        return Hello(
            1, src, ANY_NID, draw(u32), draw(u32), draw(u64), 0, draw(ctypes), count, order, addresses
        )
    numbers = (draw(u32), draw(u32), draw(u64), draw(u64), draw(ctypes))
    return Hello(version, src, dst, *numbers, count, order, addresses)


@given(hellos())
def test_round_trip_in_steps(hello: Hello) -> None:
    stream = hello.pack()
    prefix = stream[: MAGIC_SIZE + VERSION_SIZE]
    assert hello_byteorder(prefix[:MAGIC_SIZE]) == hello.byteorder
    version = hello_version(prefix)
    assert version == hello.version
    fixed = len(prefix) + hello_rest_size(version)
    found = Hello.unpack(stream[:fixed])
    assert len(stream) == fixed + found.ips_size
    assert found.with_ips(stream[fixed:]) == hello


@pytest.mark.parametrize(("version", "size"), [(1, 72), (2, 56), (3, 56), (4, 80)])
def test_sizes(version: int, size: int) -> None:
    assert MAGIC_SIZE + VERSION_SIZE + hello_rest_size(version) == size
    assert len(Hello(version, A, B, 1, 2, 3, 4, 1).pack()) == size


def test_what_kernel_nodes_send() -> None:
    hello = Hello.unpack(KERNEL_V3)
    assert hello == Hello(3, A, B, 12345, 12345, 0x18EA07744AC698AC, 0, ConnType.CONTROL)
    assert hello.pack() == KERNEL_V3
    first = Hello.unpack(KERNEL_V1)
    assert (first.version, first.src_nid, first.dst_nid, first.src_pid) == (1, A, ANY_NID, 12345)
    assert first.pack() == KERNEL_V1
    refused = Hello.unpack(KERNEL_REFUSAL)
    assert refused.ctype == ConnType.NONE and refused.pack() == KERNEL_REFUSAL


def test_a_swapped_hello_has_its_nids_swapped_by_us() -> None:
    hello = Hello(3, A, B, 12345, 0, 1, 2, ConnType.BULK_IN, 0, "big")
    packed = hello.pack()
    assert packed[:16] == bytes.fromhex("4572696300000003 00020000c0a86e0c")
    assert Hello.unpack(packed) == hello


def test_large_nids_are_never_swapped() -> None:
    v6 = Nid.parse("fd00::1@tcp")
    orders: tuple[ByteOrder, ByteOrder] = ("little", "big")
    for byteorder in orders:
        packed = Hello(4, v6, A, 12345, 0, 1, 2, ConnType.CONTROL, 0, byteorder).pack()
        assert packed[8:48] == bytes(v6) + bytes(A)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes are too few for a HELLO"),
        (b"cirE", "too few for the version"),
        (KERNEL_V3[:55], "55 bytes are too few for a HELLO of version 3"),
        (b"\xef\xbe\xad\xde" + bytes(80), "magic deadbeef"),
        (b"\xee\xbc\x0d\xed" + bytes(80), "magic ed0dbcee"),  # v1 is little-endian only
        (KERNEL_V3[:8] + b"\xff" * 8 + KERNEL_V3[16:], "source NID is the wildcard"),
        (KERNEL_V3[:52] + (17).to_bytes(4, "little"), "17 IP addresses; at most 16"),
        (KERNEL_V1[:28] + (68).to_bytes(4, "little") + KERNEL_V1[32:], "17 IP addresses; at most 16"),
        (KERNEL_V1[:28] + (6).to_bytes(4, "little") + KERNEL_V1[32:], "6 bytes behind it"),
        (KERNEL_V1[:24] + (1).to_bytes(4, "little") + KERNEL_V1[28:], "message type 1"),
        (b"cirE\4\0\0\0" + b"\x0d\x02" + bytes(70), "bad NID"),
    ],
)
def test_what_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        Hello.unpack(data)


@pytest.mark.parametrize(
    "prefix",
    [b"cirE\5\0\0\0", b"cirE\1\0\0\0", b"cirE\0\0\0\0", b"Eric\0\0\0\5", b"\xed\x0d\xbc\xee\1\0\1\0"],
)
def test_unknown_versions_are_told_apart(prefix: bytes) -> None:
    with pytest.raises(UnknownVersionError, match="known are"):
        hello_version(prefix)


def test_ip_addresses_are_counted_and_not_zero() -> None:
    hello = Hello.unpack(Hello(3, A, B, 1, 2, 3, 4, 1, 2, "big", (1, 2)).pack())
    assert hello.ips_size == 8
    with pytest.raises(WireError, match="IP address of zero"):
        hello.with_ips(bytes(8))
    with pytest.raises(WireError, match="7 bytes are too few"):
        hello.with_ips(bytes(7))
    assert Hello(4, A, B, 1, 2, 3, 4, 1, 9).ips_size == 0


def test_what_cannot_be_sent() -> None:
    v6 = Nid.parse("fd00::1@tcp")
    for bad in (
        Hello(3, v6, A, 1, 2, 3, 4, 1),
        Hello(5, A, B, 1, 2, 3, 4, 1),
        Hello(3, A, B, -1, 2, 3, 4, 1),
        Hello(3, A, B, 1, 2, 3, 4, 1, nips=2),
    ):
        with pytest.raises(WireError):
            bad.pack()


@given(st.binary(max_size=140))
def test_any_bytes_give_a_hello_or_a_wire_error(data: bytes) -> None:
    starts = (b"", b"cirE", b"Eric", b"cirE\3\0\0\0", b"Eric\0\0\0\4", b"cirE\4\0\0\0", KERNEL_V1[:8])
    for start in starts:
        try:
            hello = Hello.unpack(start + data)
            assert hello.ips_size <= 64
            hello.with_ips(data)
        except WireError:
            pass


def test_connection_types_seen_from_the_other_end() -> None:
    assert [inverted_ctype(kind) for kind in range(-1, 4)] == [-1, 0, 1, 3, 2]
    assert all(kind.inverted().inverted() == kind for kind in ConnType)
    for kind in (-2, 4, 9):
        with pytest.raises(WireError, match=f"connection type {kind}"):
            inverted_ctype(kind)


@given(st.sampled_from(FrameType), u32, u64, u64, byteorders)
def test_frame_header_round_trip(
    kind: FrameType, csum: int, cookie0: int, cookie1: int, byteorder: ByteOrder
) -> None:
    packed = pack_frame_header(kind, csum, cookie0, cookie1, byteorder)
    assert len(packed) == 24
    assert unpack_frame_header(b"x" + packed, 1, byteorder) == (kind, csum, cookie0, cookie1)


@given(st.binary(max_size=30), byteorders)
def test_any_bytes_give_a_frame_header_or_a_wire_error(data: bytes, byteorder: ByteOrder) -> None:
    try:
        kind = unpack_frame_header(data, 0, byteorder)[0]
    except WireError:
        return
    assert kind in set(FrameType)


def test_frames_of_unknown_type_are_refused() -> None:
    with pytest.raises(WireError, match="0xc5"):
        unpack_frame_header((0xC5).to_bytes(4, "little") + bytes(20))
    with pytest.raises(WireError):
        pack_frame_header(0xC0, cookie1=2**64)


@pytest.mark.parametrize(
    ("cookies", "version", "acked"),
    [
        ((0, 5), 3, [5]),
        ((0, 1), 3, []),  # keepalive
        ((0, 1), 4, []),
        ((0, 0), 3, [0]),
        ((0, 1), 2, [1]),
        ((7, 5), 2, [5]),
        ((7, 5), 3, [7, 5]),
        ((5, 9), 3, [5, 6, 7, 8, 9]),
        ((5, 5), 3, [5]),
    ],
)
def test_what_a_noop_acknowledges(cookies: tuple[int, int], version: int, acked: list[int]) -> None:
    assert list(noop_acks(*cookies, version)) == acked


@given(u64, u64)
def test_a_hostile_noop_costs_nothing_until_walked(cookie0: int, cookie1: int) -> None:
    assert len(list(itertools.islice(noop_acks(cookie0, cookie1), 3))) <= 3


@given(st.lists(st.binary(max_size=50), max_size=4))
def test_checksum_is_crc32_without_the_final_inversion(parts: list[bytes]) -> None:
    assert checksum(*parts) == zlib.crc32(b"".join(parts)) ^ 0xFFFFFFFF
    assert checksum(memoryview(b"123456789")) == 0xCBF43926 ^ 0xFFFFFFFF


def test_magic() -> None:
    assert KERNEL_V3[:4] == MAGIC.to_bytes(4, "little")
