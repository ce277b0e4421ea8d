"""o2iblnd messages, both ways (spec wire-o2iblnd.md §1)."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import Nid
from ulnet.wire import Header, MsgType, WireError, pack_header
from ulnet.wire.errors import ByteOrder
from ulnet.wire.o2ib import (
    IMMEDIATE_END,
    MAGIC,
    MAX_FRAGMENTS,
    MAX_MESSAGE,
    ConnParams,
    O2ibMessage,
    O2ibType,
    RdmaTarget,
    Reject,
    checksum,
    has_magic,
)
from wire.wire_strategies import byteorders, named_small_nids, small_nids, u32, u64

A, B = Nid.parse("10.0.0.1@o2ib"), Nid.parse("10.0.0.2@o2ib")
PUT = Header(MsgType.PUT, A, B, 12345, 12345, 3, bytes(16), 7, 8, 9, 0)


def message(kind: int, body: bytes, order: str = "<", version: int = 0x12, size: int | None = None) -> bytes:
    head = (MAGIC, version, kind, 3, 48 + len(body) if size is None else size, 0, A.nid4, 100, B.nid4, 200)
    return struct.pack(order + "IHBBIIQQQQ", *head) + body


def descriptor(order: str, *fragments: tuple[int, int]) -> bytes:
    body = struct.pack(order + "II", 0x1234, len(fragments))
    return body + b"".join(struct.pack(order + "IQ", *fragment) for fragment in fragments)


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_type_in_either_byte_order(order: str) -> None:
    lnet = pack_header(PUT, large=False)  # always little-endian
    target = descriptor(order, (4096, 0x1000), (100, 0x2001))
    done = struct.pack(order + "Qi", 77, -61)
    bodies = {
        O2ibType.CONNREQ: struct.pack(order + "HHI", 8, 257, 4096),
        O2ibType.CONNACK: struct.pack(order + "HHI", 8, 257, 4096),
        O2ibType.NOOP: b"",
        O2ibType.IMMEDIATE: lnet + b"abc",
        O2ibType.PUT_REQ: lnet + struct.pack(order + "Q", 77),
        O2ibType.PUT_NAK: done,
        O2ibType.PUT_ACK: struct.pack(order + "QQ", 77, 78) + target,
        O2ibType.PUT_DONE: done,
        O2ibType.GET_REQ: lnet + struct.pack(order + "Q", 77) + target,
        O2ibType.GET_DONE: done,
    }
    assert set(bodies) == set(O2ibType)
    found = {kind: O2ibMessage.unpack(message(kind, body, order)) for kind, body in bodies.items()}
    for kind, one in found.items():
        assert (one.type, one.version, one.credits) == (kind, 0x12, 3)
        assert (one.src_nid, one.src_incarnation, one.dst_nid, one.dst_incarnation) == (A, 100, B, 200)
        assert one.byteorder == ("little" if order == "<" else "big")
    assert found[O2ibType.CONNREQ].params == ConnParams(8, 257, 4096)
    assert found[O2ibType.IMMEDIATE].header == PUT
    assert found[O2ibType.IMMEDIATE].payload == b"abc"
    assert (found[O2ibType.PUT_ACK].cookie, found[O2ibType.PUT_ACK].sink_cookie) == (77, 78)
    assert (found[O2ibType.GET_DONE].cookie, found[O2ibType.GET_DONE].status) == (77, -61)
    for kind in (O2ibType.PUT_ACK, O2ibType.GET_REQ):
        rdma = found[kind].target
        assert rdma is not None
        assert (rdma.key, rdma.fragments, rdma.length) == (0x1234, ((4096, 0x1000), (100, 0x2001)), 4196)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no o2iblnd message"),
        (message(0xD0, b"")[:47], "47 bytes are too few"),
        (message(0xD0, b"", version=0x13), "version 0x13"),
        (message(0xD8, b""), "unknown type 0xd8"),
        (message(0xD1, bytes(20)), "IMMEDIATE that claims 68 bytes"),
        (message(0xD0, b"", size=49), "claims 49 bytes, of which 48 arrived"),
        (message(0xD1, bytes(MAX_MESSAGE)), "IMMEDIATE that claims"),
        (message(0xD4, bytes(16) + struct.pack("<II", 1, 0)), "0 fragments"),
        (message(0xD4, bytes(16) + struct.pack("<II", 1, 258)), "258 fragments"),
        (message(0xD4, bytes(16) + struct.pack("<II", 1, 2) + bytes(12)), "2 fragments"),
    ],
)
def test_what_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        O2ibMessage.unpack(data)


def test_rejects_say_why() -> None:
    raw = struct.pack("<IHBBQHHI", MAGIC, 0x12, 5, 0, 99, 8, 257, 4096)
    reject = Reject.unpack(raw)
    assert (reject.reason_text, reject.incarnation, reject.params) == (
        "CONN_STALE",
        99,
        ConnParams(8, 257, 4096),
    )
    assert Reject(0x12, 77, 0, reject.params).reason_text == "reason 77"
    with pytest.raises(WireError, match="too few"):
        Reject.unpack(raw[:20])


@given(st.binary(max_size=300), st.sampled_from(O2ibType), st.sampled_from("<>"))
def test_any_bytes_give_a_message_or_a_wire_error(data: bytes, kind: O2ibType, order: str) -> None:
    for raw in (data, message(kind, data, order)):
        assert has_magic(raw) == (raw[:4] in (MAGIC.to_bytes(4, "little"), MAGIC.to_bytes(4, "big")))
        for unpack in (O2ibMessage.unpack, Reject.unpack):
            try:
                unpack(raw)
            except WireError:
                pass


params = st.builds(ConnParams, st.integers(0, 65535), st.integers(0, 65535), u32)
targets = st.builds(
    RdmaTarget, u32, st.lists(st.tuples(u32, u64), min_size=1, max_size=MAX_FRAGMENTS).map(tuple)
)
lnet_headers = st.builds(
    Header, st.just(int(MsgType.PUT)), named_small_nids, named_small_nids, u32, u32, u32,
    st.binary(min_size=16, max_size=16), u64, u64, u32, u32,
)  # fmt: skip


@st.composite
def messages(draw: st.DrawFn) -> O2ibMessage:
    kind = draw(st.sampled_from(O2ibType))
    fields: dict[str, object] = {}
    if kind in (O2ibType.CONNREQ, O2ibType.CONNACK):
        fields["params"] = draw(params)
    if kind in (O2ibType.IMMEDIATE, O2ibType.PUT_REQ, O2ibType.GET_REQ):
        fields["header"] = draw(lnet_headers)
    if kind == O2ibType.IMMEDIATE:
        fields["payload"] = draw(st.binary(max_size=MAX_MESSAGE - IMMEDIATE_END))
    elif kind not in (O2ibType.CONNREQ, O2ibType.CONNACK, O2ibType.NOOP):
        fields["cookie"] = draw(u64)
    if kind in (O2ibType.PUT_ACK, O2ibType.GET_REQ):
        fields["target"] = draw(targets)
    if kind == O2ibType.PUT_ACK:
        fields["sink_cookie"] = draw(u64)
    if kind in (O2ibType.PUT_NAK, O2ibType.PUT_DONE, O2ibType.GET_DONE):
        fields["status"] = draw(st.integers(-(2**31), 2**31 - 1))
    ends = draw(named_small_nids), draw(u64), draw(small_nids), draw(u64)
    version, credits = draw(st.sampled_from((0x11, 0x12))), draw(st.integers(0, 255))
    return O2ibMessage(kind, version, credits, 0, *ends, draw(byteorders), **fields)  # type: ignore[arg-type]


@given(messages(), st.booleans(), st.booleans())
def test_what_is_packed_is_unpacked_and_its_checksum_tells_of_every_change(
    sent: O2ibMessage, summed: bool, signed: bool
) -> None:
    raw = sent.pack()
    assert O2ibMessage.unpack(raw + b"behind it") == sent
    if summed:
        order = "<I" if sent.byteorder == "little" else ">I"
        csum = checksum(raw, signed)
        raw = raw[:12] + struct.pack(order, csum) + raw[16:]
        assert O2ibMessage.unpack(raw).pack() == raw
        broken = bytearray(raw)
        broken[-1] ^= 1
        with pytest.raises(WireError):
            O2ibMessage.unpack(broken)


@given(st.sampled_from((0x11, 0x12)), st.integers(0, 255), u64, params, byteorders)
def test_rejects_go_both_ways(
    version: int, reason: int, incarnation: int, mine: ConnParams, order: ByteOrder
) -> None:
    sent = Reject(version, reason, incarnation, mine)
    assert Reject.unpack(sent.pack(order)) == sent


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"type": O2ibType.CONNREQ}, "CONNREQ without all"),
        ({"type": O2ibType.PUT_ACK}, "PUT_ACK without all"),
        ({"type": O2ibType.GET_REQ, "header": PUT}, "GET_REQ without all"),
        ({"type": O2ibType.IMMEDIATE, "header": PUT, "payload": bytes(3977)}, "IMMEDIATE of 4097 bytes"),
        ({"type": O2ibType.PUT_DONE, "status": 1 << 31}, "do not fit"),
        ({"type": O2ibType.NOOP, "credits": 256}, "does not fit"),
        ({"type": O2ibType.NOOP, "dst_nid": Nid.parse("fd00::1@tcp")}, "does not fit into 64 bits"),
        ({"type": O2ibType.PUT_ACK, "target": RdmaTarget(1, ())}, "0 fragments"),
        ({"type": O2ibType.PUT_ACK, "target": RdmaTarget(1, ((1, 1 << 64),))}, "does not fit"),
    ],
)
def test_what_cannot_be_packed(fields: dict[str, Any], words: str) -> None:
    whole = replace(O2ibMessage(O2ibType.NOOP, 0x12, 0, 0, A, 1, B, 2, "little"), **fields)
    with pytest.raises(WireError, match=words):
        whole.pack()


def test_a_source_that_is_anybody_is_refused() -> None:
    raw = bytearray(message(0xD0, b""))
    raw[16:24] = b"\xff" * 8
    with pytest.raises(WireError, match="source is any NID"):
        O2ibMessage.unpack(raw)
