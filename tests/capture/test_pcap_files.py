"""Reading pcap and pcapng, whole and damaged."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.packets import VECTORS, Talk
from ulnet.capture import CaptureError, Decoder, Packet, read_packets


def talk() -> Talk:
    return Talk(time_us=1_700_000_000_123_456).connect().send(0, b"hello").send(1, b"world")


def read(data: bytes) -> list[Packet]:
    return list(read_packets(io.BytesIO(data)))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
def test_pcap_in_every_dress(order: str, nanoseconds: bool) -> None:
    written = talk()
    found = read(written.pcap(order=order, nanoseconds=nanoseconds))
    assert [(packet.time_ns // 1000, packet.data) for packet in found] == written.packets
    assert [packet.number for packet in found] == [1, 2, 3, 4, 5]
    assert {(packet.link_type, packet.cut) for packet in found} == {(1, 0)}


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng(order: str) -> None:
    written = talk()
    found = read(written.pcapng(order))
    assert [(packet.time_ns // 1000, packet.data) for packet in found] == written.packets


def test_pcapng_of_several_sections_in_different_orders() -> None:
    assert len(read(talk().pcapng("<") + talk().pcapng(">"))) == 10


def test_pcapng_simple_packets() -> None:
    frame = talk().packets[0][1]
    whole = talk().pcapng()
    start = whole[: whole.index(struct.pack("<I", 6))]
    body = struct.pack("<I", len(frame)) + frame + bytes(-len(frame) % 4)
    block = struct.pack("<II", 3, len(body) + 12) + body + struct.pack("<I", len(body) + 12)
    assert read(start + block)[0].data == frame


def test_packets_cut_by_the_snap_length_say_how_much_is_missing() -> None:
    found = read(talk().pcap(snap=56))
    assert [packet.cut for packet in found] == [0, 0, 0, 3, 3]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"MZ\x90\x00" + bytes(100), "is no capture .it begins with 4d 5a 90 00"),
        (b"ab", "is no capture"),
        (talk().pcap()[:10], "ends in the middle of its first header"),
        (talk().pcap()[:30], "ends in the middle of packet 1;"),
        (talk().pcap()[:-1], "ends in the middle of packet 5;"),
        (talk().pcap()[:32] + b"\xff\xff\xff\x7f" + bytes(100), "packet 1 claims 2147483647 bytes"),
        (talk().pcapng()[:6], "ends in the middle of its first header"),
        (talk().pcapng()[:-3], "ends in the middle of a block after packet 4"),
        (talk().pcapng()[:8] + b"abcd" + bytes(20), "no byte order"),
        (talk().pcapng()[:28] + struct.pack("<II", 6, 13) + bytes(40), "claims 13 bytes"),
        (talk().pcapng()[:28] + struct.pack("<II", 6, 0) + bytes(40), "claims 0 bytes"),
        (talk().pcapng()[:28] + struct.pack("<II", 6, 32) + bytes(24), "packet 1 does not fit"),
        (talk().pcapng()[:28] + struct.pack("<II", 1, 12) + bytes(4), "interface block"),
    ],
)
def test_damage_is_named(data: bytes, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        read(data)


def test_what_came_before_the_damage_is_given() -> None:
    packets = read_packets(io.BytesIO(talk().pcap()[:-1]))
    assert [next(packets).number for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(CaptureError):
        next(packets)


def test_an_unknown_link_is_an_error_only_if_nothing_else_is_there() -> None:
    data = bytearray(talk().pcap())
    data[20:24] = (147).to_bytes(4, "little")
    with pytest.raises(CaptureError, match="link type 147"):
        list(Decoder().events(io.BytesIO(data)))


@given(st.sampled_from(["a_connect_and_ping_1rail", "k0_o2iblnd_rxe_connect_ping_only"]), st.data())
def test_no_damage_makes_decoding_fail_otherwise(name: str, data: st.DataObject) -> None:
    whole = bytearray((VECTORS / f"{name}.pcap").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    whole = whole[: data.draw(st.integers(len(whole) // 2, len(whole)))]
    events = Decoder().events(io.BytesIO(whole))
    while True:
        try:
            event = next(events, None)
        except CaptureError:
            break
        if event is None:
            break
        assert event.saying.text


@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"\xd4\xc3\xb2\xa1" + bytes(16) + b"\1\0\0\0", b"\n\r\r\n"]),
)
def test_any_bytes_are_read_or_refused(data: bytes, start: bytes) -> None:
    try:
        list(Decoder().events(io.BytesIO(start + data)))
    except CaptureError:
        pass
