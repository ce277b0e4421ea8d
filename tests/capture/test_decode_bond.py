"""Bonding messages as `ulnet decode` shows them (docs/wire-bond.md)."""

from __future__ import annotations

import pytest

from ulnet.capture.describe import Requests, say_message
from ulnet.nid import Nid
from ulnet.wire.bond import (
    MATCH_BITS,
    Answer,
    Beacon,
    BondHello,
    Configuration,
    Kind,
    Mode,
    Register,
    Resolve,
    SlaveEntry,
    SlaveStatus,
)
from ulnet.wire.lnet import Header, MsgType

A, B = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
BOND, OTHER = Nid.parse("10.0.0.1@bond"), Nid.parse("10.0.0.2@bond")
CONFIG = Configuration(BOND, (SlaveEntry(A), SlaveEntry(Nid.parse("10.1.0.1@tcp1"), status=SlaveStatus.DOWN)))


def said(kind: Kind, payload: bytes) -> str:
    header = Header(MsgType.PUT, B, A, payload_length=len(payload), match_bits=MATCH_BITS | kind)
    return say_message(header, Requests(), payload=payload).text


@pytest.mark.requirement("BOND-hello")
@pytest.mark.parametrize(
    ("kind", "message", "words"),
    [
        (
            Kind.HELLO,
            BondHello(0xAB, 0, CONFIG, (3,)),
            "bond HELLO, 100 B, no ACK  [ab initial, v1 0x3: 10.0.0.1@bond standby (returns) over "
            "10.0.0.1@tcp up (active), 10.1.0.1@tcp1 down]",
        ),
        (Kind.HELLO, BondHello(0xAB, 0xCD, CONFIG, (3, 1)), "[ab to cd, v2 0x1: 10.0.0.1@bond"),
        (
            Kind.HELLO,
            BondHello(0xAB, 1, CONFIG, (7,), guard=b"\x12\xab"),
            "[ab to 1, v1 0x7, guard 12ab: 10.0.0.1@",
        ),
        (Kind.REGISTER, Register(7, 0xAB, CONFIG), "bond REGISTER, 92 B, no ACK  [request 7: 10.0.0.1@bond"),
        (Kind.RESOLVE, Resolve(8, OTHER, BOND), "[request 8: who is 10.0.0.2@bond? asks 10.0.0.1@bond]"),
        (Kind.ANSWER, Answer(8, OTHER, 2), "[request 8: 10.0.0.2@bond status 2]"),
        (Kind.ANSWER, Answer(8, BOND, 0, 5, CONFIG), "[request 8: 10.0.0.1@bond standby (returns) over"),
    ],
)
def test_puts(kind: Kind, message: BondHello | Register | Resolve | Answer, words: str) -> None:
    for byteorder in ("little", "big"):
        assert words in said(kind, message.pack(byteorder))


def test_weights_are_shown_where_they_count() -> None:
    slaves = (SlaveEntry(A, 4), SlaveEntry(Nid.parse("10.1.0.1@tcp1"), 1))
    told = said(Kind.HELLO, BondHello(1, 0, Configuration(BOND, slaves, Mode.LOADBALANCE, 2)).pack())
    assert "load balancing (weights) over 10.0.0.1@tcp up ×4, 10.1.0.1@tcp1 up ×1" in told


def test_a_beacon_and_its_answer() -> None:
    requests = Requests()
    wmd = bytes(16)
    ask = Header(MsgType.GET, B, A, wmd=wmd, match_bits=MATCH_BITS, length=528)
    assert "bond BEACON, up to 528 B" in say_message(ask, requests).text
    payload = Beacon(1, ((BOND.net, 0xAB),)).pack()
    reply = Header(MsgType.REPLY, A, B, wmd=wmd, payload_length=len(payload))
    assert (
        "to bond BEACON, 24 B, md 0x0  [v1: bond0 ab]" in say_message(reply, requests, payload=payload).text
    )


def test_what_breaks_the_rules_is_told() -> None:
    spoilt = bytearray(BondHello(1, 0, CONFIG).pack())
    spoilt[44] = 9
    assert "[bonding mode 9 does not exist" in said(Kind.HELLO, bytes(spoilt))
