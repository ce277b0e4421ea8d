"""Frames of `ulnet.rpc` as `ulnet decode` shows them (docs/wire-rpc.md)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.test_conversations import A, B, events, opened
from ulnet.capture.describe import Requests, say_message
from ulnet.wire import Header, MsgType, pack_header
from ulnet.wire.lnet import NO_WMD
from ulnet.wire.rpc import (
    BODY,
    IDEMPOTENT,
    STREAM,
    Bulk,
    CallFrame,
    Chunk,
    Connect,
    Connected,
    Kind,
    Note,
    Refused,
    Reply,
    batch,
)
from ulnet.wire.socklnd import FrameType, pack_frame_header

pytestmark = pytest.mark.requirement("ULP")

HEAD = (0xAB, 3, 7, 1, 0)  # session, slot, number, attempt, match bits of answers
ABOUT = "session ab slot 3 number 7"


def message(payload: bytes, portal: int, wmd: bytes = NO_WMD, match_bits: int = 0x55) -> bytes:
    header = Header(MsgType.PUT, B, A, 12345, 12345, len(payload), wmd, match_bits, 0, portal, 0)
    return pack_frame_header(FrameType.LNET) + pack_header(header, False) + payload


def test_a_call_and_all_that_is_about_it() -> None:
    call = CallFrame(*HEAD, "get", bytes(900), 1500, 500, 0, IDEMPOTENT, Bulk(0x70000, 8 << 20))
    talk = opened().send(0, message(Connect(0, 0, 0, 1, 9, 64, 16384, 1).pack(), 40))
    talk.send(1, message(Connected(0xAB, 0, 0, 1, 0, 64, 4096, 0xFE, 1).pack(), 41))
    talk.send(0, message(call.pack(), 40, b"\x01" * 16))
    talk.send(1, message(Note(*HEAD, Kind.WORKING, 700).pack(), 41))
    talk.send(1, message(bytes(2000), 42, match_bits=0x70001))
    talk.send(1, message(Reply(*HEAD, 0, 0, 1200, 0, 8 << 20, bytes(4)).pack(), 41))
    talk.send(1, message(Reply(*HEAD, 2, 0, 5, 0, 0, "no\nÅ".encode()).pack(), 41))
    talk.send(0, message(Note(*HEAD, Kind.CLOSE).pack(), 40))
    found = events(talk)[3:]
    shown = [event.saying.text.split("tcp  ", 1)[1] for event in found]
    assert shown == [
        "rpc CONNECT, 48 B, no ACK  [session 0: 64 slots wanted, frames of up to 16384 B]",
        "rpc CONNECTED, 56 B, no ACK  [session ab: 64 slots, frames of up to 4096 B, incarnation fe]",
        "rpc CALL 'get', 967 B, ACK to md 0x101010101010101  "
        f"[{ABOUT}: 900 B, into 8388608 B, 1500 ms left, idempotent]",
        f"rpc WORKING 'get', 36 B, no ACK  [{ABOUT}: at work, next notice within 700 ms]",
        "rpc bulk of 'get', 2000 B, no ACK",
        f"rpc REPLY 'get', 60 B, no ACK  [{ABOUT}: 4 B, 8388608 B pushed, after 1200 µs]",
        f"rpc REPLY 'get', 61 B, no ACK  [{ABOUT}: errno 2, 'no\\nÅ', after 5 µs]",
        "rpc CLOSE, 32 B, no ACK  [session ab: ended]",
    ]
    facts = found[2].saying.facts
    assert facts["portal"] == 40
    assert facts["rpc"] == {
        "data": 900,
        "patience_ms": 500,
        "credit": 0,
        "into": 8 << 20,
        "left_ms": 1500,
        "flags": ["idempotent"],
        "kind": "CALL",
        "session": "0xab",
        "slot": 3,
        "number": 7,
        "attempt": 1,
        "method": "get",
    }


def said(payload: bytes, requests: Requests | None = None, portal: int = 41) -> str:
    header = Header(MsgType.PUT, B, A, payload_length=len(payload), portal=portal)
    return say_message(header, requests or Requests(), payload=payload).text


def test_the_other_kinds() -> None:
    requests = Requests()
    again = CallFrame(0xAB, 3, 7, 2, 0, "watch", b"", flags=BODY | STREAM, source=Bulk(0x10000, 99))
    words = said(again.pack(), requests, portal=40)
    assert f"rpc CALL 'watch', 77 B, no ACK  [{ABOUT} attempt 2: 0 B, data of 99 B to be fetched" in words
    for frame, expected in (
        (Chunk(*HEAD, 5, bytes(64)), "chunk 5, 64 B"),
        (Note(*HEAD, Kind.CREDIT, 70), "room for chunks up to 70"),
        (Note(*HEAD, Kind.BUSY, 30), "try again in 30 ms"),
        (Note(*HEAD, Kind.CANCEL), "given up"),
        (Refused(*HEAD, 38, "no such method"), "errno 38, 'no such method'"),
    ):
        assert f"'watch', {len(frame.pack())} B, no ACK  [{ABOUT}: {expected}]" in said(
            frame.pack(), requests
        )
    other = bytearray(Note(*HEAD).pack())
    other[2] = 9
    assert said(bytes(other)).endswith(f"[{ABOUT}: version 9]")


def test_frames_that_travel_together() -> None:
    calls = [CallFrame(0xAB, slot, 7, 1, 0, method, bytes(900)) for slot, method in ((3, "get"), (4, "put"))]
    again = CallFrame(0xAB, 5, 8, 2, 0, "get", b"")
    replies = [Reply(0xAB, slot, 7, 1, 0, 0, 0, 12, data=bytes(slot)) for slot in (3, 4)]
    together = message(batch(0xAB, [frame.pack() for frame in [*calls, again]]), 40)
    talk = opened().send(0, together[:100]).send(0, together[100:])
    talk.send(1, message(batch(0xAB, [frame.pack() for frame in replies]), 41))
    talk.send(1, message(batch(0xAB, [calls[0].pack(), b"no frame"]), 41))
    found = events(talk)[3:]
    shown = [event.saying.text.split("tcp  ", 1)[1] for event in found]
    assert shown[:2] == [
        f"rpc 2 CALL 'get', 1 CALL 'put', {len(together) - 96} B, no ACK  "
        "[session ab slot 3 number 7: 900 B; slot 4 number 7: 900 B; slot 5 number 8 attempt 2: 0 B]",
        "rpc 1 REPLY 'get', 1 REPLY 'put', 159 B, no ACK  [session ab slot 3 number 7: 3 B, after 12 µs; "
        "slot 4 number 7: 4 B, after 12 µs]",
    ]
    assert "frame of 8 bytes" in shown[2]
    facts = found[0].saying.facts["rpc"]
    assert isinstance(facts, dict) and facts["kind"] == "BATCH"
    assert [frame["method"] for frame in facts["frames"]] == ["get", "put", "get"]
    assert [frame["slot"] for frame in facts["frames"]] == [3, 4, 5]


def test_other_programs_use_these_portals_too() -> None:
    assert "portal 41 match 0x0, 40 B, no ACK" in said(bytes(40))
    assert "rpc" not in said(b"\x55\x72" + bytes(40), portal=12)


def test_what_is_remembered_is_bounded() -> None:
    requests = Requests()
    for number in range(9000):
        said(CallFrame(1, 0, number, method="m", sink=Bulk(number << 16, 1)).pack(), requests, portal=40)
    assert len(requests.methods._calls) == len(requests.methods._bulk) == 8192


@given(st.binary(max_size=120), st.sampled_from([*Kind, 0, 77]), st.sampled_from([0, 1, 2, 3, 4, 7]))
def test_hostile_frames_are_told_in_one_line(rest: bytes, kind: int, flags: int) -> None:
    head = bytearray(Note(*HEAD).pack())
    head[3] = kind
    head[12] = flags
    for payload in (bytes(head) + rest, bytes(head[: len(rest)])):
        text = said(payload, portal=40)
        assert "\n" not in text
        found = events(opened().send(0, message(payload, 40)))
        assert found[3].saying.kind == "message"
        json.dumps(found[3].saying.facts)


@pytest.mark.parametrize("size", [1, 50, 400])
def test_a_frame_in_many_segments(size: int) -> None:
    data = message(CallFrame(*HEAD, "get", bytes(3000)).pack(), 40) * 2
    talk = opened()
    for at in range(0, len(data), size):
        talk.send(0, data[at : at + size])
    texts = [event.saying.text for event in events(talk)[3:]]
    assert [text.split("[")[1] for text in texts] == [f"{ABOUT}: 3000 B]"] * 2
