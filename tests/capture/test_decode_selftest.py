"""Messages of LNet selftest as `ulnet decode` shows them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.packets import VECTORS
from capture.test_conversations import A, B, events, opened
from ulnet.capture.describe import Requests, say_message
from ulnet.cli.decode import main
from ulnet.nid import Nid
from ulnet.wire import Header, MsgType, pack_header
from ulnet.wire.lnet import NO_WMD
from ulnet.wire.selftest import Message, pack_message
from ulnet.wire.selftest_bodies import (
    BatchReply,
    BatchRequest,
    Body,
    BrwReply,
    BrwRequest,
    DebugReply,
    MakeSessionReply,
    RailsReply,
    RailsRequest,
    TestRequest,
)
from ulnet.wire.selftest_values import ANY_SESSION, BULK_LEN, RAILS_KNOWN, BulkBytes, BulkPages, SessionId
from ulnet.wire.socklnd import FrameType, pack_frame_header

pytestmark = pytest.mark.requirement("LST")

SID = SessionId(A.nid4, 1234)
PORTALS = (50, 51, 52)
TELLS = ", tells its rails"
CARRIED = ", bulk_get 3, bulk_put 4"


def put(payload: bytes, portal: int, bits: int = 7, *, back: bool = False) -> bytes:
    ends = (A, B) if back else (B, A)  # destination, source
    header = Header(MsgType.PUT, *ends, 12345, 12345, len(payload), NO_WMD, bits, 0, portal, 0)
    return pack_frame_header(FrameType.LNET) + pack_header(header, False) + payload


def message(body: Body, portal: int, *, back: bool = False, **more: Any) -> bytes:
    return put(pack_message(Message(body, **{"features": BULK_LEN, **more})), portal, back=back)


def test_the_kernel_s_session_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = VECTORS.glob("e1_*.pcap")
    assert main(["--json", str(path)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    selftest = [entry["selftest"] for entry in found if "selftest" in entry]
    assert Counter((one["service"], one["message"]) for one in selftest) == {
        ("MAKE_SESSION", "request"): 1,
        ("MAKE_SESSION", "reply"): 1,
        ("TEST", "request"): 1,
        ("TEST", "reply"): 1,
        ("PING", "request"): 10,
        ("PING", "reply"): 10,
        ("QUERY_STAT", "request"): 1,
        ("QUERY_STAT", "reply"): 1,
        ("REMOVE_SESSION", "request"): 1,
        ("REMOVE_SESSION", "reply"): 1,
    }
    assert [one["sequence"] for one in selftest if one["service"] == "PING"] == [
        number for number in range(10) for _ in (0, 1)
    ]
    assert {one["session_name"] for one in selftest if one.get("session")} == {"rw"}
    (stat,) = (one for one in selftest if "lnet" in one)
    assert stat["rpc"]["rpcs_rcvd"] == 13 and stat["framework"]["running_ms"] == 3657
    texts = [entry["text"].partition("tcp  ")[2] for entry in found if "selftest" in entry]
    assert texts[0] == (
        "selftest MAKE_SESSION request, 160 B, no ACK  [session 'rw' 192.168.110.11@tcp/65107, features 0x1]"
    )
    assert texts[2] == (
        "selftest TEST request, 160 B, no ACK  [session 'rw' 192.168.110.11@tcp/65107, batch 0x2, "
        "test of PING, loop 1, concurrency 1, stop_on_error 1, no parameters, features 0x1]"
    )
    assert texts[4] == ("selftest PING request, 160 B, no ACK  [magic 0xbabeface, sequence 0, features 0x1]")


def test_tshark_calls_the_kernel_s_own_messages_malformed(tshark: Callable[..., str]) -> None:
    """So what it says of PUTs to these portals tells nothing of ours (e2e/test_selftest_hosts.py)."""
    (path,) = VECTORS.glob("e1_*.pcap")
    malformed = tshark(path, "-Y", "lnet and _ws.malformed").splitlines()
    assert len(malformed) == len(tshark(path, "-Y", "lnet.msg_type == 1").splitlines()) == 28


def test_bulk_is_told_with_the_request_that_it_belongs_to() -> None:
    get_id = b"\x01" * 16
    get = Header(MsgType.GET, A, B, 12345, 12345, 0, get_id, 0x99, 0, 52, 0, length=5000)
    reply = Header(MsgType.REPLY, B, A, 12345, 12345, 5000, get_id)
    frame = pack_frame_header(FrameType.LNET)
    talk = opened().send(0, message(BrwRequest(7, 0x99, 2, 5000, 3), 50))
    talk.send(1, frame + pack_header(get, False))
    talk.send(0, frame + pack_header(reply, False) + bytes(5000))
    talk.send(1, message(BrwReply(74), 52, back=True))
    talk.send(0, message(BrwRequest(8, 0x9A, 1, 160, 1), 50))
    talk.send(1, put(bytes(160), 52, 0x9A, back=True))  # as long as a message, and none
    talk.send(1, put(bytes(160), 52, 0x9B, back=True))
    shown = [event.saying.text.split("tcp  ", 1)[1] for event in events(talk)[3:]]
    assert shown == [
        "selftest BRW request, 160 B, no ACK  [write, length 5000, check full, features 0x1]",
        "selftest bulk of BRW write, up to 5000 B, md 0x101010101010101",
        "to selftest bulk of BRW write, 5000 B, md 0x101010101010101",
        "selftest BRW reply, 160 B, no ACK  [EBADMSG (74), features 0x1]",
        "selftest BRW request, 160 B, no ACK  [read, length 160, check none, features 0x1]",
        "selftest bulk of BRW read, 160 B, no ACK",
        "portal 52 match 0x9b, 160 B, no ACK",
    ]


@pytest.mark.parametrize(
    ("body", "more", "words"),
    [
        (MakeSessionReply(16, SID, 100, "theirs"), {}, "EBUSY (16), session 'theirs' {sid}, timeout 100"),
        (
            MakeSessionReply(0, SID, 100, mark=RAILS_KNOWN),
            {},
            "ok, session {sid}, timeout 100, tells its rails",
        ),
        (RailsRequest(7, SID, 1), {}, "session {sid}, index 1"),
        (
            RailsReply(0, SID, 2, A.nid4, 3, 4),
            {},
            f"ok, session {{sid}}, rails 2, rail {A}, bulk_get 3, bulk_put 4",
        ),
        (DebugReply(0, SID, 100, 2, "mine"), {}, "ok, session 'mine' {sid}, timeout 100, batches 2"),
        (DebugReply(3, ANY_SESSION), {}, "ESRCH (3), no session"),
        (BatchRequest(7, SID, 5, 1), {}, "session {sid}, batch 0x5, run"),
        (BatchRequest(7, SID, 5, 9), {}, "session {sid}, batch 0x5, batchop 9, which does not exist"),
        (BatchReply(4000, SID, 3), {"version": 2}, "status (4000), session {sid}, active 3, version 2"),
        (
            TestRequest(7, 8, SID, 5, 11, 1, 4, 1, 0, 2, BulkBytes(2, 2, 4096, 8)),
            {},
            "session {sid}, batch 0x5, test of BRW, loop 1, concurrency 4, is_client 1, targets 2, "
            "write 4096 B at offset 8, check simple",
        ),
        (
            TestRequest(7, 8, SID, 5, 11, 1, 4, 0, 0, 0, BulkPages(1, 3, 1)),
            {"features": 0, "byteorder": "big"},
            "session {sid}, batch 0x5, test of BRW, loop 1, concurrency 4, read 3 pages, check none",
        ),
        (BatchReply(0, SessionId(2**64 - 2, 5)), {}, "ok, session {odd}/5"),
    ],
)
def test_fields_in_words(body: Body, more: dict[str, Any], words: str) -> None:
    (event,) = events(opened().send(0, message(body, 51, **more)))[3:]
    inside = event.saying.text.partition("  [")[2].removesuffix("]")
    odd = Nid.from_nid4(2**64 - 2)
    expected = words.format(sid=f"{A}/1234", odd=odd)
    tail = f", features {more.get('features', 1):#x}" + (", big-endian" if "byteorder" in more else "")
    assert inside == expected + tail
    assert json.dumps(event.saying.facts)


@given(st.binary(min_size=156, max_size=156), st.sampled_from(PORTALS), st.booleans())
def test_any_message_of_that_size_is_shown(rest: bytes, portal: int, big: bool) -> None:
    magic = (0xEEB0F00D).to_bytes(4, "big" if big else "little")
    header = Header(MsgType.PUT, A, B, 12345, 12345, 160, NO_WMD, 7, 0, portal, 0)
    saying = say_message(header, Requests(), payload=magic + rest)
    assert "\n" not in saying.text and json.dumps(saying.facts)
