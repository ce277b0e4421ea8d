"""Link layers, IPv4 and IPv6 down to TCP and UDP."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.capture.packet import TCP, UDP, Endpoint, ip_payload, knows_link

IP4 = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 24, 0, 0x4000, 64, TCP, 0, b"\x0a\0\0\1", b"\x0a\0\0\2") + b"abcd"
SRC6, DST6 = bytes(15) + b"\1", bytes(15) + b"\2"


def ip6(next_header: int, payload: bytes) -> bytes:
    return struct.pack(">IHBB16s16s", 6 << 28, len(payload), next_header, 64, SRC6, DST6) + payload


@pytest.mark.parametrize(
    ("link_type", "head"),
    [
        (1, bytes(12) + b"\x08\x00"),
        (1, bytes(12) + b"\x81\x00\x00\x05\x08\x00"),
        (1, bytes(12) + b"\x88\xa8\x00\x05\x81\x00\x00\x06\x08\x00"),
        (113, bytes(14) + b"\x08\x00"),
        (113, bytes(14) + b"\x81\x00\x00\x05\x08\x00"),
        (276, b"\x08\x00" + bytes(18)),
        (101, b""),
        (12, b""),
        (228, b""),
        (0, b"\2\0\0\0"),
        (108, b"\0\0\0\2"),
    ],
)
def test_every_link(link_type: int, head: bytes) -> None:
    assert knows_link(link_type)
    found = ip_payload(link_type, head + IP4 + b"padding")
    assert found is not None
    assert (found.src, found.dst, found.protocol, found.data, found.cut) == (
        b"\x0a\0\0\1",
        b"\x0a\0\0\2",
        TCP,
        b"abcd",
        0,
    )


def test_what_carries_no_ip() -> None:
    assert not knows_link(147)
    assert ip_payload(147, IP4) is None
    assert ip_payload(1, bytes(12) + b"\x08\x06" + IP4) is None  # ARP
    assert ip_payload(276, b"\x08\x06" + bytes(18) + IP4) is None
    assert ip_payload(101, b"") is None
    assert ip_payload(101, b"\x75" + IP4[1:]) is None


def test_ipv4_options_fragments_and_offload() -> None:
    options = b"\x46" + IP4[1:3] + b"\x1c" + IP4[4:20] + b"OPTS" + b"abcd"
    found = ip_payload(101, options)
    assert found is not None and found.data == b"abcd"
    assert ip_payload(101, IP4[:6] + b"\x20\x00" + IP4[8:]) is None  # more fragments follow
    assert ip_payload(101, IP4[:6] + b"\x00\x10" + IP4[8:]) is None
    assert ip_payload(101, IP4[:2] + b"\0\x05" + IP4[4:]) is None  # shorter than its own header
    assert ip_payload(101, b"\x44" + IP4[1:]) is None
    unfilled = ip_payload(101, IP4[:2] + b"\0\0" + IP4[4:], cut=7)
    assert unfilled is not None and (unfilled.data, unfilled.cut) == (b"abcd", 7)


def test_a_cut_packet_says_how_much_is_missing() -> None:
    found = ip_payload(101, IP4[:-1], cut=1)
    assert found is not None and (found.data, found.cut) == (b"abc", 1)


def test_ipv6_extension_headers() -> None:
    hop_by_hop = bytes([60, 1]) + bytes(14)
    destination = bytes([51, 0]) + bytes(6)
    authentication = bytes([44, 2]) + bytes(14)
    fragment = bytes([UDP, 0, 0, 0]) + bytes(4)  # a whole packet in one fragment
    found = ip_payload(229, ip6(0, hop_by_hop + destination + authentication + fragment + b"data"))
    assert found is not None
    assert (found.src, found.dst, found.protocol, found.data) == (SRC6, DST6, UDP, b"data")
    assert ip_payload(229, ip6(44, bytes([UDP, 0, 0, 1]) + bytes(12))) is None
    assert ip_payload(229, ip6(0, b"\x3b\xff" + bytes(4))) is None
    assert ip_payload(229, ip6(TCP, b"x")[:39]) is None


@given(st.sampled_from([0, 1, 12, 101, 108, 113, 228, 229, 276]), st.binary(max_size=120), st.integers(0, 9))
def test_any_packet(link_type: int, data: bytes, cut: int) -> None:
    for start in (b"", bytes(12) + b"\x86\xdd", b"\x60", b"\x45"):
        found = ip_payload(link_type, start + data, cut)
        assert found is None or (found.cut >= 0 and len(found.data) <= len(start + data))


def test_endpoints_as_text() -> None:
    assert str(Endpoint(b"\x0a\0\0\1", 988)) == "10.0.0.1:988"
    assert str(Endpoint(DST6, 988)) == "[::2]:988"
