"""NIDs, nets and process ids: text, 64-bit and large forms (spec wire-lnet.md §1, §2)."""

from __future__ import annotations

import copy
import ipaddress
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import (
    ANY_NET,
    ANY_NID,
    LNET_PID,
    LO_NET,
    LO_NID,
    PID_ANY,
    PID_USER_FLAG,
    Net,
    NetType,
    Nid,
    NidError,
    ProcessId,
)
from ulnet.nid.net import IP_TYPES
from ulnet.nid.nid import NID4_BY_NID, NID_BY_NID4, NID_BY_WIRE

TEXTS = {
    "10.0.0.1@tcp": 0x00020000_0A000001,
    "192.168.1.10@tcp1": 0x00020001_C0A8010A,
    "192.168.110.12@o2ib": 0x00050000_C0A86E0C,
    "10.1.2.3@o2ib65535": 0x0005FFFF_0A010203,
    "0@lo": 0x00090000_00000000,
    "4294967295@gni3": 0x000D0003_FFFFFFFF,
    "17@kfi": 0x00100000_00000011,
    "1.2.3.4@efa2": 0x00120002_01020304,
    "5@bxi3f": 0x00130000_00000005,
    "6@ptlf": 0x000F0000_00000006,
    "1.1.1.1@gip": 0x000E0000_01010101,
}

nets = st.builds(
    Net.of, st.sampled_from([kind for kind in NetType if kind != NetType.LO]), st.integers(0, 0xFFFF)
)
small_nids = st.builds(Nid.of, nets, st.binary(min_size=4, max_size=4))
ip_nets = nets.filter(lambda net: net.type in IP_TYPES)
large_nids = st.builds(Nid.of, ip_nets, st.binary(min_size=16, max_size=16))
nids = st.one_of(small_nids, large_nids, st.just(LO_NID))


@pytest.mark.requirement("cfg-015")
@pytest.mark.parametrize(("text", "nid4"), TEXTS.items())
def test_text_and_64_bits(text: str, nid4: int) -> None:
    nid = Nid.parse(text)
    assert str(nid) == text
    assert nid.nid4 == nid4
    assert Nid.from_nid4(nid4) == nid
    assert nid[:8] == nid4.to_bytes(8, "big")


@given(nids)
def test_text_round_trip(nid: Nid) -> None:
    assert Nid.parse(str(nid)) == nid
    assert len(str(nid)) < 64  # LNet's longest
    assert repr(nid) == f"Nid('{nid}')"


@given(small_nids)
def test_64_bit_round_trip(nid: Nid) -> None:
    assert Nid.from_nid4(nid.nid4) == nid
    assert not nid.is_large


@given(large_nids)
def test_large_nids_keep_their_address(nid: Nid) -> None:
    assert nid.is_large and len(nid.address) == 16
    assert nid[0] == 12
    assert ipaddress.ip_address(nid.ip).packed == nid.address
    with pytest.raises(NidError, match=r"does not fit into 64 bits"):
        nid.nid4  # noqa: B018  # the property is what is tried
    assert nid.truncated_nid4() == nid.net << 32 | int.from_bytes(nid.address[:4], "big")


@given(nids, nids)
def test_order_is_that_of_the_struct(one: Nid, two: Nid) -> None:
    assert (one < two) == (bytes(one) < bytes(two))


@given(st.integers(0, 2**64 - 1))
def test_any_64_bits_give_a_nid(value: int) -> None:
    nid = Nid.from_nid4(value)
    assert len(nid) == 20 and nid[0] in (0, 0xFF)
    assert str(nid) and repr(nid)
    if nid.is_any:
        assert nid == ANY_NID
    else:
        assert nid.nid4 == value & (2**56 - 1)  # the top byte is never sent and is not looked at


