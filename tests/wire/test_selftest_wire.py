"""Messages of LNet selftest: every field comes back, and every message of real nodes does byte for byte."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.packets import VECTORS, tcp_streams
from support.shared import shared_path
from ulnet.capture.packet import TCP, ip_payload
from ulnet.capture.pcap import read_packets
from ulnet.nid import Nid
from ulnet.wire.errors import WireError
from ulnet.wire.selftest import (
    MAGIC,
    MESSAGE_SIZE,
    Message,
    is_framework,
    pack_message,
    unpack_message,
)
from ulnet.wire.selftest_bodies import (
    REPLIES,
    REQUESTS,
    Body,
    MakeSessionReply,
    MakeSessionRequest,
    PingRequest,
    StatReply,
    TestRequest,
)
from ulnet.wire.selftest_values import (
    ANY_SESSION,
    BULK_LEN,
    BulkBytes,
    BulkPages,
    Check,
    Direction,
    FrameworkCounters,
    LnetCounters,
    PingParameters,
    RpcCounters,
    Service,
    SessionId,
)
from wire.wire_strategies import byteorders, u32, u64

pytestmark = pytest.mark.requirement("LST")

u8 = st.integers(0, 255)
u16 = st.integers(0, 2**16 - 1)
s64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
sids = st.builds(SessionId, u64, s64)
_SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "sid": sids,
    "name": names,
    "group": names,
    "session": names,
    "rpyid": u64,
    "mark": u64,
    "nid": u64,
    "bulk_get": u64,
    "bulk_put": u64,
    "bulkid": u64,
    "batch": u64,
    "seconds": u64,
    "nanoseconds": u64,
    "is_client": u8,
    "stop_on_error": u8,
    "framework": st.builds(FrameworkCounters, *[u32] * 5),
    "rpc": st.builds(RpcCounters, *[u32] * 5, u64, u64),
    "lnet": st.builds(LnetCounters, *[u32] * 7, *[u64] * 4),
}


def some(body: type[Body]) -> st.SearchStrategy[Body]:
    fields = [name for name in body.__match_args__ if name != "parameters"]  # type: ignore[attr-defined]
    return st.builds(body, **{name: _SPECIAL.get(name, u32) for name in fields})


bodies = st.one_of([some(body) for body in (*REQUESTS.values(), *REPLIES.values()) if body != TestRequest])


@given(st.builds(Message, bodies, u32, u32, byteorders))
def test_every_message_comes_back(message: Message) -> None:
    packed = pack_message(message)
    assert len(packed) == MESSAGE_SIZE
    assert unpack_message(packed) == message


@given(
    some(TestRequest),
    st.sampled_from(
        (
            (Service.PING, 0, st.builds(PingParameters, u32, u32)),
            (Service.PING, BULK_LEN, st.builds(PingParameters, u32, u32)),
            (Service.BRW, 0, st.builds(BulkPages, u32, u32, u32)),
            (Service.BRW, BULK_LEN, st.builds(BulkBytes, u16, u16, u32, u32)),
            (13, BULK_LEN, st.binary(min_size=12, max_size=12)),
        )
    ),
    byteorders,
    st.data(),
)
def test_parameters_are_those_of_service_and_features(
    test: TestRequest, kind: Any, byteorder: Any, data: st.DataObject
) -> None:
    service, features, parameters = kind
    fields = {name: getattr(test, name) for name in test.__match_args__}
    fields |= {"service": service, "parameters": data.draw(parameters)}
    message = Message(TestRequest(**fields), features, byteorder=byteorder)
    assert unpack_message(pack_message(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    for raw in (data, MAGIC.to_bytes(4, "big") + data[:156].ljust(156, b"\7")):
        try:
            message = unpack_message(raw)
        except WireError:
            continue
        assert unpack_message(pack_message(message)) == message


@given(st.binary(min_size=156, max_size=156), byteorders, st.sampled_from(range(16)))
def test_any_body_can_be_read(rest: bytes, byteorder: Any, kind: int) -> None:
    head = MAGIC.to_bytes(4, byteorder) + rest[:4] + kind.to_bytes(4, byteorder)
    message = unpack_message((head + rest).ljust(MESSAGE_SIZE, b"\0")[:MESSAGE_SIZE])
    assert unpack_message(pack_message(message)) == message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (MakeSessionRequest(1, ANY_SESSION, 0, "x" * 33), "at most 32 bytes"),
        (MakeSessionRequest(1, ANY_SESSION, 0, "a\0b"), "no NUL"),
        (MakeSessionRequest(1 << 64, ANY_SESSION), "has no room in its field"),
        (TestRequest(1, 2, ANY_SESSION, 1, 13, 1, 1, parameters=b"short"), "they have 12"),
    ],
)
def test_what_has_no_place_is_refused(body: Body, words: str) -> None:
    with pytest.raises(WireError, match=words):
        pack_message(Message(body))


def test_which_portal() -> None:
    assert [service.name for service in Service if not is_framework(service)] == ["BRW", "PING"]


# What real nodes sent ----------------------------------------------------------------------------------


def _found(stream: bytes) -> list[bytes]:
    magic = MAGIC.to_bytes(4, "little")
    places, at = [], stream.find(magic)
    while at >= 0:
        places.append(stream[at : at + MESSAGE_SIZE])
        at = stream.find(magic, at + MESSAGE_SIZE)
    return places


def _segments(path: Path) -> list[bytes]:
    """The payload of every TCP segment, as much as the capture has of it."""
    found = []
    with path.open("rb") as file:
        for packet in read_packets(file):
            carried = ip_payload(packet.link_type, packet.data, packet.cut)
            if carried is not None and carried.protocol == TCP:
                found.append(carried.data[(carried.data[12] >> 4) * 4 :])
    return found


def test_a_kernel_session_with_pings() -> None:
    raw = [one for stream in tcp_streams(VECTORS / "e1_lst_ping_10loops.pcap") for one in _found(stream)]
    messages = [unpack_message(one) for one in raw]
    assert [pack_message(message) for message in messages] == raw
    assert Counter(type(message.body).__name__ for message in messages) == {
        "MakeSessionRequest": 1, "MakeSessionReply": 1, "TestRequest": 1, "TestReply": 1,
        "PingRequest": 10, "PingReply": 10, "StatRequest": 1, "StatReply": 1,
        "RemoveSessionRequest": 1, "RemoveSessionReply": 1,
    }  # fmt: skip
    made = next(message.body for message in messages if isinstance(message.body, MakeSessionRequest))
    assert made.name == "rw" and str(Nid.from_nid4(made.sid.nid)) == "192.168.110.11@tcp"
    reply = next(message.body for message in messages if isinstance(message.body, MakeSessionReply))
    assert (reply.status, reply.sid, reply.timeout, reply.name) == (0, made.sid, 100, "")
    test = next(message.body for message in messages if isinstance(message.body, TestRequest))
    assert (test.service, test.loop, test.concurrency, test.is_client) == (Service.PING, 1, 1, 0)
    stat = next(message.body for message in messages if isinstance(message.body, StatReply))
    assert (stat.rpc.rpcs_rcvd, stat.lnet.send_count, stat.lnet.recv_count) == (13, 15, 16)
    pings = [message.body for message in messages if isinstance(message.body, PingRequest)]
    assert {ping.magic for ping in pings} == {0xBABEFACE}
    assert sorted(ping.sequence for ping in pings) == list(range(10))


def test_a_kernel_session_with_bulk() -> None:
    raw = [one for segment in _segments(shared_path("live/d4_kernel_lst_brw_begin.pcap"))
           for one in _found(segment)]  # fmt: skip
    assert len(raw) == 7
    messages = [unpack_message(one.ljust(MESSAGE_SIZE, b"\0")) for one in raw]
    for message, one in zip(messages, raw, strict=True):
        assert pack_message(message)[: len(one)] == one
    tests = [message for message in messages if isinstance(message.body, TestRequest)]
    assert [message.features for message in tests] == [BULK_LEN]
    (test,) = (message.body for message in tests)
    assert isinstance(test, TestRequest)
    assert test.parameters == BulkBytes(Direction.WRITE, Check.FULL, 1 << 20, 0)
    assert (test.loop, test.concurrency, test.stop_on_error) == (8, 8, 1)
