"""NID, net, address and interface patterns (spec wire-lnet.md §2.3, udsp.md §2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import (
    ANY_NID,
    LO_NID,
    AddressPattern,
    InterfacePattern,
    Net,
    NetPattern,
    NetType,
    Nid,
    NidError,
    NidList,
    NidRange,
)
from ulnet.nid.expr import NumberSet, split_list


def matches(pattern: str, nid: str) -> bool:
    return NidList.parse(pattern).match(Nid.parse(nid))


@pytest.mark.requirement("HLD-expr")
@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("10.0.0.1@tcp", ["10.0.0.1@tcp"], ["10.0.0.2@tcp", "10.0.0.1@tcp1", "10.0.0.1@o2ib", "fd00::1@tcp"]),
        ("10.0.0.1", ["10.0.0.1@tcp"], ["10.0.0.1@tcp1"]),
        ("*@tcp1", ["10.9.8.7@tcp1", "fd00::1@tcp1"], ["10.9.8.7@tcp", "10.9.8.7@o2ib1"]),
        ("10.*.0.[1-8/3,200]@tcp", ["10.7.0.1", "10.0.0.7", "10.1.0.200"], ["10.0.0.2", "10.0.1.4"]),
        ("*.*.*.*@tcp", ["1.2.3.4"], ["fd00::1@tcp"]),
        ("192.168.110.0/23@o2ib", ["192.168.111.255@o2ib", "192.168.110.0@o2ib"], ["192.168.112.0@o2ib"]),
        ("192.168.110.77/32@tcp", ["192.168.110.77"], ["192.168.110.76"]),
        ("0.0.0.0/1@tcp", ["127.255.255.255"], ["128.0.0.0"]),
        ("fd00:110::/64@tcp", ["fd00:110::12@tcp", "fd00:110::f:1:2:3"], ["fd00:111::12", "10.0.0.1"]),
        ("fd00::1@tcp", ["fd00::1@tcp"], ["fd00::2@tcp"]),
        ("[1-0xff/2]@gni", ["1@gni", "255@gni"], ["2@gni", "257@gni"]),
        ("[0X10,0x12]@gni", ["16@gni", "18@gni"], ["17@gni", "10@gni"]),
        ("7@kfi[0-2]", ["7@kfi", "7@kfi2"], ["7@kfi3", "8@kfi"]),
        ("x@lo", ["0@lo"], ["0.0.0.0@tcp"]),
        ("10.0.0.1@tcp, 10.0.0.[2,3]@tcp\n*@o2ib", ["10.0.0.3", "1.1.1.1@o2ib"], ["10.0.0.4"]),
    ],
)  # fmt: skip
def test_nid_lists_match(pattern: str, yes: list[str], no: list[str]) -> None:
    assert all(matches(pattern, nid) for nid in yes)
    assert not any(matches(pattern, nid) for nid in no)
    assert not NidList.parse(pattern).match(ANY_NID)


@pytest.mark.requirement("HLD-expr")
@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("tcp", ["tcp", "tcp0"], ["tcp1", "o2ib"]),
        ("tcp*", ["tcp", "tcp1", "tcp65535"], ["o2ib"]),
        ("o2ib[1-3,9]", ["o2ib1", "o2ib3", "o2ib9"], ["o2ib", "o2ib4"]),
        ("tcp4", ["tcp4"], ["tcp"]),
        ("lo", ["lo"], ["tcp"]),
    ],
)
def test_net_patterns_match(pattern: str, yes: list[str], no: list[str]) -> None:
    parsed = NetPattern.parse(pattern)
    assert all(parsed.match(Net.parse(net)) for net in yes)
    assert not any(parsed.match(Net.parse(net)) for net in no)
    assert str(NetPattern.parse(str(parsed))) == str(parsed)


@pytest.mark.requirement("HLD-expr")
@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("eth0", ["eth0"], ["eth1", "eth00", "eth0.7", ""]),
        ("eth[1,2]", ["eth1", "eth2"], ["eth0", "eth12", "eth01", "eth"]),
        ("eth[0-11]", ["eth9", "eth11"], ["eth12"]),
        ("eth*", ["eth", "eth7", "eth0.100"], ["ib0"]),
        ("*", ["anything"], []),
        ("*[12]", ["eth12", "eth112"], ["eth1", "eth2"]),
        ("en[0-3]s*f[0,1]", ["en2s0f1", "en0s31f0"], ["en2s0f2", "en4s0f0"]),
        ("**a**", ["banana", "a"], ["b"]),
    ],
)
def test_interface_patterns_match(pattern: str, yes: list[str], no: list[str]) -> None:
    parsed = InterfacePattern.parse(pattern)
    assert all(parsed.match(name) for name in yes)
    assert not any(parsed.match(name) for name in no)
    assert str(parsed) == pattern


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("10.0.0.[1-3]@tcp1", ["10.0.0.1@tcp1", "10.0.0.2@tcp1", "10.0.0.3@tcp1"]),
        ("10.0.[0,1].[1-2]@tcp", ["10.0.0.1@tcp", "10.0.0.2@tcp", "10.0.1.1@tcp", "10.0.1.2@tcp"]),
        ("10.0.0.[2,1-3]@tcp", ["10.0.0.2@tcp", "10.0.0.1@tcp", "10.0.0.3@tcp"]),
        ("10.0.0.6/30@tcp", ["10.0.0.4@tcp", "10.0.0.5@tcp", "10.0.0.6@tcp", "10.0.0.7@tcp"]),
        ("fd00::fe/127@tcp", ["fd00::fe@tcp", "fd00::ff@tcp"]),
        ("10.0.0.1@tcp[0-2]", ["10.0.0.1@tcp", "10.0.0.1@tcp1", "10.0.0.1@tcp2"]),
        ("10.0.0.1,10.0.0.1@tcp0 0@lo", ["10.0.0.1@tcp", "0@lo"]),
        ("[9-11]@gni", ["9@gni", "10@gni", "11@gni"]),
    ],
)
def test_lists_expand_in_the_order_written(pattern: str, expected: list[str]) -> None:
    found = NidList.parse(pattern).expand(limit=8)
    assert [str(nid) for nid in found] == expected
    assert all(NidList.parse(pattern).match(nid) for nid in found)


@pytest.mark.parametrize(
    "pattern",
    ["10.*.*.*@tcp", "[0-4294967295]@gni", "fd00::/8@tcp", "10.0.0.1@tcp*", "10.0.0.[1-9]@tcp", "0.0.0.0/1"],
)
def test_expansion_is_bounded(pattern: str) -> None:
    with pytest.raises(NidError, match=r"more than 8 NIDs, the most allowed here; narrow it"):
        NidList.parse(pattern).expand(limit=8)
    with pytest.raises(NidError, match="more than 8"):
        NidRange.parse(pattern).expand(limit=8)


def test_nids_that_are_named_again_count_for_the_bound() -> None:
    """Only different ones did: one text with a range again and again was expanded without end."""
    for text in ("10.0.0.[1-3]@tcp,10.0.0.[1-3]@tcp,10.0.0.[1-3]@tcp", "10.0.0.1@tcp " * 9, "0@lo," * 9):
        with pytest.raises(NidError, match="names more than 8 NIDs, the most allowed here"):
            NidList.parse(text).expand(limit=8)
    again = NidList.parse("10.0.0.[1-4]@tcp,10.0.0.[1-4]@tcp")
    assert len(again.expand(limit=8)) == 4


def test_a_list_is_written_out_only_for_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[NidRange] = []

    def write(nids: NidRange) -> str:
        written.append(nids)
        return "text"

    monkeypatch.setattr(NidRange, "__str__", write)
    NidList.parse("10.0.0.[1-3]@tcp,10.0.0.4@tcp").expand(limit=4)
    NidRange.parse("10.0.0.[1-3]@tcp").expand(limit=4)
    assert not written
    with pytest.raises(NidError, match="'text' names more than 2 NIDs"):
        NidRange.parse("10.0.0.[1-3]@tcp").expand(limit=2)


def test_each_number_is_listed_once_however_often_it_is_written() -> None:
    """Each was looked for among all ranges before its own."""
    many = ",".join(["0-4294967295"] * 255)
    found = iter(NumberSet.parse(f"[7,{many}]", 2**32 - 1, "number"))
    assert [next(found) for _ in range(5)] == [7, 0, 1, 2, 3]


def test_a_star_cannot_be_listed() -> None:
    with pytest.raises(NidError, match="cannot be listed; name the addresses"):
        NidList.parse("*@tcp").expand(limit=100)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty", "10.0.0.1@tcp"]),
        ("*", ["'*'", "names no net", "*@tcp"]),
        ("10.0.0.1-3@tcp", ["'1-3'", "write [1-3]"]),
        ("10.0.0.[3-1]@tcp", ["'3-1'", "backwards", "[1-3]"]),
        ("10.0.0.[1-9/0]@tcp", ["stride of 0"]),
        ("10.0.0.[1/2]@tcp", ["stride belongs to a range"]),
        ("10.0.0.[1-300]@tcp", ["'300'", "0 to 255"]),
        ("10.0.0.[]@tcp", ["''", "0 to 255"]),
        ("10.0.0.[1[2]]@tcp", ["brackets open and close once"]),
        ("10.0.0@tcp", ["'10.0.0'", "four parts"]),
        ("10.0.0.0/33@tcp", ["1 to 32"]),
        ("10.0.0.0/0@tcp", ["1 to 32"]),
        ("fd00::/129@tcp", ["1 to 128"]),
        ("fd00::g@tcp", ["'fd00::g'", "is not an IP address"]),
        ("10.0.0.[1-3]@tcp1[2-3]", ["'tcp1[2-3]'"]),
        ("10.0.0.1@tcp[1-70000]", ["'70000'", "0 to 65535"]),
        ("10.0.0.1@lo1", ["loopback net has no number"]),
        ("10.0.0.1@nope", ["'nope'", "no known type"]),
        ("[1-" + "9" * 5000 + "]@gni", ["…", "0 to 4294967295"]),
        ("10.0.0.[" + "0," * 256 + "0]@tcp", ["…", "257 numbers and ranges", "there may be 256", "[10-19]"]),
    ],
)
def test_bad_lists_name_thing_rule_and_way_out(text: str, words: list[str]) -> None:
    with pytest.raises(NidError) as caught:
        NidList.parse(text)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ["", "eth[0", "eth0]", "eth 0", "eth0,eth1", "eth[a]", "[1]*" * 9])
def test_bad_interfaces(text: str) -> None:
    with pytest.raises(NidError, match="interface"):
        InterfacePattern.parse(text)


def test_commas_in_brackets_do_not_split() -> None:
    assert split_list(" a,b[1,2]\tc ,, [3,\n4]d") == ["a", "b[1,2]", "c", "[3,\n4]d"]


@pytest.mark.parametrize("text", ["7", "*", "[1-3]", "[1-9/2,12]", "[0x10-0x12]"])
def test_number_sets(text: str) -> None:
    numbers = NumberSet.parse(text, 20, "number")
    listed = list(numbers)
    assert listed == [value for value in range(21) if value in numbers]
    assert 21 not in numbers
    assert list(NumberSet.parse(str(numbers), 20, "number")) == listed


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("10.0.0.[1-8]@tcp", "10.0.0.[5-12]@tcp", True),
        ("10.0.0.[1-8]@tcp", "10.0.0.[9-12]@tcp", False),
        ("10.0.0.[1-8]@tcp", "10.0.[0-3].8@tcp[0-2]", True),
        ("10.0.0.[1-8]@tcp", "10.0.0.[1-8]@tcp1", False),
        ("10.0.0.[1-8]@tcp", "10.0.0.[1-8]@o2ib", False),
        ("10.0.0.[1-8]@tcp", "*@tcp*", True),
        ("10.*.0.7@tcp", "10.0.0.0/29@tcp", True),
        ("10.*.0.8@tcp", "10.0.0.0/29@tcp", False),
        ("10.0.0.0/9@tcp", "10.96.0.0/12@tcp", True),
        ("10.0.0.0/9@tcp", "10.128.0.0/9@tcp", False),
        ("fd00::/64@tcp", "fd00::7@tcp", True),
        ("fd00::/64@tcp", "fd00:1::/32@tcp", False),
        ("fd00::/8@tcp", "*.*.*.*@tcp", False),
        ("[0-4294967294/2]@gni", "[1-4294967295/2]@gni", False),
        ("[0-4294967295/65535]@gni*", "[1-4294967295/65537]@gni", True),
        ("7@gni, 10.0.0.1@tcp", "10.0.0.2@tcp 10.0.0.[0,1]@tcp", True),
        ("*@lo", "0@lo", True),
    ],
)
def test_patterns_overlap(one: str, other: str, shared: bool) -> None:
    """Without a look at each NID: there may be billions."""
    assert NidList.parse(one).overlaps(NidList.parse(other)) is shared
    assert NidList.parse(other).overlaps(NidList.parse(one)) is shared


octets = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(1, 9)), min_size=1, max_size=3
)


def octet_text(ranges: list[tuple[int, int, int]]) -> str:
    return "[" + ",".join(f"{min(a, b)}-{max(a, b)}/{step}" for a, b, step in ranges) + "]"


@given(st.tuples(octets, octets, octets, octets), st.binary(min_size=4, max_size=4))
def test_octets_match_what_they_say(
    expression: tuple[list[tuple[int, int, int]], ...], address: bytes
) -> None:
    pattern = AddressPattern.parse(".".join(map(octet_text, expression)))
    expected = all(
        any(byte in range(min(a, b), max(a, b) + 1, step) for a, b, step in ranges)
        for byte, ranges in zip(address, expression, strict=True)
    )
    assert pattern.match(address) == expected
    assert AddressPattern.parse(str(pattern)).match(address) == expected


@given(octets, octets)
def test_sets_overlap_if_a_number_is_in_both(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]
) -> None:
    one, other = (NumberSet.parse(octet_text(some), 255, "octet") for some in (first, second))
    assert one.overlaps(other) is not set(one).isdisjoint(other)


@given(st.text(alphabet="0123456789.-[]/,*:@tcpgnlo xf", max_size=30))
def test_any_text_gives_a_pattern_or_a_nid_error(text: str) -> None:
    try:
        parsed = NidList.parse(text)
    except NidError:
        return
    assert str(NidList.parse(str(parsed))) == str(parsed)
    parsed.match(LO_NID)
    try:
        assert len(parsed.expand(limit=64)) <= 64
    except NidError:
        pass


@given(st.text(alphabet="eth01[]-,*./ ", max_size=40), st.text(alphabet="eth01", max_size=16))
def test_any_interface_text(text: str, name: str) -> None:
    try:
        InterfacePattern.parse(text).match(name)
    except NidError:
        pass


def test_numeric_addresses_are_patterns_of_numbers() -> None:
    pattern = AddressPattern.parse("[0x10-0x12]", NetType.GNI)
    assert [int.from_bytes(address, "big") for address in pattern] == [16, 17, 18]
    with pytest.raises(NidError, match="0 to 4294967295"):
        AddressPattern.parse("10.0.0.1", NetType.GNI)
