"""An index of patterns against the patterns themselves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from ulnet.nid import ANY_NID, LO_NID, Net, NetPattern, Nid, NidIndex, NidRange, places_of

NUMBERS = ["", "1", "7", "300", "*", "[1-7]", "[1,300]", "[0-600/2]", "[250-260]", "[0-65535]"]
ADDRESSES = [
    "*",
    "10.0.0.1",
    "10.0.0.*",
    "10.*.[0-9/3].[1,7,250-255]",
    "10.0.0.0/8",
    "10.0.0.0/9",
    "10.128.0.0/30",
    "0.0.0.0/1",
    "10.0.0.1/32",
    "fd00::/64",
    "fd00::1",
    "fd00:0:0:8000::/49",
]
ELSEWHERE = ["1", "*", "[1-300]", "[1,257]", "[0-70000/3]", "16777217"]
RANGES = [f"{address}@tcp{number}" for address in ADDRESSES for number in NUMBERS]
RANGES += [f"{address}@gni{number}" for address in ELSEWHERE for number in NUMBERS]
LONG = ("000", "800", "900")
PLACES: list[int | bytes] = [0, 1, 3, 257, 300, 301, 69999, 16777217, 16777473, 0xFFFFFFFF]
PLACES += [
    bytes((10, two, three, last)) for two in (0, 127, 128) for three in (0, 3, 4) for last in (1, 2, 7)
]
PLACES += [bytes.fromhex(f"fd00000000000{some}000000000000000{last}") for some in LONG for last in (0, 1)]
PLACES += [bytes(6), bytes((10, 0, 0, 1)) + bytes(12)]
SOME_NETS = [
    Net.parse(f"{kind}{number}")
    for kind in ("tcp", "o2ib", "gni")
    for number in (0, 1, 2, 7, 255, 256, 257, 300, 65535)
]
NIDS = [ANY_NID, LO_NID, *(Nid.of(net, place) for net in SOME_NETS for place in PLACES)]


@given(st.lists(st.sampled_from(RANGES), max_size=70), st.lists(st.sampled_from(NIDS), max_size=9))
@settings(max_examples=examples(200), deadline=None)
def test_an_index_finds_what_the_patterns_match(texts: list[str], nids: list[Nid]) -> None:
    ranges = [NidRange.parse(text) for text in texts]
    index = NidIndex([(one.nets, one.addresses) for one in ranges])
    for nid in nids:
        found = [at for at, one in enumerate(ranges) if one.match(nid)]
        assert list(places_of(index.match(nid))) == found


def test_an_index_of_each_pattern_alone() -> None:
    for text in RANGES:
        one = NidRange.parse(text)
        index = NidIndex([(one.nets, one.addresses)])
        assert [nid for nid in NIDS if index.match(nid)] == [nid for nid in NIDS if one.match(nid)]


def test_nets_without_addresses_are_all_their_nids() -> None:
    nets = [NetPattern.parse(f"tcp{number}") for number in NUMBERS]
    index = NidIndex([(one, None) for one in nets])
    for nid in NIDS:
        assert list(places_of(index.match(nid))) == [at for at, one in enumerate(nets) if one.match(nid.net)]
    assert NidIndex([]).match(NIDS[3]) == 0
