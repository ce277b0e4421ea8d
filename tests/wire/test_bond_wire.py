"""Bonding messages: both byte orders, hostile bytes (docs/wire-bond.md)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import ANY_NID, LO_NID, Net, NetType, Nid
from ulnet.wire.bond import (
    BEACON_SIZE,
    MATCH_BITS,
    MAX_SLAVES,
    MAX_WEIGHT,
    Answer,
    Beacon,
    BondHello,
    Capability,
    Configuration,
    Kind,
    Mode,
    Register,
    Resolve,
    SlaveEntry,
    SlaveStatus,
    kind_of,
)
from ulnet.wire.errors import ByteOrder, WireError
from ulnet.wire.lnet import Header, MsgType
from wire.wire_strategies import byteorders, named_nids, u32, u64

SLAVES = (
    SlaveEntry(Nid.parse("10.0.0.11@tcp"), 3),
    SlaveEntry(Nid.parse("10.1.0.11@tcp1"), 1, SlaveStatus.DOWN),
)
BOND = Nid.parse("10.0.0.11@bond0")
CONFIG = Configuration(BOND, SLAVES, Mode.LOADBALANCE, 2, False, 1)

stamps = st.integers(1, 2**32 - 1)
slave_nids = named_nids.filter(lambda nid: nid.net.type not in (NetType.LO, NetType.BOND))


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    nids = draw(st.lists(slave_nids, min_size=1, max_size=8, unique=True))
    slaves = tuple(
        SlaveEntry(nid, draw(st.integers(0, MAX_WEIGHT)), draw(st.integers(0, 255))) for nid in nids
    )
    return Configuration(
        Nid.of(Net.of(NetType.BOND, draw(st.integers(0, 0xFFFF))), nids[0].address),
        slaves,
        draw(st.sampled_from(Mode)),
        draw(st.integers(0, 255)),
        draw(st.booleans()),
        draw(st.integers(0, len(slaves) - 1)),
    )


bond_nids = configurations().map(lambda one: one.nid)


@st.composite
def some_hellos(draw: st.DrawFn) -> BondHello:
    masks = tuple(draw(st.lists(u64, min_size=1, max_size=5)))
    guard = draw(st.binary(min_size=2, max_size=2)) if masks[0] & Capability.GUARD else b""
    return BondHello(draw(stamps), draw(u32), draw(configurations()), masks, guard=guard)


hellos = some_hellos()
registers = st.builds(Register, u32, stamps, configurations())
resolves = st.tuples(u32, bond_nids, bond_nids).map(
    lambda drawn: Resolve(drawn[0], drawn[1], Nid.of(drawn[1].net, drawn[2].address))
)
answers = st.one_of(
    st.builds(Answer, u32, bond_nids, u32, u32),
    configurations().flatmap(lambda one: st.builds(Answer, u32, st.just(one.nid), u32, u32, st.just(one))),
)
beacons = st.builds(Beacon, stamps, st.lists(st.tuples(u32, u32), max_size=64).map(tuple))
messages = st.one_of(hellos, registers, resolves, answers, beacons)
READERS = (BondHello, Register, Resolve, Answer, Beacon)


@pytest.mark.requirement("BOND-hello")
@given(messages, byteorders, st.binary(max_size=9))
def test_round_trip_in_either_byte_order(message, byteorder: ByteOrder, tail: bytes) -> None:  # type: ignore[no-untyped-def]
    assert type(message).unpack(message.pack(byteorder)) == message
    assert type(message).unpack(message.pack(byteorder) + tail) == message  # later versions may say more


@given(messages, byteorders, st.data())
def test_cut_anywhere_is_a_wire_error(message, byteorder: ByteOrder, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    packed = message.pack(byteorder)
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(WireError):
        type(message).unpack(packed[:cut])


@given(st.binary(max_size=200), messages, st.data())
def test_hostile_bytes_raise_wire_errors_only(noise: bytes, message, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    packed = bytearray(message.pack())
    at = data.draw(st.integers(0, len(packed)))
    packed[at : at + len(noise)] = noise
    for reader in READERS:
        with contextlib.suppress(WireError):
            reader.unpack(bytes(packed))


def test_bytes_of_a_hello_are_those_of_the_document() -> None:
    packed = BondHello(0x01020304, 0, CONFIG, (5,), guard=b"\x12\x34").pack()
    assert packed[:16].hex() == "5819eb0e040302010000000001000000"
    assert packed[16:24].hex() == "0500000000000000"
    assert packed[24:44].hex() == "00b000000a00000b" + "00" * 12
    assert packed[44:52].hex() == "0202000001000200"
    assert packed[52:76].hex() == "000200000a00000b" + "00" * 12 + "03000100"
    assert packed[76:100].hex() == "000200010a01000b" + "00" * 12 + "01000200"
    assert packed[100:].hex() == "1234"
    assert BondHello(0x01020304, 0, CONFIG, (1,)).pack("big")[:16].hex() == "0eeb1958010203040000000000000001"


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda raw: raw.__setitem__(slice(0, 4), b"ping"), "magic"),
        (lambda raw: raw.__setitem__(slice(4, 8), bytes(4)), "incarnation"),
        (lambda raw: raw.__setitem__(slice(12, 16), bytes(4)), "version 0"),
        (lambda raw: raw.__setitem__(12, 65), "version 65"),
        (lambda raw: raw.__setitem__(25, 2), "not on a bonding net"),
        (lambda raw: raw.__setitem__(31, 9), "first slave"),
        (lambda raw: raw.__setitem__(44, 3), "mode 3"),
        (lambda raw: raw.__setitem__(48, 2), "active slave 2"),
        (lambda raw: raw.__setitem__(50, 0), "0 slaves"),
        (lambda raw: raw.__setitem__(50, MAX_SLAVES + 1), "65 slaves"),
        (lambda raw: raw.__setitem__(slice(76, 96), SLAVES[0].nid), "twice"),
        (lambda raw: raw.__setitem__(slice(76, 96), BOND), "cannot be a slave"),
        (lambda raw: raw.__setitem__(slice(76, 96), LO_NID), "cannot be a slave"),
        (lambda raw: raw.__setitem__(slice(76, 96), ANY_NID), "cannot be a slave"),
        (lambda raw: raw.__setitem__(76, 13), "bad NID"),
        (lambda raw: raw.__setitem__(76, 4), "has no IP address"),
    ],
)
def test_each_rule_of_a_hello_is_checked(spoil, word: str) -> None:  # type: ignore[no-untyped-def]
    raw = bytearray(BondHello(1, 0, CONFIG).pack())
    spoil(raw)
    with pytest.raises(WireError, match=word):
        BondHello.unpack(bytes(raw))


@pytest.mark.requirement("BOND-hello")
def test_the_tag_of_the_duplicate_guard_ends_a_hello_that_promises_one() -> None:
    told = BondHello(1, 0, CONFIG, (Capability.GUARD,), guard=b"\x12\x34")
    plain = BondHello(1, 0, CONFIG, (0,)).pack()
    assert told.pack() == plain[:16] + b"\4" + plain[17:] + b"\x12\x34"
    assert told.pack("big")[-2:] == b"\x12\x34"  # bytes have no order
    with pytest.raises(WireError, match="before the tag"):
        BondHello.unpack(told.pack()[:-1])
    for capabilities, guard in (((Capability.GUARD,), b""), ((0,), b"ab"), ((Capability.GUARD,), b"abc")):
        with pytest.raises(WireError, match="capabilities"):
            BondHello(1, 0, CONFIG, capabilities, guard=guard).pack()


def test_a_beacon_fits_its_sink_whatever_it_tells() -> None:
    assert len(Beacon(1, tuple((net, 1) for net in range(200))).pack()) == BEACON_SIZE


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        (Header(MsgType.PUT, match_bits=MATCH_BITS | 1), Kind.HELLO),
        (Header(MsgType.GET, match_bits=MATCH_BITS), Kind.BEACON),
        (Header(MsgType.PUT, match_bits=MATCH_BITS), None),
        (Header(MsgType.GET, match_bits=MATCH_BITS | 1), None),
        (Header(MsgType.PUT, match_bits=MATCH_BITS | 5), None),
        (Header(MsgType.PUT, match_bits=MATCH_BITS | 1, portal=1), None),
        (Header(MsgType.PUT, match_bits=1 << 63), None),
    ],
)
def test_headers_tell_the_kind(header: Header, kind: Kind | None) -> None:
    assert kind_of(header) is kind


@pytest.mark.requirement("BOND-ni")
@pytest.mark.parametrize("text", ["192.168.0.11@bond", "11@bond3", "fd00::1@bond1", "0@bond"])
def test_the_address_is_written_as_that_of_its_first_slave(text: str) -> None:
    assert str(Nid.parse(text)) == text


def test_a_number_and_its_octets_are_one_nid() -> None:
    assert Nid.parse("0.0.0.11@bond0") == Nid.parse("11@bond") == Nid.parse("0xb@bond")