@given(st.binary(min_size=20, max_size=20))
def test_any_20_bytes_give_a_canonical_nid_or_an_error(raw: bytes) -> None:
    if raw[0] > 12 and raw[1] != 0xFF:
        with pytest.raises(NidError, match="at most 16 bytes"):
            Nid(raw)
        return
    nid = Nid(raw)
    assert str(nid)
    assert Nid(nid) == nid
    assert nid == NID_BY_WIRE[raw]
    if raw[1] == 0xFF:
        assert nid == ANY_NID
    else:
        assert nid[: raw[0] + 8] == raw[: raw[0] + 8] and not any(nid[raw[0] + 8 :])


@pytest.mark.parametrize("size", [0, 8, 19, 21])
def test_a_nid_has_20_bytes(size: int) -> None:
    with pytest.raises(NidError, match="20 bytes"):
        Nid(bytes(size))


def test_no_net_means_tcp_and_0_is_not_printed() -> None:
    assert Nid.parse("10.0.0.1") == Nid.parse("10.0.0.1@tcp0") == Nid.parse("10.0.0.1@tcp")
    assert str(Nid.parse("10.0.0.1@tcp0")) == "10.0.0.1@tcp"
    assert Nid.parse("fd00::1") == Nid.parse("fd00:0:0::0001@tcp0")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("FD00:0:0:0:0:0:0:1@tcp", "fd00::1@tcp"),
        ("::1@tcp", "::1@tcp"),
        ("::ffff:1.2.3.4@tcp", "::ffff:1.2.3.4@tcp"),
        ("::1.2.3.4@tcp", "::1.2.3.4@tcp"),
        ("2001:db8::1:0:0:1@o2ib7", "2001:db8::1:0:0:1@o2ib7"),
        ("10.000.0.01@tcp", "10.0.0.1@tcp"),
        ("0x10@gni", "16@gni"),
        ("0XfF@kfi1", "255@kfi1"),
        ("whatever@lo", "0@lo"),
        ("@lo", "0@lo"),
        ("<?>", "<?>"),
    ],
)
def test_spellings(text: str, printed: str) -> None:
    assert str(Nid.parse(text)) == printed


def test_any() -> None:
    assert Nid.parse("*", any_ok=True) == ANY_NID == Nid.from_nid4(2**64 - 1)
    assert ANY_NID.is_any and not ANY_NID.is_large
    assert ANY_NID.net == ANY_NET and ANY_NID.nid4 == 2**64 - 1
    assert bytes(ANY_NID) == b"\xff" * 20


def test_loopback() -> None:
    assert LO_NID.is_lo and LO_NID.net == LO_NET
    assert Nid.from_nid4(0x0009000000000000) == LO_NID


def test_unknown_types_print_as_numbers() -> None:
    # As the kernel printed the NID of a big-endian peer that it misread (reference 40_raw_probes).
    assert str(Nid.from_nid4(0x176EA8C000000200)) == "200@<110:43200>"
    assert str(Net.of(17, 3)) == "<17:3>"
    assert str(Nid.of(Net.of(17), bytes(range(16)))) == "10203:4050607:8090a0b:c0d0e0f@<17:0>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10.0.0@tcp", ["'10.0.0'", "is not an IP address", "such as 10.0.0.1@tcp"]),
        ("10.0.0.256@tcp1", ["'10.0.0.256'", "0 to 255", "10.0.0.1@tcp1"]),
        ("host@o2ib", ["'host'", "is not an IP address"]),
        ("fe80::1%eth0@tcp", ["is not an IP address"]),
        ("10.0.0.1@eth", ["'eth'", "no known type", "tcp, o2ib"]),
        ("10.0.0.1@tcp65536", ["'tcp65536'", "0 to 65535", "such as tcp1"]),
        ("10.0.0.1@tcp-1", ["'tcp-1'", "0 to 65535"]),
        ("10.0.0.1@tcp٣", ["0 to 65535"]),
        ("1@lo1", ["the loopback net has no number"]),
        ("abc@gni", ["'abc'", "0 to 4294967295"]),
        ("4294967296@gni", ["0 to 4294967295"]),
        ("-1@gni", ["0 to 4294967295"]),
        ("1_0@gni", ["0 to 4294967295"]),
        ("", ["is not an IP address"]),
        ("*", ["is not an IP address"]),
        ("x" * 5000 + "@tcp", ["…", "is not an IP address"]),
    ],
)
def test_bad_text_names_thing_rule_and_way_out(text: str, words: list[str]) -> None:
    with pytest.raises(NidError) as caught:
        Nid.parse(text)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert len(str(caught.value)) < 400
    assert isinstance(caught.value, ValueError)


