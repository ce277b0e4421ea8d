"""The connection request, both versions and byte orders (spec wire-socklnd.md §2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import Nid
from ulnet.wire.acceptor import (
    MAGIC_SIZE,
    VERSION_SIZE,
    AcceptorError,
    ConnRequest,
    refusal,
    request_byteorder,
    request_rest_size,
    request_version,
)
from ulnet.wire.errors import ByteOrder, WireError
from wire.wire_strategies import byteorders, nids, small_nids

A = Nid.parse("192.168.110.12@tcp")
V6 = Nid.parse("fd00::1@tcp")
# What a kernel node answered to a version it does not know (reference 40_raw_probes).
KERNEL_REFUSAL = bytes.fromhex("0071ceac010000000000000000000000")


@given(small_nids, byteorders)
def test_version_1_round_trip(nid: Nid, byteorder: ByteOrder) -> None:
    packed = ConnRequest(1, nid, byteorder).pack()
    assert len(packed) == 16
    assert ConnRequest.unpack(packed + b"HELLO") == ConnRequest(1, nid, byteorder)


@given(nids, byteorders)
def test_version_2_round_trip(nid: Nid, byteorder: ByteOrder) -> None:
    packed = ConnRequest(2, nid, byteorder).pack()
    assert len(packed) == 28 and packed[8:] == nid  # a large NID is never swapped
    assert ConnRequest.unpack(packed) == ConnRequest(2, nid, byteorder)


@given(nids, byteorders)
def test_reading_in_steps_takes_exactly_the_request(nid: Nid, byteorder: ByteOrder) -> None:
    request = ConnRequest(ConnRequest.to(nid).version, nid, byteorder)
    packed = request.pack()
    magic, packed = packed[:MAGIC_SIZE], packed[MAGIC_SIZE:]
    found = request_byteorder(magic)
    version = request_version(packed[:VERSION_SIZE], found)
    rest = packed[VERSION_SIZE:]
    assert len(rest) == request_rest_size(version)
    assert ConnRequest.from_rest(version, rest, found) == request


def test_the_bytes() -> None:
    assert ConnRequest.to(A).pack() == bytes.fromhex("0071ceac 01000000 0c6ea8c000000200")
    assert ConnRequest(1, A, "big").pack() == bytes.fromhex("acce7100 00000001 00020000c0a86e0c")
    assert ConnRequest.to(V6).pack() == bytes.fromhex("0071ceac 02000000") + V6


def test_refusal_is_the_kernels() -> None:
    assert refusal() == KERNEL_REFUSAL
    assert ConnRequest.unpack(refusal("big")).byteorder == "big"


@pytest.mark.parametrize(
    ("data", "words", "reply"),
    [
        ("efbeadde", "magic deadbeef", b""),
        ("ed0dbcee", "magic eebc0ded", b""),
        ("63697245", "a HELLO came", KERNEL_REFUSAL),
        ("45726963", "a HELLO came", KERNEL_REFUSAL),
        ("0071ceac07000000", "version 7; known are 1 and 2", KERNEL_REFUSAL),
        ("acce710000000003", "version 3", KERNEL_REFUSAL),
        ("0071ce", "3 bytes are too few", b""),
        ("0071ceac0100", "too few for the version", b""),
        ("0071ceac010000000102", "too few for the NID", b""),
        ("0071ceac02000000" + "0d" + "02" * 19, "bad NID", b""),
    ],
)
def test_what_is_refused_and_how(data: str, words: str, reply: bytes) -> None:
    with pytest.raises(AcceptorError, match=words) as caught:
        ConnRequest.unpack(bytes.fromhex(data))
    assert caught.value.reply == reply


@given(st.binary(max_size=40))
def test_any_bytes_give_a_request_or_a_wire_error(data: bytes) -> None:
    for prefix in (b"", b"\x00\x71\xce\xac", b"\xac\xce\x71\x00\0\0\0\2"):
        try:
            ConnRequest.unpack(prefix + data)
        except WireError:
            pass


def test_what_cannot_be_sent() -> None:
    with pytest.raises(WireError, match="large NIDs"):
        ConnRequest(1, V6).pack()
    with pytest.raises(WireError, match="1 or 2, not 3"):
        ConnRequest(3, A).pack()
