"""Ping info: features, entries of both sizes, both byte orders, metadata (spec wire-lnet.md §5)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import LO_NID, Nid
from ulnet.wire.errors import ByteOrder, WireError
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo, info_size
from wire.wire_strategies import byteorders, large_nids, named_small_nids, u32

A, B = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.1.1@tcp")
V6 = Nid.parse("fd00::1@tcp")
CLIENT = Feature.NI_STATUS | Feature.RTE_DISABLED | Feature.MULTI_RAIL | Feature.DISCOVERY


@st.composite
def infos(draw: st.DrawFn) -> PingInfo:
    no_efa = named_small_nids.filter(lambda nid: nid.net.type != 18)
    small = draw(st.lists(st.builds(NiEntry, no_efa, u32), max_size=6))
    large = draw(
        st.lists(st.builds(NiEntry, large_nids.filter(lambda nid: nid.net.type != 18), u32), max_size=4)
    )
    features = draw(st.integers(0, 0xFF)) | Feature.NI_STATUS
    if large:
        features |= Feature.LARGE_ADDR
    metadata = b""
    if features & Feature.METADATA:
        count = draw(st.integers(0, 3))
        metadata = count.to_bytes(4, "little") + draw(st.binary(min_size=40 * count, max_size=40 * count))
    return PingInfo(features, draw(u32), draw(u32), small + large, metadata)


@given(infos(), byteorders)
def test_round_trip_in_either_byte_order(info: PingInfo, byteorder: ByteOrder) -> None:
    if byteorder == "big" and info.metadata:
        info.metadata = info.metadata[3::-1] + info.metadata[4:]
    packed = info.pack(byteorder)
    assert PingInfo.unpack(packed) == info
    assert PingInfo.unpack(packed).pack(byteorder) == packed
    assert info_size(packed) == len(packed) - len(info.metadata)


@given(infos(), st.data())
def test_cut_anywhere_gives_what_is_whole_or_a_wire_error(info: PingInfo, data: st.DataObject) -> None:
    packed = info.pack()
    size = len(packed) - len(info.metadata)
    cut = data.draw(st.integers(0, len(packed)))
    try:
        part = PingInfo.unpack(packed[:cut])
    except WireError:
        assert cut < 32
        return
    assert part.truncated == (cut < size)
    assert part.entries == info.entries[: len(part.entries)]


@given(st.binary(max_size=200))
def test_any_bytes_give_info_or_a_wire_error(data: bytes) -> None:
    for prefix in (
        b"",
        b"gnip",
        b"ping",
        b"gnip\x3e\0\0\0\0\0\0\0\x02\0\0\0" + LO_NID.nid4.to_bytes(8, "little"),
    ):
        for decode in (PingInfo.unpack, info_size):
            try:
                decode(prefix + data)
            except WireError:
                pass


@given(infos(), st.data())
def test_damage_gives_info_or_a_wire_error(info: PingInfo, data: st.DataObject) -> None:
    packed = bytearray(info.pack())
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = PingInfo.unpack(packed)
    except WireError:
        return
    assert len(found.entries) <= len(packed) // 8


def test_the_bytes_of_an_ordinary_client() -> None:
    info = PingInfo(CLIENT, sequence=3, entries=[NiEntry(A), NiEntry(B, NiStatus.DOWN)])
    assert info.pack() == (
        struct.pack("<IIII", 0x70696E67, 0x1E, 12345, 3)
        + struct.pack("<QII", LO_NID.nid4, 3, 0)
        + struct.pack("<QII", A.nid4, 0x15AAC0DE, 0)
        + struct.pack("<QII", B.nid4, 0xDEADFACE, 0)
    )
    assert info.primary == A


def test_the_bytes_of_large_entries() -> None:
    features = CLIENT | Feature.LARGE_ADDR | Feature.PRIMARY_LARGE
    packed = PingInfo(features, sequence=5, entries=[NiEntry(V6), NiEntry(A)]).pack()
    assert len(packed) == 16 + 2 * 16 + 24 == info_size(packed)
    assert packed[28:32] == (72).to_bytes(4, "little")  # the size, in entry 0
    assert packed[-24:] == struct.pack("<I", NiStatus.UP) + V6
    info = PingInfo.unpack(packed)
    assert [entry.nid for entry in info.entries] == [A, V6]  # 64-bit ones first
    assert info.primary == V6


def test_primary_follows_the_feature() -> None:
    assert PingInfo(CLIENT | Feature.LARGE_ADDR, entries=[NiEntry(A), NiEntry(V6)]).primary == A
    assert PingInfo(CLIENT).primary is None


def test_large_entries_need_their_feature() -> None:
    with pytest.raises(WireError, match="LARGE_ADDR"):
        PingInfo(CLIENT, entries=[NiEntry(V6)]).pack()


def test_metadata_is_taken_for_granted_with_efa() -> None:
    efa = Nid.parse("10.0.0.9@efa")
    block = (1).to_bytes(4, "little") + bytes(range(40))
    info = PingInfo.unpack(PingInfo(CLIENT, entries=[NiEntry(efa)]).pack() + block + b"more")
    assert info.metadata == block
    assert PingInfo.unpack(info.pack()) == info


def test_metadata_that_claims_too_much_is_cut_to_whole_records() -> None:
    info = PingInfo(CLIENT | Feature.METADATA, entries=[NiEntry(A)])
    packed = info.pack() + (0xFFFFFFFF).to_bytes(4, "little") + bytes(100)
    assert len(PingInfo.unpack(packed).metadata) == 4 + 2 * 40


def good() -> bytearray:
    return bytearray(PingInfo(CLIENT, entries=[NiEntry(A)]).pack())


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (0, 0x12345678, "magic 12345678"),
        (4, 0x1C, "without NI status"),
        (12, 0, "0 NIs"),
        (12, 5000, "5000 NIs; 1 to 4096"),
        (22, 2, "not 0@lo"),
    ],
)
def test_what_is_refused(at: int, value: int, words: str) -> None:
    packed = good()
    packed[at : at + 4] = value.to_bytes(4, "little")
    with pytest.raises(WireError, match=words):
        PingInfo.unpack(packed)


def test_too_many_large_entries_are_left_out() -> None:
    features = CLIENT | Feature.LARGE_ADDR
    packed = PingInfo(features, entries=[NiEntry(V6)] * 50).pack()
    assert len(PingInfo.unpack(packed, max_nis=10).entries) == 10


def test_large_entries_with_impossible_addresses_are_passed_over() -> None:
    features = CLIENT | Feature.LARGE_ADDR
    packed = bytearray(PingInfo(features, entries=[NiEntry(V6), NiEntry(Nid.parse("fd00::2"))]).pack())
    packed[32 + 4] = 16  # the first one's address: 20 bytes, so its entry is four bytes longer
    packed[28:32] = (len(packed) + 4).to_bytes(4, "little")
    packed[56:56] = bytes(4)
    assert [str(entry.nid) for entry in PingInfo.unpack(packed).entries] == ["fd00::2@tcp"]


def test_a_reply_that_did_not_fit_says_so_and_how_much_is_needed() -> None:
    packed = PingInfo(CLIENT, entries=[NiEntry(A), NiEntry(B)]).pack()
    info = PingInfo.unpack(packed[:40])
    assert info.truncated and info.entries == []
    assert info_size(packed[:32]) == 64
    assert PingInfo.unpack(packed[:48]).entries == [NiEntry(A)]
    with pytest.raises(WireError, match="too few"):
        PingInfo.unpack(packed[:20])  # as the probe that asked for 20 bytes got
