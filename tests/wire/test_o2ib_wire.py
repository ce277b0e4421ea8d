"""o2iblnd messages as received (spec wire-o2iblnd.md §1)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.nid import Nid
from ulnet.wire import Header, MsgType, WireError, pack_header
from ulnet.wire.o2ib import MAGIC, MAX_MESSAGE, ConnParams, O2ibMessage, O2ibType, Reject, has_magic

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
