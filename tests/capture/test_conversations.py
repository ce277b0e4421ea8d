"""Conversations made by hand: what is said of odd, lost and hostile streams."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.packets import ACK, FIN, RST, SYN, VECTORS, Talk
from ulnet.capture import Decoder, Event, conversation
from ulnet.capture.describe import Requests
from ulnet.capture.packet import Endpoint, ip_payload
from ulnet.capture.pcap import read_packets
from ulnet.capture.sync import Found, find_frame
from ulnet.nid import Nid
from ulnet.wire import Header, MsgType, pack_header
from ulnet.wire.acceptor import ConnRequest, refusal
from ulnet.wire.lnet import NO_WMD, PING_MATCH_BITS
from ulnet.wire.ping import Feature, NiEntry, PingInfo
from ulnet.wire.socklnd import ConnType, FrameType, Hello, pack_frame_header

A, B = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
V6A, V6B = Nid.parse("fd00::1@tcp"), Nid.parse("fd00::2@tcp")


def hello(version: int = 3, src: Nid = A, dst: Nid = B, ctype: int = ConnType.CONTROL) -> bytes:
    return Hello(version, src, dst, 12345, 12345, 0xABC, 0, ctype).pack()


def put(size: int, *, portal: int = 7, large: bool = False, cookie: int = 0, **fields: int) -> bytes:
    src, dst = (V6A, V6B) if large else (A, B)
    hdr = Header(MsgType.PUT, dst, src, 12345, 12345, size, NO_WMD, 0x10, 0, portal, 0)
    for name, value in fields.items():
        setattr(hdr, name, value)
    return pack_frame_header(FrameType.LNET, cookie0=cookie) + pack_header(hdr, large) + bytes(size)


def opened(version: int = 3) -> Talk:
    src, dst = (V6A, V6B) if version == 4 else (A, B)
    talk = Talk().connect().send(0, ConnRequest.to(dst).pack() + hello(version, src, dst))
    return talk.send(1, hello(version, dst, src))


def events(talk: Talk | bytes) -> list[Event]:
    data = talk.pcap() if isinstance(talk, Talk) else talk
    found = list(Decoder().events(io.BytesIO(data)))
    for event in found:
        json.dumps(event.saying.facts)
        assert "\n" not in event.saying.text
    return found


def kinds(talk: Talk) -> list[str]:
    return [event.saying.kind for event in events(talk)]


def texts(talk: Talk) -> list[str]:
    return [event.saying.text for event in events(talk)]


OPENING = ["connection-request", "hello", "hello"]


@pytest.mark.parametrize("size", [1, 7, 24, 1000, 100_000])
@pytest.mark.parametrize("version", [3, 4])
def test_segments_of_any_size_give_the_same_messages(size: int, version: int) -> None:
    talk = opened(version)
    data = b"".join(put(n, large=version == 4, cookie=n) for n in (0, 5, 5000))
    for at in range(0, len(data), size):
        talk.send(0, data[at : at + size])
    found = events(talk)
    assert [event.saying.kind for event in found] == [*OPENING, *["message"] * 3]
    assert [event.saying.facts["payload"] for event in found[3:]] == [0, 5, 5000]
    assert "zc 0x1388" in found[-1].saying.text


@pytest.mark.parametrize("version", [1, 2])
def test_older_protocols(version: int) -> None:
    talk = Talk().connect().send(0, ConnRequest.to(B).pack() + hello(version)).send(1, hello(version, B, A))
    message = put(9)
    talk.send(0, message[24:] * 2 if version == 1 else message * 2)
    assert kinds(talk) == [*OPENING, "message", "message"]
    assert f"HELLO v{version} CONTROL" in texts(talk)[1]


def test_a_message_in_words() -> None:
    talk = opened().send(0, put(4, match_bits=0x55, offset=9, hdr_data=0xAB, portal=12))
    assert texts(talk)[-1] == (
        "PUT   10.0.0.1@tcp → 10.0.0.2@tcp  portal 12 match 0x55, 4 B, offset 9, hdr_data 0xab, no ACK"
    )


def test_answers_name_what_they_answer() -> None:
    wmd = (7).to_bytes(8, "little") + (13).to_bytes(8, "little")
    get = Header(MsgType.GET, B, A, 12345, 12345, 0, wmd, 0x10, 0, 30, 0, 4096)
    reply = Header(MsgType.REPLY, A, B, 12345, 12345, 3, wmd)
    ack = Header(MsgType.ACK, A, B, 12345, 12345, 0, wmd, 0x10, 0, 0, 0, 77)
    frame = pack_frame_header(FrameType.LNET)
    talk = opened().send(1, frame + pack_header(reply, False) + b"abc")
    talk.send(0, frame + pack_header(get, False)).send(1, frame + pack_header(reply, False) + b"abc")
    talk.send(1, frame + pack_header(ack, False))
    assert [text.rpartition("  ")[2] for text in texts(talk)[-4:]] == [
        "3 B, md 0xd",
        "portal 30 match 0x10, up to 4096 B, md 0xd",
        "to GET portal 30 match 0x10, 3 B, md 0xd",
        "to GET portal 30 match 0x10, 77 B accepted, md 0xd",
    ]


def test_a_push_tells_every_ni_with_its_state() -> None:
    entries = [NiEntry(Nid.parse(f"10.0.{i}.1@tcp"), 0xDEADFACE if i == 1 else 0x15AAC0DE) for i in range(20)]
    info = PingInfo(Feature.NI_STATUS | Feature.MULTI_RAIL, sequence=9, entries=entries).pack()
    push = put(len(info), portal=0, match_bits=PING_MATCH_BITS)[: 24 + 72] + info
    event = events(opened().send(0, push))[-1]
    assert "push, 352 B, no ACK  [seq 9: 10.0.0.1@tcp up, 10.0.1.1@tcp down," in event.saying.text
    assert " and 4 more; 0xa NI_STATUS MULTI_RAIL]" in event.saying.text
    told = event.saying.facts["ping_info"]
    assert isinstance(told, dict) and len(told["nis"]) == 20


@pytest.mark.parametrize(
    ("cookies", "words"),
    [
        ((0, 1), "NOOP  keepalive"),
        ((0, 5), "NOOP  zero-copy acknowledgement of 0x5"),
        ((5, 9), "NOOP  zero-copy acknowledgement of 0x5 to 0x9"),
        ((9, 5), "NOOP  zero-copy acknowledgement of 0x9, 0x5"),
        ((1, 2**64 - 1), "NOOP  zero-copy acknowledgement of 0x1 to 0xffffffffffffffff"),
    ],
)
def test_noops(cookies: tuple[int, int], words: str) -> None:
    assert texts(opened().send(0, pack_frame_header(FrameType.NOOP, 0, *cookies)))[-1] == words


def test_retransmits_reordering_and_vlan_change_nothing() -> None:
    straight = opened().send(0, put(3000)[:1500]).send(0, put(3000)[1500:]).send(0, put(8))
    data = put(3000)
    odd = opened()
    odd.vlan = True
    odd.segment(0, data[1500:], at=1500).segment(0, data[:1000], at=0).segment(0, data[500:1500], at=500)
    odd.seq[0] += len(data)
    odd.segment(0, data[-100:], at=-100).send(0, put(8))
    assert texts(odd) == texts(straight)


def test_messages_on_a_server_port_that_wraps_its_sequence_numbers() -> None:
    talk = opened()
    for _ in range(4):
        talk.send(1, put(100))
    assert talk.seq[1] < 1000
    assert kinds(talk) == [*OPENING, *["message"] * 4]


def test_lost_bytes_in_a_payload_do_no_harm() -> None:
    data = put(5000) + put(6)
    talk = opened().segment(0, data[:1000]).segment(0, data[3000:4000], at=2000)
    talk.seq[0] += 3000
    talk.segment(0, data[4000:])
    talk.segment(1, b"", ACK)  # the server has them
    assert kinds(talk) == [*OPENING, "message", "message"]


def test_lost_bytes_in_a_header_cost_only_what_cannot_be_told() -> None:
    first, second, third = put(10), put(20), put(30)
    talk = opened().send(0, first)
    talk.seq[0] += 50  # of the second message
    talk.send(0, second[50:]).send(0, third)
    talk.segment(1, b"", ACK)
    assert kinds(talk) == [*OPENING, "message", "lost", "resumed", "message"]
    assert "50 bytes are missing" in texts(talk)[-3]
    assert events(talk)[-1].saying.facts["payload"] == 30


def test_a_capture_that_begins_mid_connection() -> None:
    talk = Talk().send(0, put(5)).send(1, pack_frame_header(FrameType.NOOP, cookie1=1)).send(1, put(6))
    assert kinds(talk) == ["message", "noop", "message"]


@pytest.mark.parametrize("large", [False, True])
def test_a_capture_that_begins_mid_message(large: bool) -> None:
    data = put(4000, large=large)[1000:] + put(7, large=large)
    talk = Talk().send(0, data[:2000]).send(0, data[2000:])
    found = events(talk)
    assert [event.saying.kind for event in found] == ["resumed", "message"]
    assert found[0].saying.facts["skipped"] == len(put(4000, large=large)) - 1000
    assert found[1].saying.facts["src_nid"] == str(V6A if large else A)


def test_a_capture_that_begins_mid_connection_with_noops_of_large_nids() -> None:
    noop = pack_frame_header(FrameType.NOOP, cookie1=1)
    assert kinds(Talk().send(0, noop).send(0, put(7, large=True))) == ["noop", "message"]


def test_what_cannot_be_followed_is_said() -> None:
    talk = Talk().send(0, b"\xaa" * 3000)
    assert texts(talk) == ["cannot follow (joined mid-connection): no LNet message in 3000 B"]


def test_other_protocols_are_passed_over() -> None:
    ssh = Talk(server=("10.0.0.2", 22)).connect().send(1, b"SSH-2.0-OpenSSH").send(0, b"SSH-2.0-OpenSSH")
    assert events(ssh) == []
    bulk = Talk(server=("10.0.0.2", 22))
    for _ in range(9):
        bulk.send(0, bytes(60_000))
    assert events(bulk.segment(0, b"", FIN | ACK)) == []


def test_lnet_on_another_port_is_found_by_its_bytes() -> None:
    talk = Talk(server=("10.0.0.2", 7988)).connect().send(0, ConnRequest.to(B).pack() + hello())
    assert kinds(talk) == ["connection-request", "hello"]
    middle = Talk(server=("10.0.0.2", 7988)).send(0, put(5))
    assert kinds(middle) == ["message"]


def test_foreign_bytes_on_lnets_port() -> None:
    talk = Talk().connect().send(0, b"GET / HTTP/1.1\r\n\r\n").segment(1, b"", RST | ACK)
    assert texts(talk) == ["not LNet: begins with 47455420", "resets the connection"]


def test_a_secured_connection_is_named_as_that() -> None:
    talk = Talk().connect().send(0, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(505))
    assert texts(talk) == ["a secured connection (TLS): its contents cannot be read"]
    elsewhere = Talk(server=("10.0.0.2", 443)).connect().send(0, b"\x16\x03\x01\x02\x00\x01" + bytes(511))
    assert events(elsewhere) == []


def test_refusals_and_ends() -> None:
    nobody = Talk().segment(0, b"", SYN).segment(1, b"", RST | ACK)
    assert texts(nobody) == ["refuses the connection: nobody listens"]
    odd = Talk().connect().send(0, hello()).send(1, refusal()).send(1, b"", FIN | ACK)
    assert [event.saying.kind for event in events(odd)] == ["hello", "refusal", "closed"]
    half = (
        Talk().connect().send(0, ConnRequest.to(B).pack()[:6]).send(1, b"", FIN | ACK).send(0, b"", FIN | ACK)
    )
    assert texts(half)[1] == "closes in the middle of a connection request: 2 B missing"
    mid = opened().send(0, put(500)[:300]).send(0, b"", RST)
    assert texts(mid)[-2:] == ["resets in the middle of a payload: 296 B missing", "resets the connection"]
    assert (
        texts(opened().send(0, put(5)[:30]))[-1]
        == "the capture ends in the middle of an LNet header: 66 B missing"
    )


def test_a_late_fin_waits_for_what_comes_before_it() -> None:
    data = put(50)
    talk = opened().segment(0, data[100:], at=100)
    talk.seq[0] += len(data)
    talk.send(0, b"", FIN | ACK).segment(0, data[:100], at=-len(data) - 1)
    assert kinds(talk) == [*OPENING, "message", "closed"]


def test_ports_used_again_are_another_connection() -> None:
    talk = opened().send(0, put(5)).send(0, b"", FIN | ACK).send(1, b"", FIN | ACK)
    talk.seq = [5_000_000, 6_000_000]
    talk.connect().send(0, ConnRequest.to(B).pack() + hello(ctype=ConnType.BULK_IN))
    assert kinds(talk)[-2:] == ["connection-request", "hello"]
    again = opened()
    again.seq = [5_000_000, 6_000_000]  # no FIN seen
    again.connect().send(0, ConnRequest.to(B).pack())
    assert kinds(again)[-1] == "connection-request"


def test_a_syn_sent_twice_is_one_connection() -> None:
    talk = Talk().segment(0, b"", SYN)
    talk.segment(0, b"", SYN, at=-1).segment(1, b"", SYN | ACK).send(0, ConnRequest.to(B).pack() + hello())
    assert kinds(talk) == ["connection-request", "hello"]


def test_broken_frames_lose_the_thread_once() -> None:
    junk = (0xC5).to_bytes(4, "little") + bytes(5000)
    talk = opened().send(0, junk).send(0, junk).send(0, put(5))
    assert kinds(talk) == [*OPENING, "lost", "resumed", "message"]
    assert "type 0xc5" in texts(talk)[3]


def test_short_snap_length_still_shows_headers() -> None:
    talk = opened().send(0, put(9000)).send(0, put(8000))
    found = events(talk.pcap(snap=14 + 20 + 20 + 24 + 72))
    assert [event.saying.kind for event in found] == [*OPENING, "message", "message"]
    info = PingInfo(Feature.NI_STATUS, entries=[NiEntry(A)]).pack()
    push = put(len(info), portal=0, match_bits=PING_MATCH_BITS)[: 24 + 72] + info
    found = events(opened().send(0, push).send(0, put(3)).pcap(snap=14 + 20 + 20 + 24 + 72 + 10))
    assert found[3].saying.text.endswith("payload missing from the capture")
    assert found[4].saying.kind == "message"


def test_many_connections_are_forgotten_oldest_first() -> None:
    talk = Talk()
    for index in range(17_000):
        talk.client = (f"10.1.{index >> 8}.{index & 255}", 1023)
        talk.seq = [1, 1]
        talk.segment(0, b"", SYN)
    assert events(talk) == []


@given(st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=200)), max_size=12), st.booleans())
def test_any_bytes_on_a_connection(parts: list[tuple[int, bytes]], with_opening: bool) -> None:
    talk = opened() if with_opening else Talk()
    for who, data in parts:
        talk.send(who, data)
    events(talk)


@given(st.data())
def test_any_damage_to_a_conversation(data: st.DataObject) -> None:
    """Segments dropped, repeated, moved and damaged: never an exception, and events stay in order of time."""
    talk = opened()
    for size in (0, 3, 3000, 40):
        for at in range(0, size + 96, 700):
            talk.send(0, put(size)[at : at + 700])
    order = data.draw(st.lists(st.sampled_from(range(len(talk.packets))), max_size=30))
    frames = [talk.packets[index][1] for index in order]
    if frames:
        spoiled = bytearray(frames[0])
        spoiled[data.draw(st.integers(14, len(spoiled) - 1))] = data.draw(st.integers(0, 255))
        frames[0] = bytes(spoiled)
    talk.packets = list(enumerate(frames))
    times = [event.time_ns for event in events(talk)]
    assert times == sorted(times)


def test_o2iblnd_messages_in_pieces_and_writes() -> None:
    """The IMMEDIATE of a real node, sent again as first, middle and last packet, then an RDMA write."""
    with (VECTORS / "k0_o2iblnd_rxe_connect_ping_only.pcap").open("rb") as file:
        packets = list(read_packets(file))
    get = next(packet.data for packet in packets if len(packet.data) == 178)
    carried = ip_payload(1, get)
    assert carried is not None
    bth, message = carried.data[8:20], carried.data[20:-4]

    def frame(opcode: int, psn: int, body: bytes) -> bytes:
        head = bytes([opcode]) + bth[1:9] + psn.to_bytes(3, "big")
        udp = carried.data[:4] + (8 + 12 + len(body) + 4).to_bytes(2, "big") + b"\0\0"
        ip = bytearray(get[14:34])
        ip[2:4] = (20 + 8 + 12 + len(body) + 4).to_bytes(2, "big")
        return get[:14] + bytes(ip) + udp + head + body + b"ICRC"

    talk = Talk()
    reth = bytes(8) + (0x1234).to_bytes(4, "big") + (1 << 20).to_bytes(4, "big")
    frames = [
        frame(0x06, 5, reth + bytes(64)),  # a write to a queue pair that is nobody's yet
        frame(0x00, 0xFFFFFE, message[:50]),
        frame(0x01, 0xFFFFFF, message[50:100]),
        frame(0x02, 0, message[100:]),
        frame(0x06, 7, reth + bytes(64)),
        frame(0x00, 8, message[:50]),
        frame(0x02, 10, message[50:]),  # one is missing
        frame(0x04, 11, message[:60]),
    ]
    talk.packets = list(enumerate(frames))
    assert texts(talk) == [
        "IMMEDIATE GET   192.168.110.11@o2ib → 192.168.110.12@o2ib  ping, up to 3960 B, md 0xd",
        "RDMA WRITE 1048576 B, rkey 0x1234",
        "IMMEDIATE that claims 120 bytes, of which 60 arrived",
    ]


def test_ping_info_that_ends_behind_its_magic_is_a_message_of_four_bytes() -> None:
    magic = 0x70696E67.to_bytes(4, "little")
    short = put(4, portal=0, match_bits=PING_MATCH_BITS)[:-4] + magic
    found = events(opened().send(0, short + put(9) + put(8)))
    assert [event.saying.facts["payload"] for event in found[3:]] == [4, 9, 8]


@pytest.mark.pure
def test_a_packet_of_frames_between_nonsense_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was left of the packet was searched, and copied, after each frame: 4 MB took minutes."""
    searched = 0

    def counted(data: bytes, starts_segment: bool) -> Found | None:
        nonlocal searched
        searched += len(data)
        return find_frame(data, starts_segment)

    monkeypatch.setattr(conversation, "find_frame", counted)
    data = (put(0) + b"\xee" * 28) * 2000

    def told(pieces: list[bytes]) -> list[str]:
        found: list[str] = []
        side = conversation.Side(
            Endpoint(bytes([10, 0, 0, 1]), 1000),
            Endpoint(bytes([10, 0, 0, 2]), 988),
            lambda src, dst, saying: found.append(saying.text),
            Requests(),
            fresh=False,
            expected=True,
        )
        for piece in pieces:
            side.reader.feed(0, piece)
        side.end("the capture ends")
        return found

    whole = told([data])
    assert searched < 64 * len(data)
    assert sum("PUT" in text for text in whole) == 2000
    assert told([data[at : at + 1001] for at in range(0, len(data), 1001)]) == whole


@pytest.mark.parametrize("size", [4095, 4096, 4097, 10_000])
def test_a_frame_is_found_behind_much_that_is_none(size: int) -> None:
    talk = Talk().send(0, b"\xee" * size + put(5, cookie=1) + put(7, cookie=2))
    assert [text for text in texts(talk) if "PUT" in text][1:]