@given(st.text(max_size=40))
def test_any_text_gives_a_nid_or_a_nid_error(text: str) -> None:
    for parse in (Nid.parse, Net.parse, ProcessId.parse):
        try:
            parse(text)
        except NidError:
            pass


def test_making_from_parts() -> None:
    net = Net.parse("o2ib2")
    assert Nid.of(net, "10.0.0.1") == Nid.of(net, 0x0A000001) == Nid.of(net, bytes([10, 0, 0, 1]))
    assert Nid.of(Net.parse("gni"), "77").nid4 == 0x000D00000000004D
    for address in (-1, 2**32, b"123", b"x" * 17):
        with pytest.raises(NidError):
            Nid.of(net, address)
    with pytest.raises(NidError):
        Nid.from_nid4(2**64)


@pytest.mark.requirement("cfg-015")
def test_nets() -> None:
    assert Net.parse("tcp") == Net.parse("tcp0") == 0x00020000
    assert (Net.parse("o2ib7").type, Net.parse("o2ib7").number) == (NetType.O2IB, 7)
    assert f"{Net.parse('tcp3')} {Net.parse('lo')}" == "tcp3 lo"
    assert repr(Net.parse("tcp0")) == "Net('tcp')"
    assert ANY_NET == 0xFFFFFFFF
    for kind, number in ((-1, 0), (256, 0), (2, 65536), (2, -1)):
        with pytest.raises(NidError, match="does not exist"):
            Net.of(kind, number)


@given(nets)
def test_net_round_trip(net: Net) -> None:
    assert Net.parse(str(net)) == net == Net.of(net.type, net.number)


@given(nids, st.integers(0, 2**32 - 1))
def test_process_id_round_trip(nid: Nid, pid: int) -> None:
    process = ProcessId(nid, pid)
    assert ProcessId.parse(str(process)) == process


def test_process_ids_as_lnet_prints_them() -> None:
    nid = Nid.parse("10.0.0.1@tcp")
    assert str(ProcessId(nid)) == "12345-10.0.0.1@tcp"
    assert str(ProcessId(nid, 40000 | PID_USER_FLAG)) == "U40000-10.0.0.1@tcp"
    assert str(ProcessId(nid, PID_ANY)) == "LNET_PID_ANY-10.0.0.1@tcp"
    assert ProcessId.parse("10.0.0.1@tcp") == (nid, LNET_PID)
    with pytest.raises(NidError, match="is not a pid"):
        ProcessId.parse("me-10.0.0.1@tcp")


@given(nids)
def test_nids_copy_and_pickle(nid: Nid) -> None:
    for other in (copy.copy(nid), copy.deepcopy(nid), pickle.loads(pickle.dumps(nid))):
        assert type(other) is Nid and other == nid


def test_hostile_peers_cannot_grow_the_caches() -> None:
    for value in range(70_000):
        nid = NID_BY_NID4[0x0002000000000000 | value]
        assert NID4_BY_NID[nid] == 0x0002000000000000 | value
        assert NID_BY_WIRE[bytes(nid)] == nid
    assert max(len(NID_BY_NID4), len(NID4_BY_NID), len(NID_BY_WIRE)) <= 65536


@pytest.mark.parametrize("net", ["tcp", "o2ib1", "bond2"])
@pytest.mark.parametrize("extra", range(13))
def test_on_nets_of_ip_addresses_others_are_malformed(net: str, extra: int) -> None:
    """Only a wire can bring them: text and parts of programs have addresses."""
    nid = Nid.of(Net.parse(net), bytes(range(1, 5 + extra)))
    assert nid.is_malformed == (extra not in (0, 12))
